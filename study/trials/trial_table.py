"""The trial table: one row per trial, failures included, from a CSV file or from a study's trials.

It gives the contract's columns their types and keeps every other column; it never judges a score.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from objectives import table_contract
from objectives.contract import TrialRecord
from objectives.table_contract import REQUIRED, safe_cell
from study.specs.study_spec import StudySpec

if TYPE_CHECKING:
    import pandas as pd

    from storage.reading import StoredTrial

ORIGIN = "loaded_from"
"""Where a row was found; not part of a table on disk."""
_NAMES = ("task", "model", "state", "metric")
_RECORD_COLUMNS = tuple(
    f.name
    for f in fields(TrialRecord)
    if f.name not in ("metric", "score", "metrics", "curve", "versions", "predictions")
)


def load(sources: Sequence[str], storage: str | None = None) -> pd.DataFrame:
    """The trials of every source, as `study.trials.sources.read` finds them."""
    from study.trials.sources import read

    return read(sources, storage).table


def read_csv(path: str | os.PathLike[str]) -> pd.DataFrame:
    """A trial table from a file; UsageError names a missing column or the line of a bad value."""
    import pandas as pd

    raw = table_contract.read(str(path))
    typed = table_contract.normalise(raw.columns, str(path), raw.lines)
    rest = {
        name: _typed(pd.Series(cells, dtype="str"))
        for name, cells in raw.columns.items()
        if name not in typed
    }
    return _ordered(pd.DataFrame(_series(typed) | rest), raw.columns, str(path))


def to_csv(table: pd.DataFrame) -> str:
    """The table's own columns; numbers as Python writes them, so that reading gives the same ones.

    Texts that a spreadsheet would run as a formula are made harmless; `read_csv` gives them back.
    """
    kept = table.drop(columns=[ORIGIN], errors="ignore")
    safe = {
        name: kept[name].map(safe_cell, na_action="ignore") for name in kept.columns if _is_text(kept[name])
    }
    return str(kept.assign(**safe).rename(columns=safe_cell).to_csv(index=False))


def normalise(raw: pd.DataFrame, *, source: str) -> pd.DataFrame:
    """Give the contract's columns their types: empty state is COMPLETE, empty train_size is all data."""
    texts = [name for name in raw.columns if _is_text(raw[name])]
    columns = {
        name: raw[name].astype(object).where(raw[name].notna(), None).tolist()
        for name in raw.columns
        if name in REQUIRED or (name in table_contract.MEASURED and name in texts)
    }
    table = raw.assign(**_series(table_contract.normalise(columns, source), raw.index))
    return _ordered(
        table.assign(**{name: _typed(table[name]) for name in texts if name not in columns}),
        raw.columns,
        source,
    )


def _series(columns: Mapping[str, list[Any]], index: Any = None) -> dict[str, pd.Series[Any]]:
    import pandas as pd

    kinds = {"train_size": "Int64", "score": "float64", **dict.fromkeys(_NAMES, "str")}
    return {name: pd.Series(values, index=index, dtype=kinds.get(name)) for name, values in columns.items()}


def _ordered(table: pd.DataFrame, names: Iterable[str], source: str) -> pd.DataFrame:
    """The contract's columns first, then the others as they came."""
    table[ORIGIN] = source
    others = [name for name in names if name not in REQUIRED and name != ORIGIN]
    return table[[*REQUIRED, *others, ORIGIN]]


def from_trials(name: str, spec: StudySpec, trials: Sequence[StoredTrial], *, source: str) -> pd.DataFrame:
    """Every trial of one study; what a trial did not measure is empty."""
    import pandas as pd

    rows = [_row(name, spec, trial) for trial in trials]
    columns = list(dict.fromkeys(column for row in rows for column in row)) or list(REQUIRED)
    return normalise(pd.DataFrame(rows, columns=columns), source=source)


def _row(name: str, spec: StudySpec, trial: StoredTrial) -> dict[str, Any]:
    record = trial.record
    row: dict[str, Any] = {
        "task": spec.task,
        "model": spec.model,
        "total_layers": spec.total_layers,
        "frozen_layers": trial.cell.frozen_layers,
        "learning_rate": trial.cell.learning_rate,
        "seed": trial.cell.seed,
        "train_size": trial.cell.train_size,
        "state": trial.state,
        "metric": spec.metric if record is None else record.metric,
        "score": None if record is None else record.score,
        "study": name,
        "trial": trial.number,
        "protocol": spec.protocol + ("-search" if trial.cell.seed in spec.search_seeds else ""),
        "attempt": trial.attempt,
        "worker": trial.worker,
        "reason": trial.reason,
        "started": trial.started,
        "ended": trial.ended,
        "demo": spec.demo,
        "recorded": spec.recorded,
        "quick": spec.quick,
    }
    if record is not None:
        row |= {column: getattr(record, column) for column in _RECORD_COLUMNS}
        row |= {metric: value for metric, value in record.metrics.items() if metric not in row}
    return row


def _is_text(column: pd.Series[Any]) -> bool:
    import pandas as pd

    return column.dtype == object or pd.api.types.is_string_dtype(column)


def _typed(column: pd.Series[Any]) -> pd.Series[Any]:
    """Text that is numbers throughout becomes numbers; anything else stays as it was written."""
    import pandas as pd

    filled = column.where(column.astype(str).str.strip() != "")
    if not filled.notna().any():
        return filled
    numbers = pd.to_numeric(filled, errors="coerce")
    return numbers if numbers.notna().sum() == filled.notna().sum() else filled
