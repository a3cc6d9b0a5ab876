"""Learning rates: the chosen one per depth over all tasks, and quality over depth x rate, as heat maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from objectives.depths import depth_name
from study.analysis.quality import Curve, RateScore
from study.cli.wording import counted
from study.reporting import marks, names, theme
from study.reporting.document import Chart, Figure, Key, Panel
from study.reporting.series import Series

MOST_OPEN = 9
"""Beyond this many panels the detail is folded away."""


def chosen_rates(curves: Sequence[Curve]) -> Chart | None:
    """The learning rate chosen at each depth, a row per task; None where one depth x rate map says it all."""
    found = sorted({r.learning_rate for c in curves for d in c.depths for r in d.rates})
    if len(found) < 2 or len({(c.model, names.place(c, curves)) for c in curves}) < 2:
        return None
    series = Series(curves)
    edges = any(d.rate_edge for c in curves for d in c.depths)
    legend = [Key(names.rate(r), theme.spread(i, len(found)), symbol="patch") for i, r in enumerate(found)]
    if edges:
        legend.append(Key("at the edge of the rates tried there", marks.PAPER, symbol="dot"))
    panels = tuple(
        Panel(
            name=f"rates-{i}",
            label=name,
            figure=_chosen_figure([c for c in curves if series.name(c) == name], found),
            alt=f"{name}: the learning rate chosen at each depth for each task",
        )
        for i, name in enumerate(series.names(curves))
    )
    return Chart(
        name="rates",
        title="Best learning rate at each depth",
        caption=(
            "Colour is the rate at which that depth was scored. A dot marks an optimum at the edge of the "
            "rates tried at that depth: a better one may lie beyond."
        ),
        panels=panels,
        legend=tuple(legend),
    )


def depth_by_rate(curves: Sequence[Curve]) -> Chart | None:
    """Mean score of every depth and rate that was run, one panel per model and task."""
    series = Series(curves)
    curves = [c for c in curves if max((len(d.rates) for d in c.depths), default=0) > 1]
    if not curves:
        return None
    panels = tuple(
        Panel(
            name=f"depth-rate-{i}",
            label=series.panel_label(c, curves),
            figure=depth_rate_figure(c, tall=len(curves) == 1),
            alt=f"{series.name(c)}, {names.place(c, curves)}: score by frozen layers and learning rate",
        )
        for i, c in enumerate(series.ordered(curves))
    )
    return Chart(
        name="depth-rate",
        title="Score by depth and learning rate",
        caption="Mean score over seeds; a frame marks the chosen rate. Empty squares were not run.",
        panels=panels,
        legend=(
            Key("lowest of the panel", theme.sequential(0), symbol="patch"),
            Key("highest", theme.sequential(1), symbol="patch"),
            Key("chosen rate", marks.INK, symbol="frame"),
        ),
        folded=len(panels) > MOST_OPEN,
    )


def depth_rate_figure(curve: Curve, *, tall: bool) -> Figure:
    depths, places, labels = names.depth_ticks(d.frozen_layers for d in curve.depths)
    rates = sorted({r.learning_rate for d in curve.depths for r in d.rates})
    found = {(d.frozen_layers, r.learning_rate): r for d in curve.depths for r in d.rates}
    cells = [[found.get((depth, rate)) for depth in depths] for rate in rates]
    z = [[cell.score if cell else None for cell in row] for row in cells]
    hover = [[_told(curve, depth, cell) for depth, cell in zip(depths, row, strict=True)] for row in cells]
    numbers = [[_number(cell.score, 3) if cell else "" for cell in row] for row in cells]
    chosen = [
        (depths.index(d.frozen_layers), rates.index(d.learning_rate))
        for d in curve.depths
        if d.learning_rate is not None and d.learning_rate in rates
    ]
    y = theme.axis("learning rate", tickmode="array", showgrid=False)
    stride = -(-len(rates) // 7)
    y |= {
        "tickvals": list(range(0, len(rates), stride)),
        "ticktext": [names.rate(r) for r in rates[::stride]],
    }
    heat = _heat_map(z, hover) | {"text": numbers, "texttemplate": "%{text}", "textfont": {"size": 12}}
    height = 70 + max(26, (54 if tall else 30) - 3 * len(rates)) * len(rates)
    shapes = [marks.frame(*place) for place in chosen]
    return {"data": [heat], "layout": theme.layout(height, _depth_axis(places, labels), y, shapes=shapes)}


def _told(curve: Curve, depth: int, cell: RateScore | None) -> str:
    if cell is None:
        return ""
    metric, runs = theme.words(names.metric_name(curve.metric)), counted(cell.runs, "run")
    where = f"{depth_name(depth)} frozen, rate {names.rate(cell.learning_rate)}"
    return f"{where}<br>{metric} {_number(cell.score, 4)}, {runs}"


def _chosen_figure(curves: Sequence[Curve], found: Sequence[float]) -> Figure:
    ordered = sorted(curves, key=lambda c: (names.task_order(c.task), c.metric, c.train_size or 0))[::-1]
    rows = [theme.words(names.place(c, curves)) for c in ordered]
    depths, places, labels = names.depth_ticks((d.frozen_layers for c in curves for d in c.depths), most=13)
    z: list[list[float | None]] = []
    hover: list[list[str]] = []
    dots: list[tuple[int, int]] = []
    for row, curve in enumerate(ordered):
        cells = [curve.at(depth) for depth in depths]
        z.append(
            [None if c is None or c.learning_rate is None else found.index(c.learning_rate) for c in cells]
        )
        hover.append(
            [
                ""
                if c is None or c.learning_rate is None
                else f"{rows[row]}, {depth_name(c.frozen_layers)} frozen<br>rate "
                f"{names.rate(c.learning_rate)} of {len(c.rates)} tried"
                + (f"<br>the {c.rate_edge} tried" if c.rate_edge else "")
                for c in cells
            ]
        )
        dots += [(x, row) for x, c in enumerate(cells) if c is not None and c.rate_edge]
    heat = _heat_map(z, hover) | {"zmin": 0, "zmax": max(len(found) - 1, 1)}
    edges = marks.points(
        [x for x, _ in dots],
        [y for _, y in dots],
        marker=marks.marker("circle", 5, marks.PAPER, 1, marks.INK),
    )
    y = theme.axis(None, tickmode="array", tickvals=list(range(len(rows))), ticktext=rows, showgrid=False)
    return {
        "data": [heat, edges],
        "layout": theme.layout(70 + 26 * len(rows), _depth_axis(places, labels), y),
    }


def _heat_map(z: list[list[float | None]], hover: list[list[str]]) -> dict[str, Any]:
    return {
        "type": "heatmap",
        "x": list(range(len(z[0]))),
        "y": list(range(len(z))),
        "z": z,
        "customdata": hover,
        "hovertemplate": "%{customdata}<extra></extra>",
        "hoverongaps": False,
        "colorscale": theme.colour_scale(),
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
    }


def _depth_axis(places: list[int], labels: list[str]) -> dict[str, Any]:
    return theme.axis("frozen layers", tickmode="array", tickvals=places, ticktext=labels, showgrid=False)


def _number(score: float | None, digits: int) -> str:
    if score is None:
        return "filtered out"
    return f"{score:.{digits}f}" if abs(score) < 10 else f"{score:.{digits}g}"
