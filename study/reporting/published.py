"""The report's tables beside the published figures: the paper's tables, its claims, and gains by freezing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from study import names
from study.analysis import published
from study.analysis.analyse import Analysis
from study.analysis.claims import PublishedScore, claims, gains, published_scores
from study.names import UNKNOWN
from study.reporting.document import Column, Row, Table, Value

MOST_OPEN = 12

PAPER_TABLES = (
    "The tables below are laid out as the paper's Tables 3 to 6: percent, with the row of this study's "
    f"operating point in bold. Published figures: {published.PAPER_LOGS}; "
    "† marks one outside our 95 % interval."
)


def paper_tables(analysis: Analysis) -> list[Table]:
    """The paper's Tables 3-6: nothing, the operating point and everything frozen, ours over published."""
    squares = published_scores(analysis)
    models = list(dict.fromkeys(c.model for c in analysis.curves if c.train_size is None))
    return [t for model in models if (t := _paper_table(analysis, model, squares)) is not None]


def _paper_table(analysis: Analysis, model: str, squares: Sequence[PublishedScore]) -> Table | None:
    curves = [c for c in analysis.curves if c.model == model and c.train_size is None]
    curves.sort(key=lambda c: (names.task_order(c.task), c.metric))
    layers = curves[0].total_layers
    threshold = min(analysis.thresholds)
    own = next(
        (m for m in analysis.models if (m.model, m.threshold, m.train_size) == (model, threshold, None)), None
    )
    theirs = {s.frozen_layers for s in squares if s.model == model}
    if len(curves) < 2 and not theirs:
        return None
    answer = None if own is None or own.tuned_layers is None else layers - own.tuned_layers
    depths = sorted(theirs | {0, layers} | ({answer} if answer is not None else set()))
    columns = (
        Column("frozen_layers", "frozen", number=False),
        Column("source", "score", number=False),
        *(Column(_unique(c.task, c.metric, curves), names.place(c, curves), _points) for c in curves),
    )
    rows: list[Row] = []
    for depth in depths:
        found = [(c, c.at(depth)) for c in curves]
        if not any(d is not None and d.score is not None for _, d in found) and depth not in theirs:
            continue
        here: list[Value] = [depth, "here"]
        here += [None if d is None or d.score is None else 100 * d.score for _, d in found]
        rows.append(Row(tuple(here), strong=depth == answer))
        if depth in theirs:
            by_task = {s.task: s.published for s in squares if s.model == model and s.frozen_layers == depth}
            rows.append(
                Row(
                    (depth, "published", *(by_task.get(c.task) for c in curves)),
                    quiet=True,
                    marked=frozenset(
                        i + 2
                        for i, c in enumerate(curves)
                        for s in squares
                        if (s.model, s.task, s.frozen_layers, s.verdict) == (model, c.task, depth, "differ")
                    ),
                )
            )
    return Table(
        name=f"paper_table_{model}",
        title=f"{model}: scores with nothing, the operating point and everything frozen",
        columns=columns,
        rows=tuple(rows),
        mark="differs",
    )


def claims_table(analysis: Analysis) -> Table:
    columns = (
        Column("claim", "claim", number=False),
        Column("published", "published", number=False),
        Column("ours", "here", number=False),
        Column("verdict", "verdict", number=False),
        Column("because", "because", number=False),
        Column("source", "source", number=False),
    )
    found = claims(analysis)
    return Table(
        name="claims",
        title="The paper's claims, checked",
        columns=columns,
        rows=tuple(Row((c.claim, c.published, c.ours, c.verdict, c.because, c.source)) for c in found),
        hidden=frozenset({"source"}),
        verdicts=True,
        note=f"Source: {published.PAPER}. Differ needs evidence; too few runs are “cannot tell”.",
    )


def gains_table(analysis: Analysis) -> Table | None:
    found = gains(analysis.curves)
    if not found:
        return None
    columns = (
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
    ordered = sorted(found, key=lambda g: (g.p_value is None, g.p_value or 0.0))
    return Table(
        name="gains",
        title="Where freezing scores above full fine-tuning",
        columns=columns,
        rows=tuple(
            Row(
                (
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
        hidden=frozenset() if any(g.train_size is not None for g in found) else frozenset({"train_size"}),
        folded=len(found) > MOST_OPEN,
        note="The p-value is two-sided and adjusted for having picked the best of the depths compared.",
    )


def _unique(task: str, metric: str, curves: Sequence[Any]) -> str:
    return task if sum(c.task == task for c in curves) == 1 else f"{task}_{metric}"


def _points(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1f}"


def _gain(value: float | None) -> str:
    return UNKNOWN if value is None else f"{100 * value:+.2f}"


def _p(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.2g}" if value >= 0.001 else "<0.001"
