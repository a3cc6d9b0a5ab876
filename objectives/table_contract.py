"""The trial table's contract: its columns, their types and bounds, and how a CSV file of it is read.

Every reader of trial tables uses this one, so that all accept the same files and give the same errors.
Standard library only.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from objectives.contract import TrialRecord, UsageError
from objectives.settings import Declared, Setting, declared, setting, shortened

STATES = ("COMPLETE", "FAIL", "RUNNING", "WAITING", "PRUNED")
LONGEST_NAME = 500
LONGEST_CELL = 100_000
_EMPTY = frozenset({"", "nan", "na", "none", "null", "<na>"})
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_INNER = r"['\"]*[=+\-@\t\r]"
_UNSAFE_INSIDE = re.compile(rf"(?<=[;\n])(?={_INNER})")
"""Where a spreadsheet that separates cells by semicolons would see a formula."""
_SAFE_INSIDE = re.compile(rf"(?<=[;\n])'(?={_INNER})")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def _whole(least: int, most: int, default: Any = MISSING) -> Any:
    return setting(default, help=f"use a whole number from {least} to {most}", least=least, most=most)


def _number(least: float, most: float, default: Any = MISSING, *, above: float | None = None) -> Any:
    said = f"above {above:g}, at most {most:g}" if above is not None else f"from {least:g} to {most:g}"
    return setting(default, help=f"use a number {said}", least=least, most=most, above=above)


def _name() -> Any:
    return setting(help=f"use a name of 1 to {LONGEST_NAME} characters")


@dataclass(frozen=True, kw_only=True)
class TrialRow:
    """The columns that every trial table has; those with a default may be left out of a file."""

    task: str = _name()
    model: str = _name()
    total_layers: int = _whole(1, 10_000)
    frozen_layers: int = _whole(-1, 10_000)
    learning_rate: float = _number(0, 1000, above=0)
    seed: int = _whole(0, 2**32 - 1)
    train_size: int | None = _whole(1, 10**12, None)
    """None is all of the data."""
    state: str = setting("COMPLETE", help=f"use one of {', '.join(STATES)}")
    metric: str = _name()
    score: float | None = setting(
        help="use a number from -1e+09 to 1e+09, or leave it empty for a run that diverged",
        least=-1e9,
        most=1e9,
    )


COLUMNS: dict[str, Declared] = {column.name: column for column in declared(TrialRow)}
REQUIRED = tuple(COLUMNS)
MEASURED = {
    f.name: float if "float" in str(f.type) else int
    for f in fields(TrialRecord)
    if str(f.type) in ("float | None", "int | None")
}
"""Columns of numbers that a table may have besides."""


@dataclass(frozen=True, kw_only=True)
class _Measurement:
    value: float | None = _number(-1e18, 1e18, None)


_MEASUREMENT = declared(_Measurement)[0]


@dataclass(frozen=True)
class RawTable:
    """The cells of a file as text, by column; a line of the file for each row."""

    columns: dict[str, list[str]]
    lines: Sequence[int]


def read(path: str | Path) -> RawTable:
    """A trial table's file; UsageError says why it is none."""
    try:
        text = _text(path)
        header, rows, lines = _cells(text)
    except (OSError, EOFError, zlib.error, csv.Error, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read {path} as a CSV table: {reason}") from None
    missing = [name for name in REQUIRED if name not in header and COLUMNS[name].default is MISSING]
    if missing:
        raise UsageError(
            f"{path} has no column {', '.join(missing)}: a trial table needs {', '.join(REQUIRED)}"
        )
    if not rows:
        raise UsageError(f"{path} holds no trials")
    cells = [_plain(column) if "'" in text else list(column) for column in zip(*rows, strict=True)]
    columns = dict(zip(header, cells, strict=True))
    for name in REQUIRED:
        columns.setdefault(name, [""] * len(rows))
    return RawTable(columns, lines)


def _plain(cells: Sequence[str]) -> list[str]:
    return [plain_cell(cell) if "'" in cell else cell for cell in cells]


def _text(path: str | Path) -> str:
    opened = gzip.open if str(path).lower().endswith(".gz") else open
    with opened(path, "rt", newline="", encoding="utf-8-sig") as file:
        text = str(file.read())
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise ValueError(f"line {line} has a NUL character")
    return text


def _cells(text: str) -> tuple[list[str], list[list[str]], Sequence[int]]:
    """The header, the rows that are not blank, and the line of the file that each row ends on."""
    reader = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True, strict=True)
    header = [name.strip() or f"Unnamed: {i}" for i, name in enumerate(_plain(next(reader, [])))]
    if not header:
        raise ValueError("it is empty")
    twice = [name for name in header if header.count(name) > 1]
    if twice:
        raise ValueError(f"it has two columns named {shortened(twice[0])}")
    found = []
    for row in reader:
        if len(row) == len(header):
            found.append(row)
        elif row:
            found.append(_filled(row, len(header), reader.line_num))
    if any(len(cell) > LONGEST_CELL for row in found for cell in row):
        raise ValueError(f"it has a cell of more than {LONGEST_CELL:,} characters")
    if reader.line_num == len(found) + 1:
        return header, found, range(2, len(found) + 2)
    # Blank lines, or cells of several lines.
    again = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True)
    return header, found, [again.line_num for row in again if row][1:]


def _filled(row: list[str], columns: int, line: int) -> list[str]:
    if len(row) > columns:
        raise ValueError(f"line {line} has {len(row)} cells, the header {columns}")
    return row + [""] * (columns - len(row))


def normalise(
    columns: Mapping[str, Sequence[Any]], source: str, lines: Sequence[int] | None = None
) -> dict[str, list[Any]]:
    """The contract's columns, and measured ones that are there, with their types; what is empty is None.

    An empty state is COMPLETE. UsageError names the source, the line, the value and what to use.
    """
    table = _Checked(columns, source, lines)
    found = {name: table.column(name, *_reader(column)) for name, column in COLUMNS.items()}
    for name in MEASURED:
        if name in columns:
            found[name] = table.column(name, _as_number, _MEASUREMENT)
    for i, (frozen, layers) in enumerate(zip(found["frozen_layers"], found["total_layers"], strict=True)):
        if frozen > layers:
            raise table.refused("frozen_layers", i, f"use -1 to total_layers, which is {layers}")
    for i, (metric, state) in enumerate(zip(found["metric"], found["state"], strict=True)):
        if metric == "" and state == "COMPLETE":
            raise table.refused("metric", i, "a complete trial names its metric")
    return found


class _Checked:
    """Values of a table on their way to their types."""

    def __init__(self, columns: Mapping[str, Sequence[Any]], source: str, lines: Sequence[int] | None):
        self._columns, self._source, self._lines = columns, source, lines

    def column(self, name: str, convert: Callable[[Any], Any], about: Declared) -> list[Any]:
        """Each distinct value is converted once: most columns have few."""
        values = self._columns[name]
        known = dict.fromkeys(values)
        for raw in known:
            try:
                value = known[raw] = convert(raw)
            except (ValueError, OverflowError):
                raise self.refused(name, values.index(raw), about.about.help) from None
            if (value is None and not about.optional) or not _within(value, about.about):
                raise self.refused(name, values.index(raw), about.about.help)
        return [known[raw] for raw in values]

    def refused(self, name: str, index: int, advice: str) -> UsageError:
        line = index + 2 if self._lines is None else self._lines[index]
        raw = self._columns[name][index]
        shown = shortened("" if raw is None else str(raw))
        return UsageError(f"{self._source}, line {line}: {name} is {shown}: {advice}")


def _within(value: Any, bounds: Setting) -> bool:
    if not isinstance(value, int | float):
        return True
    least, most = bounds.least, bounds.most
    inside = least is None or most is None or least <= value <= most
    return inside and (bounds.above is None or value > bounds.above)


def _reader(column: Declared) -> tuple[Callable[[Any], Any], Declared]:
    if column.name == "state":
        return _as_state, column
    if column.kind is str:
        return (_as_name if column.name != "metric" else _as_text), column
    return (_as_whole if column.kind is int else _as_float), column


def _as_text(raw: Any) -> str:
    text = "" if raw is None or raw != raw or str(raw) == "<NA>" else str(raw).strip()
    if len(text) > LONGEST_NAME:
        raise ValueError("too long")
    return text


def _as_name(raw: Any) -> str:
    text = _as_text(raw)
    if not text:
        raise ValueError("empty")
    return text


def _as_state(raw: Any) -> str:
    state = _as_text(raw).upper().removeprefix("TRIALSTATE.") or "COMPLETE"
    if state not in STATES:
        raise ValueError("unknown")
    return state


def _as_float(raw: Any) -> float | None:
    if isinstance(raw, float | int) and not isinstance(raw, bool):
        return None if raw != raw else float(raw)
    text = _as_text(raw)
    if text.lower() in _EMPTY:
        return None
    if "_" in text or not text.isascii():
        # Python reads these, too; other programs do not.
        raise ValueError("not a number")
    return float(text)


def _as_number(raw: Any) -> float | int | None:
    """A whole number stays one, exactly."""
    text = str(raw).strip()
    return int(text) if text.isascii() and text.lstrip("+-").isdigit() else _as_float(raw)


def _as_whole(raw: Any) -> int | None:
    number = _as_number(raw)
    if number is None:
        return None
    if not math.isfinite(number) or number != int(number):
        raise ValueError("not a whole number")
    return int(number)


def safe_cell(value: Any) -> Any:
    """A text that a spreadsheet would run as a formula gets an apostrophe in front; numbers stay."""
    if not isinstance(value, str) or _NUMBER.fullmatch(value):
        return value
    return ("'" if _FORMULA.match(value) else "") + _UNSAFE_INSIDE.sub("'", value)


def plain_cell(text: str) -> str:
    """The text that `safe_cell` was given."""
    return _SAFE_INSIDE.sub("", text[1:] if text.startswith("'") and _FORMULA.match(text) else text)
