"""Quality against depth: one panel per task with its models and their bands, one per model with its tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from study import names
from study.analysis.analyse import Analysis
from study.analysis.points import OperatingPoint
from study.analysis.quality import Curve, DepthScore
from study.analysis.runs import freeze_order
from study.reporting import theme
from study.reporting.document import Chart, Figure, Key, Panel
from study.reporting.series import Series

BAND_PERCENT = 16


def by_task(analysis: Analysis, curves: Sequence[Curve]) -> Chart:
    """Every model and task with its 95 % band; the answer at the lowest threshold is ringed."""
    series = Series(curves)
    curves = [c for c in curves if c.undefined is None]
    lines = series.names(curves)
    labels = list(dict.fromkeys(names.place(c, curves) for c in _ordered(curves)))
    threshold = min(analysis.thresholds)
    panels = []
    for i, label in enumerate(labels):
        own = [c for c in curves if names.place(c, curves) == label]
        panels.append(
            Panel(
                name=f"quality-{i}",
                label=label,
                figure=_task_figure(analysis, own, series, lines, _height(len(labels))),
                alt=_told(label, own, series),
            )
        )
    legend = [_line_key(name, i) for i, name in enumerate(lines)]
    if any(d.relative_low is not None for c in curves for d in c.depths):
        legend.append(Key("95 % interval", theme.faded(f"{theme.TOKEN}muted", 35), dash="band"))
    levels = ", ".join(f"{100 * level:.4g}" for level in sorted(analysis.thresholds))
    legend.append(Key(f"{levels} % of full", f"{theme.TOKEN}muted", dash="dot"))
    legend.append(Key(f"deepest freeze above {100 * threshold:.4g} %", f"{theme.TOKEN}ink", symbol="ring"))
    if any(c.chance for c in curves):
        legend.append(Key("no better than chance", f"{theme.TOKEN}shade", dash="band"))
    return Chart(
        name="quality",
        title="Relative quality against frozen layers" + (", by task" if len(panels) > 1 else ""),
        caption="Mean score over seeds as a share of the full model's (the paper's Figure 1)."
        + (
            " Each panel has its own vertical scale, and always shows 85 to 103 %." if len(panels) > 1 else ""
        ),
        panels=tuple(panels),
        legend=tuple(legend),
    )


def by_model(analysis: Analysis, curves: Sequence[Curve]) -> Chart | None:
    """All tasks of a model in one panel, without bands; None where no model has two."""
    series = Series(curves)
    curves = [c for c in curves if c.undefined is None and c.train_size is None]
    models = {name: [c for c in curves if series.name(c) == name] for name in series.names(curves)}
    if not any(len(own) > 1 for own in models.values()):
        return None
    labels = list(dict.fromkeys(names.place(c, curves) for c in _ordered(curves)))
    panels = tuple(
        Panel(
            name=f"overview-{i}",
            label=model,
            figure=_model_figure(analysis, own, curves, labels),
            alt=f"{model}: relative quality of each task against frozen layers",
        )
        for i, (model, own) in enumerate(models.items())
    )
    styles = [theme.style(i) for i in range(len(labels))]
    legend = tuple(Key(n, s.colour, s.dash, s.symbol) for n, s in zip(labels, styles, strict=True))
    return Chart(
        name="quality-by-model",
        title="Relative quality against frozen layers, by model",
        caption="All tasks of a model together; the dotted lines are the thresholds.",
        panels=panels,
        legend=legend,
    )


def _ordered(curves: Sequence[Curve]) -> list[Curve]:
    return sorted(curves, key=lambda c: (names.task_order(c.task), c.metric, c.train_size or 0))


def _height(panels: int) -> int:
    return 400 if panels == 1 else 300 if panels <= 4 else 230


def _line_key(name: str, index: int) -> Key:
    own = theme.style(index)
    return Key(name, own.colour, own.dash, own.symbol)


def _task_figure(
    analysis: Analysis, curves: Sequence[Curve], series: Series, lines: Sequence[str], height: int
) -> Figure:
    traces: list[dict[str, Any]] = []
    values: list[float] = []
    for curve in curves:
        name = series.name(curve)
        own = theme.style(lines.index(name))
        known = [d for d in curve.depths if d.relative is not None]
        traces += _bands(known, own)
        traces.append(_line(known, curve, own, name))
        values += [v for d in known for v in (d.relative, d.relative_low, d.relative_high) if v is not None]
    # Rings last, so that no line runs over them.
    traces += [_ring(analysis, curve) for curve in curves]
    low, high = min([0.85, *values]), max([1.03, *values])
    pad = 0.03 * (high - low)
    y_range = [low - pad, high + pad]
    layers = max(c.total_layers for c in curves)
    y = theme.axis("share of full quality", tickformat=".0%", range=y_range, nticks=7)
    return {
        "data": traces,
        "layout": theme.layout(
            height,
            _depth_axis(layers),
            y,
            shapes=[*_chance_floor(curves, y_range[0]), *_thresholds(analysis)],
        ),
    }


def _model_figure(
    analysis: Analysis, own: Sequence[Curve], curves: Sequence[Curve], labels: Sequence[str]
) -> Figure:
    traces = []
    for curve in _ordered(own):
        label = names.place(curve, curves)
        known = [d for d in curve.depths if d.relative is not None]
        traces.append(_line(known, curve, theme.style(labels.index(label)), label))
    y = theme.axis("share of full quality", tickformat=".0%", nticks=8)
    layers = max(c.total_layers for c in own)
    return {
        "data": traces,
        "layout": theme.layout(330, _depth_axis(layers), y, shapes=_thresholds(analysis)),
    }


def _depth_axis(layers: int) -> dict[str, Any]:
    step = 1 if layers <= 6 else 2 if layers <= 12 else 4 if layers <= 24 else -(-layers // 6)
    return theme.axis("frozen layers", dtick=step, tick0=0, range=[-0.5, layers + 0.5])


def _bands(known: Sequence[DepthScore], own: theme.Style) -> list[dict[str, Any]]:
    """One closed outline per stretch of depths that have an interval."""
    stretches: list[list[DepthScore]] = [[]]
    for depth in known:
        if depth.relative_low is None or depth.relative_high is None:
            stretches.append([])
        else:
            stretches[-1].append(depth)
    bands = []
    for stretch in stretches:
        if len(stretch) < 2:
            continue
        xs = [freeze_order(d.frozen_layers) for d in stretch]
        bands.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": xs + xs[::-1],
                "y": [d.relative_high for d in stretch] + [d.relative_low for d in stretch][::-1],
                "fill": "toself",
                "fillcolor": theme.faded(own.colour, BAND_PERCENT),
                "line": {"width": 0},
                "hoverinfo": "skip",
            }
        )
    return bands


def _line(known: Sequence[DepthScore], curve: Curve, own: theme.Style, label: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": label,
        "x": [freeze_order(d.frozen_layers) for d in known],
        "y": [d.relative for d in known],
        "line": {"color": own.colour, "width": 2, "dash": own.dash},
        "marker": {"color": own.colour, "size": 5, "symbol": own.symbol},
        "customdata": [
            [
                names.depth_name(d.frozen_layers),
                names.interval(d.relative_low, d.relative_high),
                d.score,
                len(d.scores),
                names.rate(d.learning_rate),
            ]
            for d in known
        ],
        "hovertemplate": (
            f"<b>{label}</b><br>%{{customdata[0]}} frozen: %{{y:.1%}} [%{{customdata[1]}}]<br>"
            f"{names.metric_name(curve.metric)} %{{customdata[2]:.4f}}, %{{customdata[3]}} runs, "
            "rate %{customdata[4]}<extra></extra>"
        ),
    }


def _ring(analysis: Analysis, curve: Curve) -> dict[str, Any]:
    point = _answer(analysis, curve)
    found = point is not None and point.frozen_layers is not None and point.relative is not None
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [freeze_order(point.frozen_layers or 0)] if point and found else [],
        "y": [point.relative] if point and found else [],
        "marker": {
            "symbol": "circle-open",
            "size": 12,
            "color": f"{theme.TOKEN}ink",
            "line": {"width": 1.6, "color": f"{theme.TOKEN}ink"},
        },
        "hoverinfo": "skip",
    }


def _answer(analysis: Analysis, curve: Curve) -> OperatingPoint | None:
    wanted = (curve.study, curve.model, curve.task, curve.train_size, curve.metric)
    lowest = (p for p in analysis.points if p.threshold == min(analysis.thresholds))
    return next((p for p in lowest if (p.study, p.model, p.task, p.train_size, p.metric) == wanted), None)


def _thresholds(analysis: Analysis) -> list[dict[str, Any]]:
    lowest = min(analysis.thresholds)
    return [
        _level(1.0, "solid", 1),
        *[_level(t, "dot", 1.4 if t == lowest else 0.7) for t in analysis.thresholds],
    ]


def _level(share: float, dash: str, width: float) -> dict[str, Any]:
    return {
        "type": "line",
        "xref": "x domain",
        "x0": 0,
        "x1": 1,
        "y0": share,
        "y1": share,
        "layer": "below",
        "line": {"color": f"{theme.TOKEN}muted", "width": width, "dash": dash},
    }


def _chance_floor(curves: Sequence[Curve], bottom: float) -> list[dict[str, Any]]:
    """Shaded where no model of the panel is better than always answering the majority class."""
    levels = [c.chance / c.full_score for c in curves if c.chance is not None and c.full_score]
    if not levels or min(levels) <= bottom:
        return []
    return [
        {
            "type": "rect",
            "xref": "x domain",
            "x0": 0,
            "x1": 1,
            "y0": bottom,
            "y1": min(levels),
            "layer": "below",
            "fillcolor": f"{theme.TOKEN}shade",
            "line": {"width": 0},
        }
    ]


def _told(label: str, curves: Sequence[Curve], series: Series) -> str:
    ends = []
    for curve in curves:
        last = next((d for d in reversed(curve.depths) if d.relative is not None), None)
        if last is not None:
            ends.append(
                f"{series.name(curve)} keeps {names.percent(last.relative, 0)} at {last.frozen_layers} frozen"
            )
    return f"{label}: relative quality against frozen layers. " + "; ".join(ends)
