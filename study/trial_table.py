"""The trial table: one row per trial, failures included, from CSV files and studies in a database.

It reads and normalises the contract's columns and keeps every other column; it never judges a score.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from objectives.contract import StorageError, TrialRecord, UsageError
from study import percent
from study.command import DEFAULT_STORAGE, note
from study.spec import StudySpec

if TYPE_CHECKING:
    import pandas as pd

    from storage.database import Database, StoredStudy

REQUIRED = (
    "task",
    "model",
    "total_layers",
    "frozen_layers",
    "learning_rate",
    "seed",
    "train_size",
    "state",
    "metric",
    "score",
)
OPTIONAL_IN_FILES = ("train_size", "state")
"""Columns whose empty cells have a meaning; a file may leave the whole column out."""
ORIGIN = "loaded_from"
"""Where `load` found a row; not part of a table on disk."""
STATES = ("COMPLETE", "FAIL", "RUNNING", "WAITING", "PRUNED")
_RECORD_COLUMNS = tuple(
    f.name for f in fields(TrialRecord) if f.name not in ("metric", "score", "metrics", "curve", "versions")
)
_EXACT = ("total_layers", "frozen_layers", "seed", "train_size")


def load(sources: Sequence[str], storage: str | None = None) -> pd.DataFrame:
    """The trials of every source: a CSV file, a storage URL (all its studies), or a study's name.

    No source at all means every study in the storage. Column ORIGIN says where a row came from.
    `attrs["skipped"]` names studies of other software that share a storage named as a whole.
    """
    import pandas as pd

    frames: list[pd.DataFrame] = []
    names: list[str] = []
    for source in sources:
        if "://" in source:
            frames += _every_study(source)
        elif _is_sqlite(source):
            frames += _every_study(f"sqlite:///{source}")
        elif Path(source).is_file():
            frames.append(read_csv(source))
            if doubt := percent.warning(frames[-1]):
                note(f"{source}: {doubt}")
        elif source.lower().endswith((".csv", ".csv.gz", ".db")):
            raise UsageError(f"no such file: {source}")
        else:
            names.append(source)
    if names or not sources:
        frames += _named_studies(names, storage)
    skipped = [name for frame in frames for name in frame.attrs.get("skipped", ())]
    filled = [frame for frame in frames if len(frame)]
    if not filled:
        from storage.address import shown

        raise UsageError(
            f"no trials yet in {', '.join(map(shown, sources)) or shown(str(default_storage(storage)))}"
        )
    table = pd.concat(filled, ignore_index=True) if len(filled) > 1 else filled[0]
    table.attrs["skipped"] = skipped
    return table


def read_csv(path: str | os.PathLike[str]) -> pd.DataFrame:
    """A trial table from a file; UsageError names a missing column or the line of a bad value."""
    import pandas as pd

    try:
        raw = pd.read_csv(path, dtype=str, keep_default_na=False, skipinitialspace=True)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError, OSError) as error:
        raise UsageError(f"cannot read {path} as a CSV table: {error}") from error
    raw.columns = [str(name).strip().lstrip("\ufeff") for name in raw.columns]
    missing = [name for name in REQUIRED if name not in raw.columns and name not in OPTIONAL_IN_FILES]
    if missing:
        raise UsageError(
            f"{path} has no column {', '.join(missing)}: a trial table needs {', '.join(REQUIRED)}"
        )
    for name in OPTIONAL_IN_FILES:
        if name not in raw.columns:
            raw[name] = ""
    if raw.empty:
        raise UsageError(f"{path} holds no trials")
    return normalise(raw, source=str(path))


def normalise(raw: pd.DataFrame, *, source: str) -> pd.DataFrame:
    """Give the contract's columns their types: empty state is COMPLETE, empty train_size is all data."""
    import numpy as np
    import pandas as pd

    table = raw.copy()
    for name in ("task", "model", "metric", "state"):
        table[name] = table[name].fillna("").astype(str).str.strip()
    table["state"] = table["state"].str.upper().str.replace("TRIALSTATE.", "").replace("", "COMPLETE")
    _refuse(table, ~table["state"].isin(STATES), "state", source, f"use one of {', '.join(STATES)}")
    for name in ("task", "model"):
        _refuse(table, table[name] == "", name, source, "it may not be empty")
    nameless = (table["metric"] == "") & (table["state"] == "COMPLETE")
    _refuse(table, nameless, "metric", source, "a complete trial names its metric")
    for name in (*_EXACT, "learning_rate", "score"):
        table[name] = _numbers(table, name, source)
    for name in _EXACT:
        filled = table[name].notna()
        if name != "train_size":
            _refuse(table, ~filled, name, source, "it may not be empty")
        _refuse(table, filled & (table[name] % 1 != 0), name, source, "use a whole number")
        table[name] = table[name].astype("Int64" if name == "train_size" else np.int64)
    _refuse(table, table["learning_rate"].isna(), "learning_rate", source, "it may not be empty")
    outside = (table["frozen_layers"] < -1) | (table["frozen_layers"] > table["total_layers"])
    _refuse(table, outside, "frozen_layers", source, "use -1 to total_layers")
    for name in table.columns.difference(REQUIRED):
        if table[name].dtype == object or pd.api.types.is_string_dtype(table[name]):
            table[name] = _typed(table[name])
    table[ORIGIN] = source
    extra = [name for name in table.columns if name not in REQUIRED]
    return table[[*REQUIRED, *extra]]


def from_stored(study: StoredStudy) -> pd.DataFrame:
    """Every trial of one study in the database; what a trial did not measure is empty."""
    import pandas as pd

    attributes = study.attributes()
    if "spec" not in attributes:
        raise StorageError(
            f"study {study.name!r} in {study.database.display_url} was not made by this software: "
            "it has no spec to read its trials by"
        )
    spec = StudySpec.from_json(attributes["spec"])
    rows = [_row(study.name, spec, trial) for trial in study.trials()]
    columns = list(dict.fromkeys(name for row in rows for name in row)) or list(REQUIRED)
    return normalise(pd.DataFrame(rows, columns=columns), source=study.database.display_url)


def default_storage(storage: str | None) -> str | None:
    """The storage a study's name is looked up in: the flag, ELSA_STORAGE, or elsa.db where it exists."""
    named = storage or os.environ.get("ELSA_STORAGE")
    if named:
        return named
    return DEFAULT_STORAGE if Path(DEFAULT_STORAGE.removeprefix("sqlite:///")).exists() else None


def _row(name: str, spec: StudySpec, trial: Any) -> dict[str, Any]:
    record = trial.record
    row: dict[str, Any] = {
        "task": spec.task,
        "model": spec.model,
        "total_layers": spec.total_layers,
        "frozen_layers": trial.cell.frozen_layers,
        "learning_rate": trial.cell.learning_rate,
        "seed": trial.cell.seed,
        "train_size": trial.cell.train_size,
        "state": getattr(trial.state, "name", trial.state),
        "metric": spec.metric if record is None else record.metric,
        "score": None if record is None else record.score,
        "study": name,
        "trial": trial.number,
        "protocol": spec.protocol,
        "attempt": trial.attempt,
        "worker": trial.worker,
        "reason": trial.reason,
        "started": trial.started,
        "ended": trial.ended,
        "demo": spec.demo,
        "recorded": spec.recorded,
    }
    if record is not None:
        row |= {column: getattr(record, column) for column in _RECORD_COLUMNS}
        row |= {metric: value for metric, value in record.metrics.items() if metric not in row}
    return row


def _every_study(url: str) -> list[pd.DataFrame]:
    import pandas as pd

    database = _open(url)
    try:
        studies = [database.study(name) for name in database.study_names()]
        ours = [study for study in studies if "spec" in study.attributes()]
        if not ours:
            raise StorageError(f"{database.display_url} holds no study of ours: start one with study.launch")
        frames = [from_stored(study) for study in ours]
        skipped = pd.DataFrame()
        skipped.attrs["skipped"] = [study.name for study in studies if study not in ours]
        return [*frames, skipped]
    finally:
        database.close()


def _named_studies(names: Sequence[str], storage: str | None) -> list[pd.DataFrame]:
    url = default_storage(storage)
    if url is None:
        wanted = f"{names[0]!r} is neither a file nor a storage URL" if names else "nothing to analyse"
        raise UsageError(f"{wanted}: name a trial table (CSV), or a study with --storage URL or ELSA_STORAGE")
    if not names:
        return _every_study(url)
    database = _open(url)
    try:
        return [from_stored(database.study(name)) for name in names]
    finally:
        database.close()


def _open(url: str) -> Database:
    from storage.database import Database

    return Database.open(url)


def _is_sqlite(source: str) -> bool:
    path = Path(source)
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(15) == b"SQLite format 3"


def _numbers(table: pd.DataFrame, name: str, source: str) -> pd.Series[float]:
    import pandas as pd

    column = table[name]
    if pd.api.types.is_numeric_dtype(column):
        return column.astype(float)
    text = column.fillna("").astype(str).str.strip()
    empty = text.str.lower().isin(("", "nan", "na", "none", "null", "<na>"))
    numbers = pd.to_numeric(text.where(~empty), errors="coerce")
    _refuse(table, ~empty & numbers.isna(), name, source, "use a number")
    return numbers.astype(float)


def _typed(column: pd.Series[Any]) -> pd.Series[Any]:
    """Text that is numbers throughout becomes numbers; anything else stays as it was written."""
    import pandas as pd

    filled = column.where(column.astype(str).str.strip() != "")
    if not filled.notna().any():
        return filled
    numbers = pd.to_numeric(filled, errors="coerce")
    return numbers if numbers.notna().sum() == filled.notna().sum() else filled


def _refuse(table: pd.DataFrame, bad: pd.Series[bool], name: str, source: str, advice: str) -> None:
    if bad.any():
        line = int(bad.to_numpy().argmax()) + 2
        raise UsageError(f"{source}, line {line}: {name} is {str(table[name].iloc[line - 2])!r}: {advice}")
