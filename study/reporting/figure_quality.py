"""Quality against depth: one panel per task with its models and their bands, one per model with its tasks."""

from __future__ import annotations

from collections.abc import Sequence

from objectives.depths import depth_name, freeze_order
from study.analysis.analyse import Analysis
from study.analysis.chance import kept_by_chance
from study.analysis.points import OperatingPoint
from study.analysis.quality import Curve, DepthScore
from study.cli.wording import counted
from study.reporting import marks, names, quality_words, theme
from study.reporting.document import Chart, Figure, Key, Panel
from study.reporting.series import Series, curve_key

BAND_PERCENT = 16


def by_task(analysis: Analysis, curves: Sequence[Curve]) -> Chart:
    """Every model and task with its 95 % band; the answer at the lowest threshold is ringed."""
    series = Series(curves)
    curves = [c for c in curves if c.undefined is None]
    lines = series.names(curves)
    labels = names.places(curves)
    panels = tuple(
        Panel(
            name=f"quality-{i}",
            label=label,
            figure=_task_figure(analysis, own, series, lines, _height(len(labels))),
            alt=_told(label, own, series),
        )
        for i, label in enumerate(labels)
        for own in [[c for c in curves if names.place(c, curves) == label]]
    )
    legend = theme.line_keys(lines)
    if any(d.relative_low is not None for c in curves for d in c.depths):
        legend.append(Key("95 % interval", theme.faded(marks.MUTED, 35), symbol="band"))
    levels = ", ".join(f"{100 * level:.4g}" for level in sorted(analysis.thresholds))
    legend.append(Key(f"{levels} % of full", marks.MUTED, dash="dot"))
    legend.append(
        Key(f"deepest freeze above {100 * min(analysis.thresholds):.4g} %", marks.INK, symbol="ring")
    )
    if any(c.chance for c in curves):
        legend.append(Key("no better than chance", marks.SHADE, symbol="band"))
    scales = (
        " Each panel has its own vertical scale, and always shows 85 to 103 %." if len(panels) > 1 else ""
    )
    return Chart(
        name="quality",
        title="Relative quality against frozen layers" + (", by task" if len(panels) > 1 else ""),
        caption=quality_words.drawn(c.metric for c in curves) + scales,
        panels=panels,
        legend=tuple(legend),
    )


def by_model(analysis: Analysis, curves: Sequence[Curve]) -> Chart | None:
    """All tasks of a model in one panel, without bands; None where no model has two."""
    series = Series(curves)
    curves = [c for c in curves if c.undefined is None and c.train_size is None]
    models = {name: [c for c in curves if series.name(c) == name] for name in series.names(curves)}
    if not any(len(own) > 1 for own in models.values()):
        return None
    labels = names.places(curves)
    panels = tuple(
        Panel(
            name=f"overview-{i}",
            label=model,
            figure=_model_figure(analysis, own, curves, labels),
            alt=f"{model}: relative quality of each task against frozen layers",
        )
        for i, (model, own) in enumerate(models.items())
    )
    return Chart(
        name="quality-by-model",
        title="Relative quality against frozen layers, by model",
        caption="All tasks of a model together; the dotted lines are the thresholds.",
        panels=panels,
        legend=tuple(theme.line_keys(labels)),
    )


def _height(panels: int) -> int:
    return 400 if panels == 1 else 300 if panels <= 4 else 230


def _task_figure(
    analysis: Analysis, curves: Sequence[Curve], series: Series, lines: Sequence[str], height: int
) -> Figure:
    traces: list[marks.Mark] = []
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
    for curve in own:
        label = names.place(curve, curves)
        known = [d for d in curve.depths if d.relative is not None]
        traces.append(_line(known, curve, theme.style(labels.index(label)), label))
    y = theme.axis("share of full quality", tickformat=".0%", nticks=8)
    layers = max(c.total_layers for c in own)
    return {
        "data": traces,
        "layout": theme.layout(330, _depth_axis(layers), y, shapes=_thresholds(analysis)),
    }


def _depth_axis(layers: int) -> marks.Mark:
    step = 1 if layers <= 6 else 2 if layers <= 12 else 4 if layers <= 24 else -(-layers // 6)
    return theme.axis("frozen layers (0: the full model)", dtick=step, tick0=0, range=[-0.5, layers + 0.5])


def _bands(known: Sequence[DepthScore], own: theme.Style) -> list[marks.Mark]:
    """One closed outline per stretch of depths that have an interval."""
    stretches: list[list[tuple[float, float, float]]] = [[]]
    for depth in known:
        low, high = depth.relative_low, depth.relative_high
        if depth.frozen_layers == 0:
            # The full model beside itself is exactly itself.
            low = high = depth.relative
        if low is None or high is None:
            stretches.append([])
        else:
            stretches[-1].append((freeze_order(depth.frozen_layers), low, high))
    return [
        marks.points(
            [x for x, _, _ in stretch] + [x for x, _, _ in stretch][::-1],
            [high for _, _, high in stretch] + [low for _, low, _ in stretch][::-1],
            "lines",
            fill="toself",
            fillcolor=theme.faded(own.colour, BAND_PERCENT),
            line={"width": 0},
        )
        for stretch in stretches
        if len(stretch) > 1
    ]


def _line(known: Sequence[DepthScore], curve: Curve, own: theme.Style, label: str) -> marks.Mark:
    return marks.points(
        [freeze_order(d.frozen_layers) for d in known],
        [d.relative for d in known],
        "lines+markers",
        name=theme.words(label),
        line={"color": own.colour, "width": 2, "dash": own.dash},
        marker={"color": own.colour, "size": 5, "symbol": own.symbol},
        customdata=[
            [
                depth_name(d.frozen_layers),
                names.interval(d.relative_low, d.relative_high),
                d.score,
                counted(len(d.scores), "run"),
                names.rate(d.learning_rate),
            ]
            for d in known
        ],
        hovertemplate=(
            f"<b>{theme.words(label)}</b><br>%{{customdata[0]}} frozen: %{{y:.1%}} [%{{customdata[1]}}]<br>"
            f"{theme.words(names.metric_name(curve.metric))} %{{customdata[2]:.4f}}, %{{customdata[3]}}, "
            "rate %{customdata[4]}<extra></extra>"
        ),
    )


def _ring(analysis: Analysis, curve: Curve) -> marks.Mark:
    point = _answer(analysis, curve)
    at = [] if point is None or point.frozen_layers is None or point.relative is None else [point]
    return marks.points(
        [freeze_order(p.frozen_layers or 0) for p in at],
        [p.relative for p in at],
        marker=marks.marker("circle-open", 12, marks.INK, 1.6),
    )


def _answer(analysis: Analysis, curve: Curve) -> OperatingPoint | None:
    lowest = (p for p in analysis.points if p.threshold == min(analysis.thresholds))
    return next((p for p in lowest if curve_key(p) == curve_key(curve)), None)


def _thresholds(analysis: Analysis) -> list[marks.Mark]:
    lowest = min(analysis.thresholds)
    return [
        marks.level(1.0, "solid", 1),
        *(marks.level(t, "dot", 1.4 if t == lowest else 0.7) for t in analysis.thresholds),
    ]


def _chance_floor(curves: Sequence[Curve], bottom: float) -> list[marks.Mark]:
    """Shaded where no model of the panel is better than the best constant answer."""
    shares = [kept_by_chance(c.metric, c.chance, c.full_score) for c in curves]
    levels = [share for share in shares if share is not None]
    return [marks.floor(bottom, min(levels))] if levels and min(levels) > bottom else []


def _told(label: str, curves: Sequence[Curve], series: Series) -> str:
    ends = []
    for curve in curves:
        last = next((d for d in reversed(curve.depths) if d.relative is not None), None)
        if last is not None:
            ends.append(
                f"{series.name(curve)} keeps {names.percent(last.relative, 0)} at {last.frozen_layers} frozen"
            )
    return f"{label}: relative quality against frozen layers. " + "; ".join(ends)
