"""Quality against what it costs: parameters trained, seconds, peak memory; the Pareto front is filled."""

from __future__ import annotations

from collections.abc import Sequence

from objectives.depths import depth_name
from study.analysis.costs import CostName, CurveCosts
from study.analysis.quality import Curve
from study.reporting import marks, names, theme
from study.reporting.document import Chart, Figure, Key, Panel
from study.reporting.series import Series

SHOWN: dict[CostName, str] = {
    "seconds": "training time",
    "peak_memory_bytes": "peak memory",
    "trainable_share": "parameters trained",
}
"""Storage per task is parameters trained times four bytes: the same picture."""
MOST_OPEN = 9


def charts(curves: Sequence[Curve], costs: Sequence[CurveCosts]) -> list[Chart]:
    """One per cost that is known, in panels by task; of a single task all costs in one."""
    series = Series(curves)
    pairs = [(c, k) for c, k in zip(curves, costs, strict=True) if c.undefined is None]
    known: dict[CostName, list[tuple[Curve, CurveCosts]]] = {
        name: [(c, k) for c, k in pairs if any(name in d.relative for d in k.depths)] for name in SHOWN
    }
    shown = {name: found for name, found in known.items() if found}
    if len({names.place(c, curves) for c, _ in pairs}) == 1 and shown:
        lines = series.names(c for c, _ in pairs)
        panels = [p for name, found in shown.items() for p in _panels(name, found, series, lines, True)]
        return [_chart("all", "Quality against each cost", panels, lines, folded=False)]
    return [
        _chart(
            name,
            f"Quality against {SHOWN[name]}",
            _panels(name, found, series, lines, together=False),
            lines,
            folded=i > 0 and len(found) > MOST_OPEN,
        )
        for i, (name, found) in enumerate(shown.items())
        for lines in [series.names(c for c, _ in found)]
    ]


def _panels(
    name: CostName,
    pairs: Sequence[tuple[Curve, CurveCosts]],
    series: Series,
    lines: Sequence[str],
    together: bool,
) -> list[Panel]:
    curves = [c for c, _ in pairs]
    labels = names.places(curves)
    height = 300 if together or len(labels) <= 4 else 230
    return [
        Panel(
            name=f"cost-{name}-{i}",
            label=SHOWN[name].capitalize() if together else label,
            figure=_figure(name, own, series, lines, height),
            alt=f"{label}: relative quality against {SHOWN[name]} relative to the full model",
        )
        for i, label in enumerate(labels)
        for own in [[(c, k) for c, k in pairs if names.place(c, curves) == label]]
    ]


def _chart(name: str, title: str, panels: list[Panel], lines: Sequence[str], *, folded: bool) -> Chart:
    storage = " Storage per task goes with the parameters trained." * (name in ("all", "trainable_share"))
    return Chart(
        name=f"quality-cost-{name.replace('_', '-')}",
        title=title,
        caption=(
            "Both relative to the full model; each point is a depth, and the rightmost is the full model. "
            f"Filled: no depth is both better and cheaper.{storage}"
        ),
        panels=tuple(panels),
        legend=(
            *theme.line_keys(lines),
            Key("on the Pareto front", marks.INK, symbol="full"),
            Key("beaten by another depth", marks.INK, symbol="hollow"),
        ),
        folded=folded,
    )


def _figure(
    name: CostName,
    pairs: Sequence[tuple[Curve, CurveCosts]],
    series: Series,
    lines: Sequence[str],
    height: int,
) -> Figure:
    shares = [cost.relative[name] for _, costs in pairs for cost in costs.depths if name in cost.relative]
    pad = 0.06 * ((max(shares) - min(shares)) or 0.1)
    # The labels of the points stand to their left.
    ends = [max(0.0, min(shares) - 1.5 * pad), max(shares) + pad]
    x = theme.axis(f"{SHOWN[name]}, share of full", tickformat=".0%", nticks=6, range=ends)
    y = theme.axis("share of full quality", tickformat=".0%", nticks=7)
    traces = [
        _line(name, curve, costs, label, theme.style(lines.index(label)), labelled=len(pairs) == 1)
        for curve, costs in pairs
        for label in [series.name(curve)]
    ]
    return {"data": traces, "layout": theme.layout(height, x, y)}


def _line(
    name: CostName, curve: Curve, costs: CurveCosts, label: str, own: theme.Style, *, labelled: bool
) -> marks.Mark:
    known = [
        (d, cost, cost.relative[name])
        for d in curve.depths
        for cost in [costs.at(d.frozen_layers)]
        if d.relative is not None and cost is not None and name in cost.relative
    ]
    front = set(costs.pareto.get(name, ()))
    # Neighbours on a short line would write over each other: label a few, the rest tell on hovering.
    stride = max(1, -(-len(known) // 5))
    text = [
        str(d.frozen_layers) if i % stride == 0 or i == len(known) - 1 else ""
        for i, (d, _, _) in enumerate(known)
    ]
    if len(known) > 1 and (len(known) - 1) % stride:
        text[(len(known) - 1) // stride * stride] = ""
    return marks.points(
        [share for _, _, share in known],
        [d.relative for d, _, _ in known],
        "lines+markers+text" if labelled else "lines+markers",
        name=theme.words(label),
        text=text,
        textposition="top left",
        textfont={"size": 11},
        cliponaxis=False,
        line={"color": theme.faded(own.colour, 55), "width": 1.5, "dash": own.dash},
        marker=marks.marker("", 8, own.colour, 1.4)
        | {"symbol": [own.symbol + ("" if d.frozen_layers in front else "-open") for d, _, _ in known]},
        customdata=[[depth_name(d.frozen_layers), _told(name, getattr(cost, name))] for d, cost, _ in known],
        hovertemplate=(
            f"<b>{theme.words(label)}</b><br>%{{customdata[0]}} frozen: %{{y:.1%}} of full quality<br>"
            "%{x:.1%} of the full model's cost (%{customdata[1]})<extra></extra>"
        ),
    )


def _told(name: CostName, value: float | None) -> str:
    if value is None:
        return names.UNKNOWN
    if name == "seconds":
        return f"{value:.3g} s"
    if name == "trainable_share":
        return names.percent(value)
    return f"{value / 2**20:,.0f} MiB"
