"""Names as parts of file names."""

from __future__ import annotations

import hashlib
import re

LONGEST = 120
"""Characters of a name; longer ones are cut and end in a digest of the whole."""


def slug(name: str) -> str:
    """A file's name from any name: models may be called `org/model`, be a path or come from a table."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "unnamed"
    if len(safe) <= LONGEST:
        return safe
    return f"{safe[: LONGEST - 9]}-{hashlib.sha256(name.encode(errors='backslashreplace')).hexdigest()[:8]}"
