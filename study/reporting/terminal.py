"""A document as text for a terminal: the answer first, then tables that fit its width.

A table that is too wide is printed as several, each with the columns that say what a row is about.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from study.reporting.document import (
    Answer,
    Block,
    Bullets,
    Chart,
    Code,
    Column,
    Document,
    Section,
    Table,
    Words,
)

LONGEST_LINE = 100
"""Of sentences, however wide the terminal is: longer ones are hard to read."""
WIDEST_CELL = 32
GAP = "  "


def terminal(document: Document, width: int = 80, *, brief: bool = False) -> str:
    """With `brief` only what fits on a screen: the answer, tables without footnotes, how to export."""
    badges = "".join(f"{badge.upper()} · " for badge in document.badges)
    parts = [_answer(answer, badges if i == 0 else "", width) for i, answer in enumerate(document.answers)]
    parts += [_prose(warning, width) for warning in document.warnings]
    said: set[str] = set()
    if brief:
        shown = [section for section in document.sections if section.brief]
        parts += [_section(section, width, None) for section in shown]
    else:
        parts += [_section(section, width, said) for section in document.sections]
    return printable("\n\n".join(parts))


def printable(text: str) -> str:
    """Names may come from anybody's table: nothing in them may steer the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)


def _answer(answer: Answer, badges: str, width: int) -> str:
    """The sentence, and its parts with their names in a column of their own."""
    column = max((len(name) for name, _ in answer.parts), default=0) + 2
    return "\n".join(
        [
            _prose(f"{badges}{answer.headline}", width),
            *(_prose(text, width, f"  {name:<{column}}", " " * (column + 2)) for name, text in answer.parts),
        ]
    )


def _section(section: Section, width: int, said: set[str] | None) -> str:
    """`said` are the footnotes so far: each is printed once; with None tables are cut to what fits."""
    blocks = [_block(block, width, said) for block in section.blocks if not isinstance(block, Chart)]
    # A table has a title of its own.
    title = [] if isinstance(section.blocks[0], Table) else [section.title]
    return "\n\n".join(["\n".join([*title, blocks[0]]), *blocks[1:]])


def _block(block: Block, width: int, said: set[str] | None) -> str:
    match block:
        case Words():
            return _prose(block.text, width)
        case Bullets():
            return "\n".join(
                _prose(item.told(most=0), width, first="  - ", rest="    ") for item in block.items
            )
        case Table():
            return _table(block, width, said)
        case Code():
            return block.text
        case Chart():
            raise TypeError("a terminal shows no charts")


def _prose(text: str, width: int, first: str = "", rest: str = "") -> str:
    return textwrap.fill(
        text,
        min(width, LONGEST_LINE),
        initial_indent=first,
        subsequent_indent=rest,
        break_on_hyphens=False,
    )


def _table(table: Table, width: int, said: set[str] | None) -> str:
    columns = [_Laid(column, table) for column in table.shown]
    keys = [column for column in columns if column.key] or columns[:1]
    parts = [
        "\n".join(_lines(table, [*keys, *block], width))
        for block in _blocks([column for column in columns if column not in keys], keys, width)
    ]
    if said is None:
        return f"{_prose(table.title, width)}\n{parts[0]}"
    new = [note for note in table.footnotes if note not in said]
    said.update(new)
    notes = [_prose(" ".join(new), width)] if new else []
    return "\n\n".join([f"{_prose(table.title, width)}\n{parts[0]}", *parts[1:], *notes])


class _Laid:
    """A column as lines of text: its title, and a few lines for each row where a cell is long."""

    def __init__(self, column: Column, table: Table):
        self.key = column.key
        self._number = column.number
        cells = [column.text(row.item) for row in table.rows]
        self.width = min(WIDEST_CELL, max(map(len, [*column.title.split(), *cells])))
        self.title = textwrap.wrap(column.title, self.width)
        self.cells = [textwrap.wrap(cell, self.width) or [""] for cell in cells]

    def line(self, lines: Sequence[str], index: int) -> str:
        text = lines[index] if 0 <= index < len(lines) else ""
        return text.rjust(self.width) if self._number else text.ljust(self.width)


def _blocks(columns: Iterable[_Laid], keys: Sequence[_Laid], width: int) -> list[list[_Laid]]:
    """As many columns beside the keys as fit, then the next ones; at least one at a time."""
    used = sum(len(GAP) + key.width for key in keys)
    blocks: list[list[_Laid]] = [[]]
    left = width - used
    for column in columns:
        if blocks[-1] and len(GAP) + column.width > left:
            blocks.append([])
            left = width - used
        blocks[-1].append(column)
        left -= len(GAP) + column.width
    return blocks


def _lines(table: Table, columns: Sequence[_Laid], width: int) -> list[str]:
    def joined(lines: Sequence[Sequence[str]], index: int) -> str:
        return (GAP + GAP.join(c.line(own, index) for c, own in zip(columns, lines, strict=True))).rstrip()

    titles = [column.title for column in columns]
    height = max(map(len, titles))
    found = [
        joined([[""] * (height - len(title)) + list(title) for title in titles], i) for i in range(height)
    ]
    group = None
    for i, row in enumerate(table.rows):
        if row.group is not None and row.group != group:
            group = row.group
            found.append(_prose(group, width))
        cells = [column.cells[i] for column in columns]
        found += [joined(cells, line) for line in range(max(map(len, cells)))]
    return found
