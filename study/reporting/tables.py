"""The report's other tables: quality and cost per depth, low-resource summaries, failures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from study import names
from study.analysis.analyse import Analysis
from study.analysis.costs import CurveCosts
from study.analysis.low_resource import Summary
from study.analysis.quality import Curve
from study.names import UNKNOWN
from study.reporting.document import Column, Row, Table, Value, silent

if TYPE_CHECKING:
    import pandas as pd

_PLACE = (
    Column("model", "model", number=False),
    Column("task", "task", names.task_name, number=False),
    Column("train_size", "train size", names.size_name),
    Column("metric", "metric", names.metric_name, number=False),
)


def _score(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.4f}"


def _ordered(curves: Sequence[Curve]) -> list[Curve]:
    return sorted(curves, key=lambda c: (c.model, names.task_order(c.task), c.metric, c.train_size or 0))


def _hidden(curves: Sequence[Curve]) -> frozenset[str]:
    """Columns that the groups' headings already say."""
    return frozenset(column.name for column in _PLACE) if curves else frozenset()


def _heading(model: str, task: str, metric: str, train_size: int | None) -> str:
    size = "" if train_size is None else f", {train_size:,} examples"
    return f"{model} · {names.task_name(task)}{size} · {names.metric_name(metric)}"


def quality_table(analysis: Analysis) -> Table:
    """Every depth: its score, spread, intervals, rate and runs."""
    columns = (
        *_PLACE,
        Column("frozen_layers", "frozen"),
        Column("tuned_layers", "tuned"),
        Column("score", "score", _score),
        Column("std", "std", _score),
        Column("relative", "of full", names.percent),
        Column("relative_low", "95 % low", names.percent),
        Column("relative_high", "95 % high", names.percent),
        Column("chance_corrected", "above chance", names.percent),
        Column("learning_rate", "rate", names.rate),
        Column("rate_edge", "rate edge", number=False),
        Column("runs", "runs"),
        Column("failed", "failed"),
        Column("diverged", "diverged"),
        Column("removed", "filtered"),
    )
    rows = [
        Row(
            (
                c.model,
                c.task,
                c.train_size,
                c.metric,
                d.frozen_layers,
                d.tuned_layers,
                d.score,
                d.std,
                d.relative,
                d.relative_low,
                d.relative_high,
                d.chance_corrected,
                d.learning_rate,
                d.rate_edge,
                len(d.scores),
                d.counts.failed,
                d.counts.diverged,
                d.counts.removed,
            ),
            group=_heading(c.model, c.task, c.metric, c.train_size),
        )
        for c in _ordered(analysis.curves)
        for d in c.depths
    ]
    return Table(
        name="quality",
        title="Quality at every depth",
        columns=columns,
        rows=tuple(rows),
        hidden=_hidden(analysis.curves)
        | silent(columns, rows, ("rate_edge", "failed", "diverged", "removed", "chance_corrected")),
        folded=len(rows) > 14,
        note="Above chance: (score - chance) / (full - chance), where chance is the majority class or 0.",
    )


def costs_table(costs: Sequence[CurveCosts]) -> Table | None:
    if not any(d.relative for c in costs for d in c.depths):
        return None
    columns = (
        *_PLACE,
        Column("frozen_layers", "frozen"),
        Column("trainable_parameters", "trained parameters", _count),
        Column("trainable_share", "share", names.percent),
        Column("seconds", "seconds", _seconds),
        Column("relative_seconds", "of full", names.percent),
        Column("peak_memory_bytes", "peak memory", _bytes),
        Column("relative_peak_memory_bytes", "of full", names.percent),
        Column("storage_bytes", "storage per task", _bytes),
        Column("relative_storage_bytes", "of full", names.percent),
        Column("pareto", "on the front of", number=False),
    )
    told = {"seconds": "time", "peak_memory_bytes": "memory", "trainable_share": "parameters"}
    rows = [
        Row(
            (
                c.model,
                c.task,
                c.train_size,
                c.metric,
                d.frozen_layers,
                d.trainable_parameters,
                d.trainable_share,
                d.seconds,
                d.relative.get("seconds"),
                d.peak_memory_bytes,
                d.relative.get("peak_memory_bytes"),
                d.storage_bytes,
                d.relative.get("storage_bytes"),
                ", ".join(word for name, word in told.items() if d.frozen_layers in c.pareto[name]) or None,  # type: ignore[index]
            ),
            group=f"{_heading(c.model, c.task, c.metric, c.train_size)} · parameters {c.parameters}",
        )
        for c in costs
        for d in c.depths
    ]
    return Table(
        name="costs",
        title="Cost of every depth",
        columns=columns,
        rows=tuple(rows),
        hidden=frozenset(column.name for column in _PLACE),
        folded=len(rows) > 14,
        note=(
            "Medians over complete runs. Seconds: training, and building the frozen layers' states where "
            "they are cached. Storage: what must be kept per task beside the shared frozen part, at 4 bytes "
            "a parameter."
        ),
    )


def low_resource_tables(rows: Sequence[Summary]) -> list[Table]:
    """The blog's appendix: one table per model and task, the best mean of each train size marked."""
    pairs = list(dict.fromkeys((r.model, r.task, r.metric) for r in rows))
    pairs.sort(key=lambda pair: (pair[0], names.task_order(pair[1])))
    return [_low_resource_table([r for r in rows if (r.model, r.task, r.metric) == pair]) for pair in pairs]


def _low_resource_table(rows: Sequence[Summary]) -> Table:
    columns = (
        *_PLACE,
        Column("frozen_layers", "frozen", names.depth_name, number=False),
        *(Column(name, name, _score) for name in ("mean", "median", "std", "min", "max")),
        Column("replicates", "runs"),
        Column("learning_rate", "rate", names.rate),
        Column("best", "best", number=False),
    )
    first = rows[0]
    metric = names.metric_name(first.metric)
    ordered = sorted(rows, key=lambda r: (r.train_size is None, r.train_size or 0))
    return Table(
        name=f"low_resource_{first.model}_{first.task}",
        title=f"{first.model} on {names.task_name(first.task)}: {metric} by train size",
        columns=columns,
        rows=tuple(
            Row(
                (
                    r.model,
                    r.task,
                    r.train_size,
                    r.metric,
                    r.frozen_layers,
                    r.mean,
                    r.median,
                    r.std,
                    r.min,
                    r.max,
                    r.replicates,
                    r.learning_rate,
                    r.best,
                ),
                group=f"{names.size_name(r.train_size)} examples",
                marked=frozenset({5}) if r.best else frozenset(),
            )
            for r in ordered
        ),
        hidden=frozenset((*(c.name for c in _PLACE), "best")),
        folded=len(rows) > 40,
        note=None if first.chance is None else f"Chance is {first.chance:.4f}. The best mean is marked.",
    )


def failures_table(table: pd.DataFrame, analysis: Analysis) -> Table:
    """What became of the trials of each model and task."""
    columns = (
        *_PLACE,
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
    for c in _ordered(analysis.curves):
        counts = asdict(c.counts)
        values: list[Value] = [c.model, c.task, c.train_size, c.metric]
        values += [counts[column.name] for column in columns[4:-1]]
        rows.append(Row((*values, _reasons(table, c))))
    kept = ("model", "task", "metric", "complete", "failed")
    troubled = [row for row in rows if any(row.values[5:-1])]
    return Table(
        name="failures",
        title="What became of the trials",
        columns=columns,
        rows=tuple(rows),
        hidden=silent(columns, rows, (column.name for column in columns if column.name not in kept)),
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
    ]["reason"].dropna()
    counted = own[own.astype(str) != ""].astype(str).str.slice(0, 120).value_counts()
    return "; ".join(f"{count}× {reason}" for reason, count in counted.head(5).items()) or None


def _count(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"


def _seconds(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def _bytes(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{value / 2**30:.2f} GiB" if value >= 2**30 else f"{value / 2**20:.1f} MiB"
