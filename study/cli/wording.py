"""Numbers, sizes, names and tables as people read them."""

from __future__ import annotations

import hashlib
import re
import textwrap
from collections.abc import Collection, Sequence
from itertools import zip_longest

LONGEST = 120
"""Characters of a file's name; longer ones are cut and end in a digest of the whole."""
_NARROWEST = 8


def counted(number: float, thing: str) -> str:
    """`1 cell`, `2 cells`, `0.5 epochs`."""
    shown = f"{number:,}" if isinstance(number, int) else f"{number:g}"
    return f"{shown} {thing}{'' if number == 1 else 's'}"


def size_text(size: float) -> str:
    """`1.25 GiB`, `3.0 MiB`, `12.5 KiB`."""
    if size >= 2**30:
        return f"{size / 2**30:.2f} GiB"
    return f"{size / 2**20:.1f} MiB" if size >= 2**20 / 10 else f"{size / 2**10:.1f} KiB"


def slug(name: str) -> str:
    """A file's name from any name: models may be called `org/model`, be a path or come from a table."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "unnamed"
    if len(safe) <= LONGEST:
        return safe
    return f"{safe[: LONGEST - 9]}-{hashlib.sha256(name.encode(errors='backslashreplace')).hexdigest()[:8]}"


def columns(
    rows: Sequence[Sequence[str]], *, right: Collection[int] = (), indent: str = "", width: int | None = None
) -> list[str]:
    """Rows as lines with aligned columns; `right` are those of numbers.

    Where a width is given, the widest columns are made narrower until the lines fit, and their texts wrapped.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    while width and len(indent) + sum(widths) + 2 * len(widths) - 2 > width and max(widths) > _NARROWEST:
        widths[widths.index(max(widths))] -= 1
    lines = []
    for row in rows:
        cells = (textwrap.wrap(text, size) for text, size in zip(row, widths, strict=True))
        for parts in zip_longest(*cells, fillvalue=""):
            aligned = (
                part.rjust(size) if i in right else part.ljust(size)
                for i, (part, size) in enumerate(zip(parts, widths, strict=True))
            )
            lines.append((indent + "  ".join(aligned)).rstrip())
    return lines
