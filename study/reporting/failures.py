"""The report's table of what became of the trials: failed, diverged, collapsed, unfinished, and why."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from study.analysis.analyse import Analysis
from study.analysis.quality import Curve
from study.reporting.document import Column, Row, Table, Value, silent
from study.reporting.series import Series
from study.reporting.tables import PLACE, in_order

if TYPE_CHECKING:
    import pandas as pd


def failures_table(table: pd.DataFrame, analysis: Analysis) -> Table:
    """A row per study, model and task."""
    series = Series(analysis.curves)
    columns = (
        replace(PLACE[0], show=series.study_name),
        *PLACE[1:],
        Column("complete", "complete"),
        Column("failed", "failed trials"),
        Column("failed_cells", "cells never completed"),
        Column("diverged", "diverged"),
        Column("collapsed", "collapsed to chance"),
        Column("unfinished", "not finished"),
        Column("removed", "filtered out"),
        Column("reasons", "reasons", number=False),
    )
    rows = []
    for c in in_order(analysis.curves, series):
        counts = asdict(c.counts)
        values: list[Value] = [getattr(c, column.name) for column in PLACE]
        values += [counts[column.name] for column in columns[len(PLACE) : -1]]
        rows.append(Row((*values, _reasons(table, c))))
    kept = {"model", "task", "metric", "complete", "failed"}
    troubled = [row for row in rows if any(row.values[len(PLACE) + 1 : -1])]
    hidden = silent(columns, rows, (column.name for column in columns if column.name not in kept))
    return Table(
        name="failures",
        title="What became of the trials",
        columns=columns,
        rows=tuple(rows),
        hidden=hidden if series.shown else hidden | {"study"},
        folded=not troubled or len(rows) > 14,
        note=(
            "Failed trials include those whose cell was completed by a retry. Runs that collapsed to chance "
            "count in the means. What never happened has no column; nothing is dropped without being counted."
        ),
    )


def _reasons(table: pd.DataFrame, curve: Curve) -> str | None:
    if "reason" not in table:
        return None
    size = table["train_size"]
    own = table[
        (table["model"] == curve.model)
        & (table["task"] == curve.task)
        & (size.isna() if curve.train_size is None else (size == curve.train_size).fillna(False))
        & (table["state"] == "FAIL")
        & (_named(table) == (curve.study or ""))
    ]["reason"].dropna()
    counted = own[own.astype(str) != ""].astype(str).str.slice(0, 120).value_counts()
    return "; ".join(f"{count}× {reason}" for reason, count in counted.head(5).items()) or None


def _named(table: pd.DataFrame) -> pd.Series[str]:
    import pandas as pd

    if "study" not in table:
        return pd.Series("", index=table.index)
    return table["study"].fillna("").astype(str)
