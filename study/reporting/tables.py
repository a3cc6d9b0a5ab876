"""The report's tables of every depth: its quality and its cost."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from study import names
from study.analysis.analyse import Analysis
from study.analysis.costs import CurveCosts
from study.analysis.quality import Curve
from study.names import UNKNOWN
from study.reporting.document import Column, Row, Table, silent
from study.reporting.series import Series

PLACE = (
    Column("study", "study", number=False),
    Column("model", "model", number=False),
    Column("task", "task", names.task_name, number=False),
    Column("train_size", "train size", names.size_name),
    Column("metric", "metric", names.metric_name, number=False),
)


def score(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.4f}"


def in_order(curves: Sequence[Curve], series: Series) -> list[Curve]:
    return sorted(
        curves, key=lambda c: (series.rank(c), names.task_order(c.task), c.metric, c.train_size or 0)
    )


def _heading(part: Curve | CurveCosts, series: Series) -> str:
    size = "" if part.train_size is None else f", {part.train_size:,} examples"
    return f"{series.name(part)} · {names.task_name(part.task)}{size} · {names.metric_name(part.metric)}"


def quality_table(analysis: Analysis) -> Table:
    """Every depth: its score, spread, intervals, rate and runs."""
    series = Series(analysis.curves)
    # A share just below a threshold must not look as if it reached it.
    share = partial(names.percent, beside=analysis.thresholds)
    columns = (
        *PLACE,
        Column("frozen_layers", "frozen"),
        Column("tuned_layers", "tuned"),
        Column("score", "score", score),
        Column("std", "std", score),
        Column("relative", "of full", share),
        Column("relative_low", "95 % low", share),
        Column("relative_high", "95 % high", share),
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
                c.study,
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
            group=_heading(c, series),
        )
        for c in in_order(analysis.curves, series)
        for d in c.depths
    ]
    return Table(
        name="quality",
        title="Quality at every depth",
        columns=columns,
        rows=tuple(rows),
        hidden=frozenset(column.name for column in PLACE)
        | silent(columns, rows, ("rate_edge", "failed", "diverged", "removed", "chance_corrected")),
        folded=len(rows) > 14,
        note="Above chance: (score - chance) / (full - chance), where chance is the majority class or 0.",
    )


def costs_table(costs: Sequence[CurveCosts], series: Series) -> Table | None:
    if not any(d.relative for c in costs for d in c.depths):
        return None
    columns = (
        *PLACE,
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
                c.study,
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
            group=f"{_heading(c, series)} · parameters {c.parameters}",
        )
        for c in costs
        for d in c.depths
    ]
    return Table(
        name="costs",
        title="Cost of every depth",
        columns=columns,
        rows=tuple(rows),
        hidden=frozenset(column.name for column in PLACE),
        folded=len(rows) > 14,
        note=(
            "Medians over complete runs. Seconds: training, and building the frozen layers' states where "
            "they are cached. Storage: what must be kept per task beside the shared frozen part, at 4 bytes "
            "a parameter."
        ),
    )


def _count(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"


def _seconds(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def _bytes(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    if value >= 2**30:
        return f"{value / 2**30:.2f} GiB"
    return f"{value / 2**20:.1f} MiB" if value >= 2**20 / 10 else f"{value / 2**10:.1f} KiB"
