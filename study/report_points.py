"""The report's tables of operating points, one number per model, published figures and claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from study import names, published
from study.analysis import Analysis
from study.claims import PublishedScore, claims, gains, published_scores
from study.document import Column, Row, Table, Value, silent
from study.names import UNKNOWN
from study.points import OperatingPoint

MOST_OPEN = 12
FEW = 4


def _score(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.4f}"


def _share(value: float | None) -> str:
    return names.percent(value)


def models_table(analysis: Analysis) -> Table | None:
    """The paper's single number per model, with its own beside it; None where a model has one task only."""
    per_model = Counter((c.model, c.train_size) for c in analysis.curves)
    if max(per_model.values(), default=0) < 2:
        return None
    sizes = any(m.train_size is not None for m in analysis.models)
    columns = [
        Column("model", "model", number=False),
        Column("threshold", "of full quality", names.percent_short),
        Column("tuned_layers", "tuned layers"),
        Column("total_layers", "of"),
        Column("probability", "probability", _probability),
        Column("limiting_tasks", "limited by", number=False),
        Column("left_out", "left out", number=False),
        Column("published_tuned_layers", "published"),
    ]
    if sizes:
        columns.insert(1, Column("train_size", "train size", names.size_name))
    rows = []
    for m in sorted(analysis.models, key=lambda m: (m.threshold, m.model, m.train_size or 0)):
        key = published.model_key(m.model) if m.train_size is None else None
        figure = published.TUNED_LAYERS.get(key) if key and m.threshold == published.TUNED_THRESHOLD else None
        values: list[Value] = [
            m.model,
            m.threshold,
            m.tuned_layers,
            m.total_layers,
            m.probability.get(m.tuned_layers) if m.tuned_layers is not None else None,
            ", ".join(names.task_name(t) for t in m.limiting_tasks) or None,
            ", ".join(names.task_name(t) for t in (*m.excluded, *m.left_out)) or None,
            figure,
        ]
        if sizes:
            values.insert(1, m.train_size)
        rows.append(Row(tuple(values), group=f"At {names.percent_short(m.threshold)} of full quality"))
    return Table(
        name="models",
        title="Tuned layers per model: the largest need over its tasks",
        columns=tuple(columns),
        rows=tuple(rows),
        hidden=frozenset({"threshold"}) | silent(columns, rows, ("left_out", "published_tuned_layers")),
        note=(
            f"Probability: share of the bootstrap draws with this very answer. Published: {published.PAPER}, "
            "at 90 %, CoLA left out."
        ),
    )


def points_tables(analysis: Analysis) -> list[Table]:
    """All in one where there are few, grouped by threshold; else one per threshold, grouped by model."""
    if len(analysis.curves) <= FEW:
        return [_points_table(analysis.points, None, folded=False)]
    thresholds = sorted(analysis.thresholds)
    return [
        _points_table(
            [p for p in analysis.points if p.threshold == threshold],
            threshold,
            folded=threshold != thresholds[0] and len(analysis.curves) > MOST_OPEN,
        )
        for threshold in thresholds
    ]


def _points_table(points: Sequence[OperatingPoint], threshold: float | None, *, folded: bool) -> Table:
    columns = (
        Column("threshold", "of full", names.percent_short),
        Column("model", "model", number=False),
        Column("task", "task", names.task_name, number=False),
        Column("train_size", "train size", names.size_name),
        Column("metric", "metric", names.metric_name, number=False),
        Column("tuned_layers", "tuned"),
        Column("frozen_layers", "frozen"),
        Column("probability", "probability", _probability),
        Column("confident_frozen_layers", "frozen, confident"),
        Column("chance_corrected_frozen_layers", "frozen, above chance"),
        Column("relative", "of full", _share),
        Column("interval", "95 % interval", number=True, raw=False),
        Column("score", "score", _score),
        Column("full_score", "full score", _score),
        Column("learning_rate", "rate", names.rate),
        Column("trials", "runs"),
        Column("sustained", "sustained", number=False),
        Column("relative_low", "low", _share, raw=True),
        Column("relative_high", "high", _share, raw=True),
        Column("note", "note", number=False),
    )
    rows = []
    for p in sorted(points, key=_order):
        corrected = p.chance_corrected
        values: tuple[Value, ...] = (
            p.threshold,
            p.model,
            p.task,
            p.train_size,
            p.metric,
            p.tuned_layers,
            p.frozen_layers,
            p.probability.get(p.frozen_layers) if p.frozen_layers is not None else None,
            p.confident_frozen_layers,
            corrected.frozen_layers if corrected else None,
            p.relative,
            names.interval(p.relative_low, p.relative_high, 1),
            p.score,
            p.full_score,
            p.learning_rate,
            p.trials,
            p.sustained if p.frozen_layers is not None else None,
            p.relative_low,
            p.relative_high,
            "; ".join(p.notes) or None,
        )
        group = f"{p.model}, {p.total_layers} layers"
        rows.append(Row(values, group=_heading(p) if threshold is None else group))
    hidden = ["threshold", "model", "relative_low", "relative_high", "note"]
    hidden += [] if any(p.train_size is not None for p in points) else ["train_size"]
    if threshold is None and len({p.model for p in points}) > 1:
        hidden.remove("model")
    percent = "" if threshold is None else f"{100 * threshold:.4g}"
    return Table(
        name="operating_points" + (f"_{percent.replace('.', '_')}" if percent else ""),
        title=f"Operating points at {percent} % of full quality" if percent else "Operating points",
        columns=columns,
        rows=tuple(rows),
        hidden=frozenset(hidden),
        folded=folded,
        note=(
            "Frozen: the most layers frozen whose mean reaches the threshold; -1 is the embeddings alone. "
            "Probability: the share of bootstrap draws with this very answer. "
            "Confident: the deepest freeze that stays above the threshold in 95 % of the draws. "
            "Above chance: the same question with chance taken off both scores. "
            "Sustained: no smaller freeze fails."
        ),
    )


def _order(p: OperatingPoint) -> tuple[object, ...]:
    return p.threshold, p.model, names.task_order(p.task), p.metric, p.train_size or 0


def _heading(p: OperatingPoint) -> str:
    return f"At {names.percent_short(p.threshold)} of full quality"


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


def _probability(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.2f}"
