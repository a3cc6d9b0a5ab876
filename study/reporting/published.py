"""The report's tables beside the published figures: the paper's tables, its claims, and gains by freezing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from study import names
from study.analysis import published
from study.analysis.analyse import Analysis
from study.analysis.claims import PublishedScore, claims, gains, published_scores
from study.analysis.quality import Curve
from study.names import UNKNOWN
from study.reporting.document import Column, Row, Table, Value
from study.reporting.series import Series

MOST_OPEN = 12

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
        Column("frozen_layers", "frozen", number=False),
        Column("source", "score", number=False),
        *(Column(_unique(c, curves), _place(c, curves), _points) for c in curves),
    )
    rows: list[Row] = []
    for depth in depths:
        found = [c.at(depth) for c in curves]
        if not any(d is not None and d.score is not None for d in found) and depth not in theirs:
            continue
        here: list[Value] = [depth, "here"]
        here += [None if d is None or d.score is None else 100 * d.score for d in found]
        rows.append(Row(tuple(here), strong=depth == answer))
        if depth in theirs:
            beside = [square.get(depth) for square in squares]
            rows.append(
                Row(
                    (depth, "published", *(None if s is None else s.published for s in beside)),
                    quiet=True,
                    marked=frozenset(i + 2 for i, s in enumerate(beside) if s and s.verdict == "differ"),
                )
            )
    whose = series.of_protocol(model, protocol)
    return Table(
        name=f"paper_table_{whose}",
        title=f"{whose}: scores with nothing, the operating point and everything frozen",
        columns=columns,
        rows=tuple(rows),
        mark="differs",
    )


def _squares(analysis: Analysis, curve: Curve) -> dict[int, PublishedScore]:
    """What the paper's table says of this curve's model and task, by frozen layers."""
    return {s.frozen_layers: s for s in published_scores(replace(analysis, curves=(curve,)))}


def claims_table(analysis: Analysis) -> Table:
    """Of the paper's models only, whatever else was measured; each protocol by itself."""
    columns = (
        Column("protocol", "protocol", number=False),
        Column("claim", "claim", number=False),
        Column("published", "published", number=False),
        Column("ours", "here", number=False),
        Column("verdict", "verdict", number=False),
        Column("because", "because", number=False),
        Column("source", "source", number=False),
    )
    known = [c for c in analysis.curves if published.model_key(c.model) and not c.demo]
    protocols = list(dict.fromkeys(c.protocol for c in known))
    rows = [
        Row(
            (protocol, c.claim, c.published, c.ours, c.verdict, c.because, c.source),
            group=f"Protocol {protocol}" if protocol else "Tables that name no study",
        )
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
        hidden=frozenset({"source", "protocol"}),
        verdicts=True,
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
    columns = (
        Column("study", "study", series.study_name, number=False),
        Column("model", "model", number=False),
        Column("task", "task", names.task_name, number=False),
        Column("train_size", "train size", names.size_name),
        Column("metric", "metric", names.metric_name, number=False),
        Column("frozen_layers", "frozen"),
        Column("gain", "gain, points", _gain),
        Column("low", "95 % low", _gain),
        Column("high", "95 % high", _gain),
        Column("p_value", "p", _p),
        Column("compared", "depths compared"),
        Column("runs", "runs"),
        Column("full_runs", "full runs"),
    )
    hidden = [] if any(g.train_size is not None for g in found) else ["train_size"]
    hidden += [] if series.shown else ["study"]
    ordered = sorted(found, key=lambda g: (g.p_value is None, g.p_value or 0.0))
    return Table(
        name="gains",
        title="Where freezing scores above full fine-tuning",
        columns=columns,
        rows=tuple(
            Row(
                (
                    g.study,
                    g.model,
                    g.task,
                    g.train_size,
                    g.metric,
                    g.frozen_layers,
                    g.gain,
                    g.low,
                    g.high,
                    g.p_value,
                    g.compared,
                    g.runs,
                    g.full_runs,
                ),
                strong=g.p_value is not None and g.p_value < 0.05,
            )
            for g in ordered
        ),
        hidden=frozenset(hidden),
        folded=len(found) > MOST_OPEN,
        note="The p-value is two-sided and adjusted for having picked the best of the depths compared.",
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
