"""The report's tables beside the operating points: what would settle them, and their test scores."""

from __future__ import annotations

from collections.abc import Sequence

from study.analysis.analyse import Analysis
from study.analysis.planner import MOST_SEEDS, SETTLED, SettlePlan
from study.analysis.points import OperatingPoint
from study.analysis.tested_points import Tested
from study.reporting import names
from study.reporting.document import Column, Row, Table, Value, label
from study.reporting.series import Series
from study.reporting.sureness import SETTLE_IT, at_depths, settle_for
from study.reporting.tables import place, score

Item = tuple[OperatingPoint, SettlePlan]


def settle_table(analysis: Analysis) -> Table | None:
    """At the lowest threshold, as --settle does; None where one answer, which says it, or all are settled."""
    threshold = min(analysis.thresholds)
    points = [p for p in analysis.points if p.threshold == threshold]
    series = Series(analysis.curves)
    plans = [(p, plan) for p in series.ordered(points) if (plan := analysis.settle_plan(p)) is not None]
    if len(points) < 2 or not plans:
        return None
    return Table(
        name="settling",
        title=f"What would settle the answers at {names.percent_short(threshold)} of full quality",
        columns=(
            *place(series),
            Column("tuned_layers", "tuned"),
            Column("sureness", "probability", get=_sureness, show=names.probability),
            Column("seeds", "more seeds", get=_seeds, csv=False),
            Column("seeds", "seeds", shown=False),
            label("depths", "at", get=lambda item: at_depths(item[1])),
            label("settle_for", "worth it", get=_worth),
        ),
        rows=tuple(map(Row, plans)),
        note=f"Settled: one answer has a probability of {SETTLED:g}. The seeds, at these depths and at the "
        f"full model, {SETTLE_IT} if the depths are as good as they look now; "
        f"elsa launch --settle runs up to {MOST_SEEDS}. Tasks not listed are settled or have no answer.",
    )


def _sureness(item: Item) -> Value:
    """None of a stretch of depths of which only the first was measured: it is no answer yet."""
    point = item[0]
    return point.sureness if point.deepest_frozen_layers is None else None


def _seeds(item: Item) -> Value:
    seeds = item[1].seeds
    return "over 1,000" if seeds is None else f"{seeds:,}"


def _worth(item: Item) -> Value:
    point, plan = item
    return "yes" if plan.worthwhile else f"no: settle for {settle_for(plan, point)}"


def tested_table(points: Sequence[Tested], series: Series) -> Table | None:
    """None where nothing was scored on a test split."""
    if not points:
        return None
    alone = len({(p.study, p.model, p.task, p.train_size, p.metric) for p in points}) == 1
    hidden = {"model", "task", "metric"} if alone else set()
    first = points[0]
    whose = f": {series.name(first)} on {names.task_name(first.task)}, {names.metric_name(first.metric)}"
    return Table(
        name="test_split",
        title=f"The same points on the test split{whose if alone else ''}",
        columns=(
            Column("threshold", "at least", show=names.percent_short, key=True),
            *place(series, hidden=hidden),
            Column("frozen_layers", "frozen"),
            Column("score", "test score", show=score),
            Column("std", "std", show=score),
            Column("runs", "runs"),
            Column("full_score", "full model", show=score),
            Column("full_std", "std of full", show=score),
            Column("full_runs", "runs of full", shown=False),
            Column("relative", "keeps", show=names.percent),
        ),
        rows=tuple(Row(point) for point in points),
        note="Validation scores chose the depth and the rate; the test split was scored once per trial.",
    )
