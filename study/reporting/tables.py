"""The report's tables of every depth (quality, cost, by train size), and of trials by state."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from objectives.depths import depth_name
from study.analysis.analyse import Analysis
from study.analysis.costs import CostName, CurveCosts, DepthCost
from study.analysis.quality import Curve, DepthScore
from study.analysis.train_sizes import Summary
from study.cli.wording import size_text
from study.reporting import names, quality_words
from study.reporting.document import Column, Row, Table, Value, label
from study.reporting.names import UNKNOWN
from study.reporting.series import Series

if TYPE_CHECKING:
    import pandas as pd

LONG = 14
"""Rows of a table of depths that is closed at first."""


PLACE = frozenset({"study", "model", "task", "train_size", "metric"})


def place(series: Series, hidden: Collection[str] = ()) -> list[Column]:
    """Which study, model, task, train size and metric a row is of; `hidden` where a heading says it."""
    columns = (
        label("study", show=series.study_name, key=True, shown=series.shown),
        label("model", key=True),
        label("task", show=names.task_name, key=True),
        Column("train_size", "train size", show=names.size_name, key=True, seldom=True),
        label("metric", show=names.metric_name, key=series.metrics_differ),
    )
    return [replace(column, shown=False) if column.name in hidden else column for column in columns]


def score(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.4f}"


def _heading(part: Curve | CurveCosts, series: Series) -> str:
    size = "" if part.train_size is None else f", {part.train_size:,} examples"
    return f"{series.name(part)} · {names.task_name(part.task)}{size} · {names.metric_name(part.metric)}"


def _of_depth(get: Callable[[DepthScore], Value]) -> Callable[[tuple[DepthScore, Curve]], Value]:
    return lambda item: get(item[0])


def quality_table(analysis: Analysis) -> Table:
    """Every depth: its score, spread, intervals, rate and runs."""
    series = Series(analysis.curves)
    # A share just below a threshold must not look as if it reached it.
    share = partial(names.percent, beside=analysis.thresholds)
    columns = (
        *place(series, hidden=PLACE),
        Column("frozen_layers", "frozen", key=True),
        Column("tuned_layers", "tuned"),
        Column("score", "score", show=score),
        Column("std", "std", show=score),
        Column("relative", "of full", show=share),
        Column("relative_low", "95 % low", show=share),
        Column("relative_high", "95 % high", show=share),
        Column(
            "chance_corrected",
            "above chance",
            show=names.percent,
            seldom=True,
            note=quality_words.above_chance(c.metric for c in analysis.curves),
        ),
        Column("learning_rate", "rate", show=names.rate),
        label("rate_edge", "rate edge", seldom=True),
        Column("runs", "runs", get=_of_depth(lambda d: len(d.scores))),
        Column(
            "collapsed",
            "collapsed",
            get=_of_depth(lambda d: d.counts.collapsed),
            seldom=True,
            note=_COLLAPSED,
        ),
        Column(
            "success",
            "learned",
            get=_of_depth(lambda d: d.success),
            show=lambda share: names.percent(share, 0),
            shown=any(d.success is not None and d.success < 1 for c in analysis.curves for d in c.depths),
            note="Learned: the share of the runs at the chosen rate that did; the score is theirs.",
        ),
        Column("failed", "failed", get=_of_depth(lambda d: d.counts.failed), seldom=True),
        Column("diverged", "diverged", get=_of_depth(lambda d: d.counts.diverged), seldom=True),
        Column("removed", "filtered", get=_of_depth(lambda d: d.counts.removed), seldom=True),
    )
    rows = tuple(
        Row((depth, curve), group=_heading(curve, series))
        for curve in series.ordered(analysis.curves)
        for depth in curve.depths
    )
    return Table(
        name="quality",
        title="Quality at every depth",
        columns=columns,
        rows=rows,
        folded=len(rows) > LONG,
    )


_COLLAPSED = (
    "Collapsed: runs of the depth, at any rate, that learned nothing beside others that did; they are not in "
    "the score."
)


def costs_table(costs: Sequence[CurveCosts], series: Series) -> Table | None:
    if not any(d.relative for c in costs for d in c.depths):
        return None
    columns = (
        *place(series, hidden=PLACE),
        Column("frozen_layers", "frozen", key=True),
        Column("trainable_parameters", "trained parameters", show=_count),
        Column("trainable_share", "share", show=names.percent),
        Column("seconds", "seconds", show=_seconds, note=_SECONDS),
        _of_full("seconds"),
        Column("peak_memory_bytes", "peak memory", show=_bytes),
        _of_full("peak_memory_bytes"),
        Column("storage_bytes", "storage per task", show=_bytes, note=_STORAGE),
        _of_full("storage_bytes"),
        label("pareto", "on the front of", get=_fronts),
    )
    rows = tuple(
        Row((depth, curve), group=f"{_heading(curve, series)} · parameters {curve.parameters}")
        for curve in costs
        for depth in curve.depths
    )
    return Table(
        name="costs",
        title="Cost of every depth",
        columns=columns,
        rows=rows,
        folded=len(rows) > LONG,
        note="Medians over complete runs.",
    )


_SECONDS = "Seconds: training, and building the frozen layers' states where they are cached."
_STORAGE = "Storage: what must be kept per task beside the shared frozen part, at 4 bytes a parameter."


def _of_full(name: CostName) -> Column:
    def share(item: tuple[DepthCost, CurveCosts]) -> Value:
        return item[0].relative.get(name)

    return Column(f"relative_{name}", "of full", get=share, show=names.percent)


def _fronts(item: tuple[DepthCost, CurveCosts]) -> Value:
    depth, curve = item
    told: dict[CostName, str] = {
        "seconds": "time",
        "peak_memory_bytes": "memory",
        "trainable_share": "parameters",
    }
    return ", ".join(word for name, word in told.items() if depth.frozen_layers in curve.pareto[name]) or None


def _count(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"


def _seconds(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def _bytes(value: float | None) -> str:
    return UNKNOWN if value is None else size_text(value)


def low_resource_tables(rows: Sequence[Summary], series: Series) -> list[Table]:
    """One per model, task and metric, the best mean of each train size marked."""
    return [_size_table(own, name, series) for name, own in series.by_metric(rows)]


def _size_table(rows: Sequence[Summary], name: str, series: Series) -> Table:
    first, whose = rows[0], series.name(rows[0])
    return Table(
        name=f"low_resource_{name}",
        title=f"{whose} on {names.task_name(first.task)}: {names.metric_name(first.metric)} by train size",
        columns=(
            *place(series, hidden=PLACE),
            label("frozen_layers", "frozen", show=depth_name, key=True),
            *(Column(name, name, show=score) for name in ("mean", "median", "std", "min", "max")),
            Column("replicates", "runs"),
            Column("learning_rate", "rate", show=names.rate),
            label("best", shown=False),
        ),
        rows=tuple(
            Row(
                r,
                group=f"{names.size_name(r.train_size)} examples",
                marked=frozenset({"mean"} if r.best else ()),
            )
            for r in rows
        ),
        folded=len(rows) > 40,
        note="The best mean is marked." + ("" if first.chance is None else f" Chance is {first.chance:.4f}."),
    )


def failures_table(table: pd.DataFrame | None, analysis: Analysis) -> Table:
    """A row per study, model and task."""
    series, reasons = Series(analysis.curves), _reasons(table)
    seldom = (
        _counted("failed_cells", "cells never completed"),
        _counted("diverged", "diverged"),
        _counted(
            "collapsed",
            "collapsed",
            note="Collapsed: runs that learned nothing beside others that did; they are not in the means.",
        ),
        _counted("unfinished", "not finished"),
        _counted("removed", "filtered out"),
    )
    failed = _counted("failed", "failed trials", seldom=False, note=_FAILED)
    columns = (
        *place(series),
        _counted("complete", "complete", seldom=False),
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


def _counted(name: str, title: str, *, seldom: bool = True, note: str = "") -> Column:
    return Column(name, title, get=attrgetter(f"counts.{name}"), seldom=seldom, note=note)


def _reasons(table: pd.DataFrame | None) -> dict[tuple[str, str, str, int | None], str]:
    """The commonest reasons of failed trials, by study, model, task and train size."""
    import pandas as pd

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
