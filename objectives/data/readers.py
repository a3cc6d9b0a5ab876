"""Data files and hub data sets as columns of plain values: CSV, TSV, JSON, JSON lines, Parquet.

It knows splits and columns, not what they mean. What cannot be read is refused with the file, the line and
the next step.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from objectives.errors import UsageError
from objectives.locations import HUB, is_hub
from objectives.settings import shortened

ALIASES = ("validation", "dev", "val", "valid", "eval")
"""What people call the split that models are compared on."""
_SPLITS = {"training": "train", "testing": "test"} | dict.fromkeys((*ALIASES, "development"), "validation")
"""What people call a split, and what it is called here."""
STANDARD = ("train", "validation", "test")
SPLIT_COLUMN = "split"
"""Of a single file: which split a row belongs to."""
_SHARD = re.compile(r"-\d{5}-of-\d{5}$")
csv.field_size_limit(2**31 - 1)


@dataclass(frozen=True)
class Table:
    """One split as it was found."""

    place: str
    """Of messages: the file, or the hub's name."""
    columns: Mapping[str, Sequence[Any]]
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Columns of numbers whose names the source knows."""

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def column(self, name: str) -> Sequence[Any]:
        if name not in self.columns:
            raise UsageError(
                f"{self.place}: no column {name} (it has {', '.join(map(str, self.columns)) or 'none'})"
            )
        return self.columns[name]

    def rows(self, chosen: Sequence[int]) -> Table:
        columns = {name: [values[row] for row in chosen] for name, values in self.columns.items()}
        return Table(self.place, columns, self.class_names)


Layout = Mapping[str, str | int]
"""Where a TSV file of its own layout keeps a column; empty for a TSV file with an ordinary header."""


def read(source: str, splits: Sequence[str] | None = None, layout: Layout | None = None) -> dict[str, Table]:
    """The splits of a source by name; all of train, validation and test that it has where none are named."""
    if is_hub(source):
        from objectives.data.hub import read_hub

        return read_hub(source, splits)
    path = Path(source)
    if path.is_file():
        return _from_file(path, splits, layout or {})
    if not path.is_dir():
        raise UsageError(f"--data {source}: no such folder or file")
    return _from_folder(path, splits, layout or {})


def canonical(name: str) -> str:
    """`dev`, `val` and their like are the validation split, `training` and `testing` are train and test."""
    head, *rest = name.lower().split("_")
    return "_".join([_SPLITS.get(head, head), *rest])


def _from_folder(folder: Path, splits: Sequence[str] | None, layout: Layout) -> dict[str, Table]:
    if splits is None:
        wanted = [name for name in ("train", "validation", "test") if _candidates(folder, name)]
        if "train" not in wanted:
            files = sorted(path for path in folder.iterdir() if path.suffix.lower() in READERS)
            if len(files) == 1 and not wanted:
                return _from_file(files[0], None, layout)
            raise _no_file(folder, "train")
        splits = wanted
    return {name: _read_all(_find(folder, name), layout) for name in splits}


def _find(folder: Path, split: str) -> list[Path]:
    found = _candidates(folder, split)
    if not found:
        raise _no_file(folder, split)
    shards = [path for path in found if _SHARD.search(path.stem)]
    if len(found) > 1 and len(shards) < len(found):
        files = " and ".join(path.name for path in found)
        raise UsageError(f"--data {folder}: which is the {split} data, {files}? Leave one of them there")
    return found


def _candidates(folder: Path, split: str) -> list[Path]:
    """Files of a split, by any of its names; several where it is in numbered parts."""
    names = _spellings(split)
    return sorted(
        path
        for place in (folder, folder / "data")
        if place.is_dir()
        for path in place.iterdir()
        if path.suffix.lower() in READERS and _SHARD.sub("", path.stem) in names and path.is_file()
    )


def _spellings(split: str) -> list[str]:
    return list(dict.fromkeys(split.replace("validation", alias) for alias in ALIASES))


def _no_file(folder: Path, split: str) -> UsageError:
    named = " or ".join(_spellings(split)[:2])
    return UsageError(f"--data {folder}: no {named} file (one of {', '.join(READERS)})")


def _read_all(paths: Sequence[Path], layout: Layout) -> Table:
    tables = [_read_file(path, layout) for path in paths]
    if len(tables) == 1:
        return tables[0]
    names = list(tables[0].columns)
    columns = {name: [value for table in tables for value in table.column(name)] for name in names}
    return Table(tables[0].place, columns, tables[0].class_names)


def _from_file(path: Path, splits: Sequence[str] | None, layout: Layout) -> dict[str, Table]:
    """All of it is train, or its own column says what is what."""
    table = _read_file(path, layout)
    parts = _parts(path, table, splits)
    found = {name: table.rows(rows) for name, rows in parts.items()} if parts else {"train": table}
    for name in splits or ():
        if canonical(name) not in found:
            raise UsageError(
                f"--data {path}: no {name} data; a column {SPLIT_COLUMN} of one file may say train, "
                "validation or test"
            )
    return {name: found[canonical(name)] for name in splits} if splits else found


def _parts(path: Path, table: Table, splits: Sequence[str] | None) -> dict[str, list[int]]:
    """The rows of each split by the column of that name; none where its values are no splits at all."""
    parts: dict[str, list[int]] = {}
    for row, name in enumerate(table.columns.get(SPLIT_COLUMN, ())):
        parts.setdefault(canonical("" if name is None else str(name).strip()), []).append(row)
    known = {*STANDARD, *map(canonical, splits or ())}
    if not known.intersection(parts):
        return {}
    if "train" not in parts or (known == set(STANDARD) and not known.issuperset(parts)):
        counts = ", ".join(f"{name or 'nothing'} ({len(rows):,})" for name, rows in list(parts.items())[:12])
        raise UsageError(
            f"{path}: column {SPLIT_COLUMN} says {counts}: use train, validation or test in every row, train "
            "among them, or rename the column"
        )
    return parts


def _read_file(path: Path, layout: Layout) -> Table:
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise UsageError(f"--data {path}: unknown kind of file; use one of {', '.join(READERS)}")
    try:
        if path.stat().st_size == 0:
            raise UsageError(f"{path} is empty")
        columns = reader(path, layout)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is not UTF-8 (byte {error.object[error.start]:#04x} at {error.start:,}): convert it, "
            f"for example with iconv -f latin1 -t utf-8"
        ) from None
    if not columns or not len(next(iter(columns.values()))):
        raise UsageError(f"{path} has no examples")
    return Table(str(path), columns)


def _text(path: Path) -> str:
    text = path.read_bytes().decode("utf-8-sig")
    if "\0" in text:
        raise UsageError(f"{path}: line {text.count(chr(10), 0, text.index(chr(0))) + 1} has a NUL character")
    return text


def _read_csv(path: Path, _: Layout) -> dict[str, list[Any]]:
    text = _text(path)
    first = text.partition("\n")[0]
    # Spreadsheets of some countries write semicolons.
    delimiter = "\t" if path.suffix.lower() == ".tsv" else next((m for m in ",;\t" if m in first), ",")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        header = next(reader, [])
        return _columns(path, header, ((reader.line_num, row) for row in reader if row))
    except csv.Error as error:
        kind = path.suffix.lstrip(".").upper()
        raise UsageError(f"{path}: line {reader.line_num} cannot be read as {kind}: {error}") from None


def _read_tsv(path: Path, layout: Layout) -> dict[str, list[Any]]:
    """With a layout without quoting, as GLUE's own files are; with positions for columns there is no header.

    Without one a CSV file with tabs, quoted as spreadsheets and pandas do.
    """
    if not layout:
        return _read_csv(path, layout)
    lines = enumerate(io.StringIO(_text(path), newline=None), 1)
    rows = [(number, line.rstrip("\n").split("\t")) for number, line in lines if line.strip()]
    if not rows:
        return {}
    if any(isinstance(place, int) for place in layout.values()):
        places = {name: int(place) for name, place in layout.items()}
        short = next((number for number, row in rows if len(row) <= max(places.values())), None)
        if short is not None:
            raise UsageError(f"{path}: line {short} has too few columns")
        return {name: [row[at] for _, row in rows] for name, at in places.items()}
    found = _columns(path, rows[0][1], rows[1:], ragged=True)
    missing = [str(place) for place in layout.values() if place not in found]
    if missing:
        raise UsageError(f"{path}: no column {', '.join(missing)} (it has {', '.join(found)})")
    return found | {name: found[str(place)] for name, place in layout.items()}


def _columns(
    path: Path, header: Sequence[str], rows: Iterable[tuple[int, Sequence[str]]], *, ragged: bool = False
) -> dict[str, list[Any]]:
    """Where rows may be `ragged`, cells beyond the header are left out, and missing ones are None."""
    names = [name.strip() for name in header]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"{path} has two columns named {shortened(twice)}")
    columns: list[list[str | None]] = [[] for _ in names]
    for number, row in rows:
        if len(row) != len(names) and not ragged:
            raise UsageError(f"{path}: line {number} has {len(row)} columns, the header {len(names)}")
        for at, column in enumerate(columns):
            column.append(row[at] if at < len(row) else None)
    return dict(zip(names, columns, strict=True))


def _read_json_lines(path: Path, _: Layout) -> dict[str, list[Any]]:
    rows = []
    for number, line in enumerate(_text(path).split("\n"), 1):
        if line.strip():
            rows.append((number, _parsed(path, line, f"line {number}")))
    return _records(path, rows)


def _read_json(path: Path, layout: Layout) -> dict[str, list[Any]]:
    """A list of examples, or JSON lines under another name."""
    text = _text(path)
    if not text.lstrip().startswith("["):
        return _read_json_lines(path, layout)
    return _records(path, list(enumerate(_parsed(path, text, "it"), 1)))


def _parsed(path: Path, text: str, where: str) -> Any:
    try:
        found = json.loads(text)
        if "\\ud" in text.lower():
            # Half of a pair is no character: no file and no tokeniser takes it.
            json.dumps(found, ensure_ascii=False).encode()
        return found
    except UnicodeEncodeError as error:
        half = ascii(error.object[error.start])
        raise UsageError(f"{path}: {where} has {half}, half of a surrogate pair: remove it") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: {where} cannot be read as JSON: {error}") from None


def _records(path: Path, rows: Sequence[tuple[int, Any]]) -> dict[str, list[Any]]:
    bad = next((number for number, row in rows if not isinstance(row, dict)), None)
    if bad is not None:
        raise UsageError(f'{path}: example {bad} is no object such as {{"text": …, "label": …}}')
    names = dict.fromkeys(name for _, row in rows for name in row)
    return {name: [row.get(name) for _, row in rows] for name in names}


def _read_parquet(path: Path, _: Layout) -> dict[str, list[Any]]:
    import pyarrow
    from pyarrow import parquet

    try:
        return {str(name): list(values) for name, values in parquet.read_table(path).to_pydict().items()}
    except pyarrow.ArrowException as error:
        raise UsageError(f"{path}: cannot be read as Parquet: {error}") from None


READERS: dict[str, Callable[[Path, Layout], dict[str, list[Any]]]] = {
    ".jsonl": _read_json_lines,
    ".json": _read_json,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".tsv": _read_tsv,
}


def hub_parts(source: str) -> list[str]:
    """Of `hub:OWNER/NAME/CONFIG`."""
    parts = source.removeprefix(HUB).strip("/").split("/")
    if not all(parts) or len(parts) > 3:
        raise UsageError(f"--data {source}: use hub:OWNER/NAME, hub:OWNER/NAME/CONFIG or hub:NAME/CONFIG")
    return parts
