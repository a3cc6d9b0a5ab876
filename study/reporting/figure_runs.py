"""Single runs: every run a dot by train size and depth, and learning curves by depth."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from objectives.depths import depth_name, freeze_order
from objectives.tasks.metrics import describe
from study.analysis.quality import Curve
from study.reporting import marks, names, theme
from study.reporting.document import Chart, Figure, Key, Panel
from study.reporting.series import Series, curve_key
from study.trials.provenance import LearningCurve

MOST_OPEN = 9
RUN, BEST = f"{theme.TOKEN}s0", f"{theme.TOKEN}s1"
SPREAD = 0.22
"""How far from its depth's line a dot may stand, so that equal scores remain visible."""


def low_resource(curves: Sequence[Curve], series: Series) -> list[Chart]:
    """One chart per model and task, one panel per train size; `curves` as from `low_resource.sized`."""
    return [_low_resource_chart(own, name, series) for name, own in series.by_metric(curves)]


def _low_resource_chart(curves: Sequence[Curve], name: str, series: Series) -> Chart:
    first, whose = curves[0], series.name(curves[0])
    name = f"low-resource-{name}"
    scores = [s for c in curves for d in c.depths for s in d.scores]
    scores += [c.chance for c in curves if c.chance is not None]
    pad = 0.04 * ((max(scores) - min(scores)) or 1.0)
    y_range = [min(scores) - pad, max(scores) + pad]
    panels = tuple(
        Panel(
            name=f"{name}-{c.train_size or 'all'}",
            label="all examples" if c.train_size is None else f"{c.train_size:,} examples",
            figure=_dots(c, y_range),
            alt=f"{whose}, {names.place(c, [c])}: {names.metric_name(c.metric)} of every run by depth",
        )
        for c in curves
    )
    legend = [
        Key("one run", theme.faded(RUN, 70), symbol="full"),
        Key("mean", marks.INK, symbol="bar"),
        Key("best mean", BEST, symbol="bar"),
        *([Key("chance", marks.MUTED, dash="dot")] if first.chance is not None else []),
    ]
    return Chart(
        name=name,
        title=f"{whose} on {names.task_name(first.task)}, by train size",
        caption=f"Every run a dot, at the chosen learning rate; {names.metric_name(first.metric)}.",
        panels=panels,
        legend=tuple(legend),
    )


def _dots(curve: Curve, y_range: list[float]) -> Figure:
    measured = [d for d in curve.depths if d.scores]
    ordered, places, labels = names.depth_ticks((d.frozen_layers for d in measured), most=8)
    xs: list[float] = []
    ys: list[float] = []
    for depth in measured:
        place, count = ordered.index(depth.frozen_layers), len(depth.scores)
        # Neighbours in value stand on different sides.
        for rank, score in enumerate(depth.scores):
            xs.append(place + (SPREAD * (2 * rank / (count - 1) - 1) if count > 1 else 0.0))
            ys.append(score)
    means = [(ordered.index(d.frozen_layers), fmean(d.scores)) for d in measured]
    better = max if describe(curve.metric).higher_is_better else min
    best = better((mean for _, mean in means), default=0.0)
    shapes = [marks.level(curve.chance)] if curve.chance is not None else []
    shapes += [marks.bar(at, mean, BEST if abs(mean - best) <= 1e-12 else marks.INK) for at, mean in means]
    dots = marks.points(
        xs,
        ys,
        marker={"size": 6, "color": theme.faded(RUN, 60)},
        hovertemplate="%{y:.4f}<extra></extra>",
    )
    x = theme.axis("frozen layers", tickmode="array", tickvals=places, ticktext=labels, showgrid=False)
    x["range"] = [-0.6, len(ordered) - 0.4]
    y = theme.axis(names.metric_name(curve.metric), range=y_range, nticks=6)
    return {"data": [dots], "layout": theme.layout(250, x, y, shapes=shapes)}


def learning_curves(curves: Sequence[Curve], runs: Sequence[LearningCurve]) -> Chart | None:
    """The mean learning curve of each depth at its chosen rate; None where no trial has a curve."""
    by_curve: defaultdict[Any, list[LearningCurve]] = defaultdict(list)
    for run in runs:
        by_curve[run.study, run.model, run.task, run.cell.train_size, run.metric].append(run)
    shown = [c for c in curves if curve_key(c) in by_curve]
    if not shown:
        return None
    series = Series(curves)
    depths = sorted({d.frozen_layers for c in shown for d in c.depths}, key=freeze_order)
    height = 360 if len(shown) == 1 else 240
    panels = tuple(
        Panel(
            name=f"learning-{i}",
            label=series.panel_label(c, shown),
            figure=_learning_figure(c, by_curve[curve_key(c)], depths, height),
            alt=f"{series.name(c)}, {names.place(c, shown)}: {names.metric_name(c.metric)} by epoch",
        )
        for i, c in enumerate(series.ordered(shown))
    )
    _, places, _ = names.depth_ticks(depths, most=7)
    legend = tuple(Key(f"{depth_name(depths[i])} frozen", theme.spread(i, len(depths))) for i in places)
    return Chart(
        name="learning-curves",
        title="Score after every evaluation",
        caption="Mean over seeds of each depth at its chosen learning rate, after every evaluation.",
        panels=panels,
        legend=legend,
        folded=len(panels) > MOST_OPEN,
    )


def _learning_figure(
    curve: Curve, runs: Sequence[LearningCurve], depths: Sequence[int], height: int
) -> Figure:
    traces = []
    for depth in curve.depths:
        at: defaultdict[float, list[float]] = defaultdict(list)
        for run in runs:
            if run.cell.frozen_layers == depth.frozen_layers and _same(
                run.cell.learning_rate, depth.learning_rate
            ):
                for epoch, score in zip(run.epochs, run.scores, strict=True):
                    at[round(epoch, 6)].append(score)
        if not at:
            continue
        epochs = sorted(at)
        frozen = f"{depth_name(depth.frozen_layers)} frozen"
        traces.append(
            marks.points(
                epochs,
                [fmean(at[epoch]) for epoch in epochs],
                "lines",
                name=frozen,
                line={"color": theme.spread(depths.index(depth.frozen_layers), len(depths)), "width": 1.8},
                hovertemplate=(
                    f"{frozen}, rate {names.rate(depth.learning_rate)}"
                    "<br>epoch %{x:.3g}: %{y:.4f}<extra></extra>"
                ),
            )
        )
    y = theme.axis(names.metric_name(curve.metric), nticks=6)
    return {"data": traces, "layout": theme.layout(height, theme.axis("epoch", nticks=6), y)}


def _same(rate: float, other: float | None) -> bool:
    return other is not None and abs(rate - other) <= 1e-5 * other
