"""The report's tables beside the published figures: the paper's tables, its claims, and gains by freezing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from study.analysis import published
from study.analysis.analyse import Analysis
from study.analysis.paper_claims import PublishedScore, claims, gains, published_scores
from study.analysis.quality import Curve
from study.reporting import names
from study.reporting.document import Column, Row, Table, Value, label
from study.reporting.names import UNKNOWN
from study.reporting.series import Series
from study.reporting.tables import place

MOST_OPEN = 12


@dataclass(frozen=True)
class _Line:
    """A row of the paper's tables: ours or the published one, with a score per task."""

    frozen_layers: int
    source: str
    scores: Sequence[float | None]


PAPER_TABLES = (
    "The tables below are laid out as the paper's Tables 3 to 6: percent, with the row of this study's "
    f"operating point in bold. Published figures: {published.PAPER_LOGS}; "
    "† marks one further from ours than seeds explain (95 %)."
)


def paper_tables(analysis: Analysis) -> list[Table]:
    """The paper's Tables 3-6: nothing, the operating point and everything frozen, ours over published."""
    series = Series(analysis.curves)
    pairs = dict.fromkeys((c.model, c.protocol) for c in analysis.curves if c.train_size is None)
    return [t for pair in pairs if (t := _paper_table(analysis, *pair, series)) is not None]


def _paper_table(analysis: Analysis, model: str, protocol: str | None, series: Series) -> Table | None:
    whole = [c for c in analysis.curves if c.train_size is None]
    curves = [c for c in whole if (c.model, c.protocol) == (model, protocol)]
    curves.sort(key=lambda c: (names.task_order(c.task), c.metric, c.study or ""))
    squares = [_squares(analysis, curve) for curve in curves]
    layers = curves[0].total_layers
    wanted = (model, protocol, None, min(analysis.thresholds))
    own = [m for m in analysis.models if (m.model, m.protocol, m.train_size, m.threshold) == wanted]
    theirs = {depth for found in squares for depth in found}
    if len({(c.task, c.metric) for c in curves}) < 2 and not theirs:
        return None
    answer = next((layers - m.tuned_layers for m in own if m.tuned_layers is not None), None)
    depths = sorted(theirs | {0, layers} | ({answer} if answer is not None else set()))
    columns = (
        label("frozen_layers", "frozen", key=True),
        label("source", "score", key=True),
        *(
            Column(_unique(c, curves), _place(c, curves), get=_score(i), show=_points)
            for i, c in enumerate(curves)
        ),
    )
    rows: list[Row] = []
    for depth in depths:
        found = [c.at(depth) for c in curves]
        if not any(d is not None and d.score is not None for d in found) and depth not in theirs:
            continue
        here = [None if d is None or d.score is None else 100 * d.score for d in found]
        rows.append(Row(_Line(depth, "here", here), strong=depth == answer))
        if depth in theirs:
            beside = [square.get(depth) for square in squares]
            differ = (c.name for c, s in zip(columns[2:], beside, strict=True) if s and s.verdict == "differ")
            line = _Line(depth, "published", [None if s is None else s.published for s in beside])
            rows.append(Row(line, quiet=True, marked=frozenset(differ)))
    whose = series.of_protocol(model, protocol)
    return Table(
        name=f"paper_table_{whose}",
        title=f"{whose}: scores with nothing, the operating point and everything frozen",
        columns=columns,
        rows=tuple(rows),
        mark="differs",
    )


def _score(index: int) -> Callable[[_Line], Value]:
    return lambda line: line.scores[index]


def _squares(analysis: Analysis, curve: Curve) -> dict[int, PublishedScore]:
    """What the paper's table says of this curve's model and task, by frozen layers."""
    return {s.frozen_layers: s for s in published_scores(replace(analysis, curves=(curve,)))}


def claims_table(analysis: Analysis) -> Table:
    """Of the paper's models only, whatever else was measured; each protocol by itself."""
    columns = (
        label("protocol", get=lambda item: item[1], shown=False),
        label("claim"),
        label("published"),
        label("ours", "here"),
        label("verdict", badge=True),
        label("because"),
        label("source", shown=False),
    )
    known = [c for c in analysis.curves if published.model_key(c.model) and not c.demo]
    protocols = list(dict.fromkeys(c.protocol for c in known))
    rows = [
        Row((c, protocol), group=f"Protocol {protocol}" if protocol else "Tables that name no study")
        for protocol in protocols
        for c in claims(_only(analysis, [c for c in known if c.protocol == protocol]))
    ]
    if len(protocols) < 2:
        rows = [replace(row, group=None) for row in rows]
    return Table(
        name="claims",
        title="The paper's claims, checked",
        columns=columns,
        rows=tuple(rows),
        note=f"Source: {published.PAPER}. Differ needs evidence; too few runs are “cannot tell”.",
    )


def _only(analysis: Analysis, curves: Sequence[Curve]) -> Analysis:
    kept = {(c.model, c.protocol) for c in curves}
    return replace(
        analysis,
        curves=tuple(curves),
        points=tuple(p for p in analysis.points if (p.model, p.protocol) in kept),
        models=tuple(m for m in analysis.models if (m.model, m.protocol) in kept),
    )


def gains_table(analysis: Analysis) -> Table | None:
    found = gains(analysis.curves)
    series = Series(analysis.curves)
    if not found:
        return None
    ordered = sorted(found, key=lambda g: (g.p_value is None, g.p_value or 0.0))
    return Table(
        name="gains",
        title="Where freezing scores above full fine-tuning",
        columns=(
            *place(series),
            Column("frozen_layers", "frozen"),
            Column("gain", "gain, points", show=_gain),
            Column("low", "95 % low", show=_gain),
            Column("high", "95 % high", show=_gain),
            Column("p_value", "p", show=_p, note=_ADJUSTED),
            Column("compared", "depths compared"),
            Column("runs", "runs"),
            Column("full_runs", "full runs"),
        ),
        rows=tuple(Row(g, strong=g.p_value is not None and g.p_value < 0.05) for g in ordered),
        folded=len(found) > MOST_OPEN,
    )


_ADJUSTED = (
    "The p-value is two-sided; it and the interval are adjusted for having picked the best of the depths "
    "compared."
)


def _unique(curve: Curve, curves: Sequence[Curve]) -> str:
    same = [c for c in curves if c.task == curve.task]
    parts = [curve.task]
    parts += [curve.metric] if len({c.metric for c in same}) > 1 else []
    parts += [curve.study or ""] if len({c.study for c in same}) > 1 else []
    return "_".join(parts)


def _place(curve: Curve, curves: Sequence[Curve]) -> str:
    several = len({c.study for c in curves if c.task == curve.task}) > 1
    return names.place(curve, curves) + (f" · {curve.study}" if several and curve.study else "")


def _points(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1f}"


def _gain(value: float | None) -> str:
    return UNKNOWN if value is None else f"{100 * value:+.2f}"


def _p(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.2g}" if value >= 0.001 else "<0.001"
