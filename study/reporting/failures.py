"""The report's table of trials by state: complete, failed, diverged, collapsed, unfinished, and why."""

from __future__ import annotations

from collections import Counter, defaultdict
from operator import attrgetter

import pandas as pd

from study.analysis.analyse import Analysis
from study.reporting.document import Column, Row, Table, label
from study.reporting.series import Series
from study.reporting.tables import LONG, place


def failures_table(table: pd.DataFrame | None, analysis: Analysis) -> Table:
    """A row per study, model and task."""
    series, reasons = Series(analysis.curves), _reasons(table)
    seldom = (
        _count("failed_cells", "cells never completed"),
        _count("diverged", "diverged"),
        _count(
            "collapsed",
            "collapsed",
            note="Collapsed: runs that learned nothing beside others that did; they are not in the means.",
        ),
        _count("unfinished", "not finished"),
        _count("removed", "filtered out"),
    )
    failed = _count("failed", "failed trials", seldom=False, note=_FAILED)
    columns = (
        *place(series),
        _count("complete", "complete", seldom=False),
        failed,
        *seldom,
        label(
            "reasons", get=lambda c: reasons.get((c.study or "", c.model, c.task, c.train_size)), seldom=True
        ),
    )
    rows = tuple(Row(curve) for curve in series.ordered(analysis.curves))
    troubled = any(column.value(row.item) for column in (failed, *seldom) for row in rows)
    return Table(
        name="failures",
        title="Trials by state",
        columns=columns,
        rows=rows,
        folded=not troubled or len(rows) > LONG,
        note="States that no trial is in have no column.",
    )


_FAILED = "Failed trials include those whose cell was completed by a retry."


def _count(name: str, title: str, *, seldom: bool = True, note: str = "") -> Column:
    return Column(name, title, get=attrgetter(f"counts.{name}"), seldom=seldom, note=note)


def _reasons(table: pd.DataFrame | None) -> dict[tuple[str, str, str, int | None], str]:
    """The commonest reasons of failed trials, by study, model, task and train size."""
    if table is None or "reason" not in table:
        return {}
    failed = table[(table["state"] == "FAIL") & table["reason"].notna()]
    studies = failed["study"].fillna("").astype(str) if "study" in failed else [""] * len(failed)
    sizes = [None if size is pd.NA else int(size) for size in failed["train_size"]]
    counted: defaultdict[tuple[str, str, str, int | None], Counter[str]] = defaultdict(Counter)
    for *where, reason in zip(studies, failed["model"], failed["task"], sizes, failed["reason"], strict=True):
        if reason != "":
            counted[tuple(where)][str(reason)[:120]] += 1
    return {
        where: "; ".join(f"{count}× {reason}" for reason, count in found.most_common(5))
        for where, found in counted.items()
    }
