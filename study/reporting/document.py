"""What a report is made of, before it is a page, a text or a file: sections of words, tables and charts.

One content for every rendering, so that HTML, Markdown and CSV cannot tell different stories.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Value = str | int | float | bool | None
Figure = dict[str, Any]
"""A Plotly figure as plain data; colours may be tokens that a theme resolves."""


def plain(value: Value) -> str:
    """A value as people read it; what is not known is a dash."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def slug(name: str) -> str:
    """A file's name from any name: models may be called `org/model` or be a path."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "unnamed"


@dataclass(frozen=True)
class Column:
    name: str
    """In the CSV file."""
    title: str
    """Over the column, for people."""
    show: Callable[[Any], str] = plain
    number: bool = True
    """Set flush right, in figures of equal width."""
    raw: bool = True
    """False for a column that is only for people and not in the CSV."""


@dataclass(frozen=True)
class Row:
    values: tuple[Value, ...]
    group: str | None = None
    """A heading over this row, where it differs from that of the row before."""
    strong: bool = False
    quiet: bool = False
    marked: frozenset[int] = frozenset()
    """Columns whose value stands out; the table's `mark` says as what."""


@dataclass(frozen=True, kw_only=True)
class Table:
    name: str
    """The CSV file's name, without its ending."""
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    note: str | None = None
    folded: bool = False
    """Shown closed at first: long, or for those who ask."""
    hidden: frozenset[str] = frozenset()
    """Columns that are only in the CSV."""
    mark: Literal["best", "differs"] = "best"
    verdicts: bool = False
    """Agree, differ and cannot tell are set as badges."""

    @property
    def file(self) -> str:
        return f"{slug(self.name)}.csv"

    @property
    def shown(self) -> list[tuple[int, Column]]:
        return [(i, column) for i, column in enumerate(self.columns) if column.name not in self.hidden]


def silent(columns: Sequence[Column], rows: Sequence[Row], names: Iterable[str]) -> frozenset[str]:
    """Of these columns the ones in which nothing ever happened: only empty, zero or no."""
    wanted = set(names)
    return frozenset(
        column.name
        for i, column in enumerate(columns)
        if column.name in wanted and not any(row.values[i] for row in rows)
    )


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One small chart; `label` is its heading, `alt` what it shows, for those who cannot see it."""

    name: str
    label: str
    figure: Figure
    alt: str


@dataclass(frozen=True)
class Key:
    """One entry of a chart's legend."""

    label: str
    colour: str
    dash: str = "solid"
    symbol: str | None = None


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Small multiples that share a legend and a caption."""

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    legend: tuple[Key, ...] = ()
    wide: bool = False
    """Panels take the whole width, one under another."""
    folded: bool = False


@dataclass(frozen=True)
class Words:
    text: str


@dataclass(frozen=True)
class Bullets:
    items: tuple[str, ...]


Block = Words | Bullets | Table | Chart


@dataclass(frozen=True)
class Section:
    anchor: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, kw_only=True)
class Document:
    title: str
    badges: tuple[str, ...]
    """DEMO, RECORDED: what must be said wherever the report is read."""
    warnings: tuple[str, ...]
    answers: tuple[str, ...]
    """The answer, in a sentence per model."""
    facts: tuple[tuple[str, str], ...]
    """Short numbers with what they are, for the top of the page."""
    sections: tuple[Section, ...] = field(default=())

    @property
    def tables(self) -> list[Table]:
        return [b for s in self.sections for b in s.blocks if isinstance(b, Table)]

    @property
    def charts(self) -> list[Chart]:
        return [b for s in self.sections for b in s.blocks if isinstance(b, Chart)]
