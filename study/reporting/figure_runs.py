"""Single runs: every run a dot by train size and depth, and learning curves by depth."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from study import names
from study.analysis.quality import Curve
from study.analysis.runs import freeze_order
from study.provenance import LearningCurve
from study.reporting import theme
from study.reporting.document import Chart, Figure, Key, Panel
from study.reporting.series import Series

MOST_OPEN = 9
SPREAD = 0.22
"""How far from its depth's line a dot may stand, so that equal scores remain visible."""


def low_resource(curves: Sequence[Curve], series: Series) -> list[Chart]:
    """One chart per model and task, one panel per train size; `curves` as from `low_resource.sized`."""
    groups: dict[tuple[str, str, str], list[Curve]] = {}
    for c in sorted(curves, key=lambda c: (series.rank(c), names.task_order(c.task), c.metric)):
        groups.setdefault((series.name(c), c.task, c.metric), []).append(c)
    metrics = Counter((name, task) for name, task, _ in groups)
    return [
        _low_resource_chart(own, name, alone=metrics[name, task] == 1)
        for (name, task, _), own in groups.items()
    ]


def _low_resource_chart(curves: Sequence[Curve], whose: str, *, alone: bool) -> Chart:
    """Of one metric, which is part of the name unless it is the only one of the model and task."""
    ordered = sorted(curves, key=lambda c: (c.train_size is None, c.train_size or 0))
    first = ordered[0]
    name = f"low-resource-{whose}-{first.task}" + ("" if alone else f"-{first.metric}")
    scores = [s for c in curves for d in c.depths for s in d.scores]
    scores += [c.chance for c in curves if c.chance is not None]
    pad = 0.04 * ((max(scores) - min(scores)) or 1.0)
    y_range = [min(scores) - pad, max(scores) + pad]
    panels = tuple(
        Panel(
            name=f"{name}-{c.train_size or 'all'}",
            label="all examples" if c.train_size is None else f"{c.train_size:,} examples",
            figure=_dots(c, y_range),
            alt=f"{whose}, {c.task}: every run's {c.metric} by frozen layers",
        )
        for c in ordered
    )
    legend = [
        Key("one run", theme.faded(f"{theme.TOKEN}s0", 70), symbol="full"),
        Key("mean", f"{theme.TOKEN}ink", symbol="bar"),
        Key("best mean", f"{theme.TOKEN}s1", symbol="bar"),
    ]
    if first.chance is not None:
        legend.append(Key("chance", f"{theme.TOKEN}muted", dash="dot"))
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
    best = max((mean for _, mean in means), default=0.0)
    shapes = []
    if curve.chance is not None:
        shapes.append(
            {
                "type": "line",
                "xref": "x domain",
                "x0": 0,
                "x1": 1,
                "y0": curve.chance,
                "y1": curve.chance,
                "layer": "below",
                "line": {"color": f"{theme.TOKEN}muted", "width": 1.2, "dash": "dot"},
            }
        )
    for place, mean in means:
        colour = f"{theme.TOKEN}s1" if mean >= best - 1e-12 else f"{theme.TOKEN}ink"
        shapes.append(
            {
                "type": "line",
                "x0": place - 0.36,
                "x1": place + 0.36,
                "y0": mean,
                "y1": mean,
                "line": {"color": colour, "width": 2.4},
            }
        )
    dots = {
        "type": "scatter",
        "mode": "markers",
        "x": xs,
        "y": ys,
        "marker": {"size": 6, "color": theme.faded(f"{theme.TOKEN}s0", 60)},
        "hovertemplate": "%{y:.4f}<extra></extra>",
    }
    x = theme.axis("frozen layers", tickmode="array", tickvals=places, ticktext=labels, showgrid=False)
    x["range"] = [-0.6, len(ordered) - 0.4]
    y = theme.axis(names.metric_name(curve.metric), range=y_range, nticks=6)
    return {"data": [dots], "layout": theme.layout(250, x, y, shapes=shapes)}


def learning_curves(curves: Sequence[Curve], runs: Sequence[LearningCurve]) -> Chart | None:
    """The mean learning curve of each depth at its chosen rate; None where no trial has a curve."""
    by_cell: defaultdict[Any, list[LearningCurve]] = defaultdict(list)
    for run in runs:
        by_cell[run.study, run.model, run.task, run.metric, run.cell.train_size].append(run)
    shown = [c for c in curves if _key(c) in by_cell]
    if not shown:
        return None
    series = Series(curves)
    shown.sort(key=lambda c: (series.rank(c), names.task_order(c.task), c.metric, c.train_size or 0))
    several = len(series.names(shown)) > 1
    depths = sorted({d.frozen_layers for c in shown for d in c.depths}, key=freeze_order)
    height = 360 if len(shown) == 1 else 240
    panels = tuple(
        Panel(
            name=f"learning-{i}",
            label=f"{series.name(c)} · {names.place(c, shown)}" if several else names.place(c, shown),
            figure=_learning_figure(c, by_cell[_key(c)], depths, height),
            alt=f"{series.name(c)}, {names.place(c, shown)}: {c.metric} by epoch, one line per depth",
        )
        for i, c in enumerate(shown)
    )
    _, places, _ = names.depth_ticks(depths, most=7)
    legend = tuple(Key(f"{names.depth_name(depths[i])} frozen", theme.spread(i, len(depths))) for i in places)
    return Chart(
        name="learning-curves",
        title="Learning curves",
        caption="Mean over seeds of each depth at its chosen learning rate, after every evaluation.",
        panels=panels,
        legend=legend,
        folded=len(panels) > MOST_OPEN,
    )


def _key(curve: Curve) -> tuple[str | None, str, str, str, int | None]:
    return curve.study, curve.model, curve.task, curve.metric, curve.train_size


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
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"{names.depth_name(depth.frozen_layers)} frozen",
                "x": epochs,
                "y": [fmean(at[epoch]) for epoch in epochs],
                "line": {
                    "color": theme.spread(depths.index(depth.frozen_layers), len(depths)),
                    "width": 1.8,
                },
                "hovertemplate": (
                    f"{names.depth_name(depth.frozen_layers)} frozen, rate {names.rate(depth.learning_rate)}"
                    "<br>epoch %{x:.3g}: %{y:.4f}<extra></extra>"
                ),
            }
        )
    y = theme.axis(names.metric_name(curve.metric), nticks=6)
    return {"data": traces, "layout": theme.layout(height, theme.axis("epoch", nticks=6), y)}


def _same(rate: float, other: float | None) -> bool:
    return other is not None and abs(rate - other) <= 1e-5 * other
