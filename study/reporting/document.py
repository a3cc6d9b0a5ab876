"""What a report is made of, before it is a page, a text or a file: an answer, then sections of blocks.

Every rendering (terminal, Markdown, HTML, CSV, the dashboard's note) reads the same document, so that they
cannot give different answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, cast

from study.cli.wording import slug

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


@dataclass(frozen=True)
class Column:
    """One column of a table, and how it gets its value from the item of a row."""

    name: str
    """In the CSV file; also the item's attribute, unless `get` says otherwise."""
    title: str
    """Over the column, for people."""
    _: KW_ONLY
    get: Callable[[Any], Value] | None = None
    show: Callable[[Any], str] = plain
    number: bool = True
    """Aligned right, in figures of equal width."""
    key: bool = False
    """Says what the row is about: repeated where a narrow screen needs several tables."""
    csv: bool = True
    """False for a column that is only for people."""
    shown: bool = True
    """False for a column that is only in the CSV file."""
    seldom: bool = False
    """Shown only where some value is not empty, zero or no."""
    badge: bool = False
    """A verdict, drawn as a badge."""
    note: str = ""
    """A footnote, under every table that shows the column."""

    def value(self, item: Any) -> Value:
        return self.get(item) if self.get is not None else _attribute(item, self.name)

    def text(self, item: Any) -> str:
        return self.show(self.value(item))


def label(name: str, title: str | None = None, **details: Any) -> Column:
    """A column of words; over it stands its name, unless told otherwise."""
    return Column(name, title or name, number=False, **details)


def _attribute(item: Any, name: str) -> Value:
    """Of an object or a mapping; of a tuple of objects, from the first that has the attribute."""
    if isinstance(item, Mapping):
        return cast(Value, item[name])
    parts = item if isinstance(item, tuple) else (item,)
    return cast(Value, getattr(next((part for part in parts if hasattr(part, name)), parts[0]), name))


@dataclass(frozen=True)
class Row:
    item: Any
    group: str | None = None
    """A heading over this row, where it differs from that of the row before."""
    strong: bool = False
    quiet: bool = False
    marked: frozenset[str] = frozenset()
    """Names of columns whose value stands out; the table's `mark` says as what."""


@dataclass(frozen=True, kw_only=True)
class Table:
    name: str
    """The CSV file's name, without its ending."""
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    note: str = ""
    folded: bool = False
    """Closed at first on the page: long, or rarely wanted."""
    mark: Literal["best", "differs"] = "best"

    @property
    def file(self) -> str:
        return f"{slug(self.name)}.csv"

    @property
    def shown(self) -> list[Column]:
        """Without columns in which nothing is known, and seldom ones without anything to say."""
        return [c for c in self.columns if c.shown and not self._silent(c)]

    @property
    def footnotes(self) -> list[str]:
        """The table's own note, then those of the columns it shows."""
        return [note for note in (self.note, *(column.note for column in self.shown)) if note]

    def _silent(self, column: Column) -> bool:
        values = [column.value(row.item) for row in self.rows]
        if column.seldom:
            return not any(values)
        return not column.key and bool(values) and all(value is None for value in values)


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One small chart; `label` is its heading, `alt` describes it for readers who cannot see it."""

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
    folded: bool = False


@dataclass(frozen=True)
class Words:
    text: str


@dataclass(frozen=True)
class Code:
    """Something to copy: a command."""

    text: str


@dataclass(frozen=True)
class Remark:
    """Something to know, and the places where it holds."""

    text: str
    places: tuple[str, ...] = ()

    def told(self, most: int = 4) -> str:
        """With the first few places, and how many more there are; 0 names all of them."""
        if not self.places:
            return self.text
        named = self.places[: most or None]
        more = f" and {len(self.places) - len(named)} more" if len(named) < len(self.places) else ""
        return f"{', '.join(named)}{more}: {self.text}"


@dataclass(frozen=True)
class Bullets:
    items: tuple[Remark, ...]


Block = Words | Code | Bullets | Table | Chart


@dataclass(frozen=True)
class Section:
    anchor: str
    title: str
    blocks: tuple[Block, ...]
    brief: bool = False
    """Shown at the end of a launch as well; the other sections are left to the report."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """How many layers to tune, in one sentence, and what a decision needs beside it, each under its name."""

    whose: str | None
    """The model, and its protocol or train size, where there are several."""
    sentence: str
    parts: tuple[tuple[str, str], ...] = ()
    """Interval, savings, how sure, what would change it, ...: a name and a text of whole sentences."""

    @property
    def headline(self) -> str:
        return f"{self.whose}: {self.sentence}" if self.whose else self.sentence

    def __str__(self) -> str:
        return " ".join((self.headline, *(f"{name}: {text}" for name, text in self.parts)))


@dataclass(frozen=True, kw_only=True)
class Document:
    title: str
    badges: tuple[str, ...] = ()
    """DEMO, RECORDED: said wherever the document is read."""
    warnings: tuple[str, ...] = ()
    answers: tuple[Answer, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    """Short numbers with what they are, for the top of the page."""
    sections: tuple[Section, ...] = ()

    @property
    def tables(self) -> list[Table]:
        return [b for s in self.sections for b in s.blocks if isinstance(b, Table)]

    @property
    def charts(self) -> list[Chart]:
        return [b for s in self.sections for b in s.blocks if isinstance(b, Chart)]
