"""What would settle the answers of several tasks: more seeds and where, or which range to settle for."""

from __future__ import annotations

from study.analysis.analyse import Analysis
from study.analysis.planner import MOST_SEEDS, SETTLED, SettlePlan
from study.analysis.points import OperatingPoint
from study.reporting import names
from study.reporting.document import Column, Row, Table, Value, label
from study.reporting.series import Series
from study.reporting.sureness import SETTLE_IT, at_depths, settle_for
from study.reporting.tables import place

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
