"""The tables of operating points and of one number per model, for every rendering."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from study.analysis import published
from study.analysis.analyse import Analysis
from study.analysis.model_points import ModelPoint
from study.analysis.points import OperatingPoint
from study.reporting import names, quality_words
from study.reporting.document import Column, Row, Table, Value, label
from study.reporting.series import Series, curve_key
from study.reporting.tables import place, score

MOST_OPEN = 12
FEW = 4
LIKELIEST = 3


def models_table(analysis: Analysis) -> Table | None:
    """The paper's single number per model, with its own beside it; None where a model has one task only."""
    tasks: defaultdict[tuple[object, ...], set[str]] = defaultdict(set)
    for c in analysis.curves:
        tasks[c.model, c.protocol, c.train_size].add(c.task)
    if max(map(len, tasks.values()), default=0) < 2:
        return None
    series = Series(analysis.curves)
    sizes = any(m.train_size is not None for m in analysis.models)
    train_size = Column("train_size", "train size", show=names.size_name, key=True)
    ranged = any(m.at_least_tuned_layers is not None for m in analysis.models)
    columns = (
        label("model", key=True),
        label("protocol", key=True, shown=series.protocols_shown),
        *([train_size] if sizes else []),
        Column("threshold", "of full quality", show=names.percent_short, shown=False),
        Column("tuned", "tuned layers", get=_tuned_range, csv=False, note=_gap(ranged)),
        Column("tuned_layers", "tuned layers", shown=False),
        Column("at_least_tuned_layers", "at least", shown=False),
        Column("at_most_tuned_layers", "at most", seldom=True, note=_AT_MOST),
        Column("total_layers", "of"),
        Column(
            "probability", "probability", get=_model_probability, show=names.probability, note=_THIS_ANSWER
        ),
        label("limiting_tasks", "limited by", get=lambda m: _tasks(m.limiting_tasks)),
        label(
            "left_out",
            "left out",
            get=lambda m: _tasks((*m.excluded, *m.left_out)),
            seldom=True,
            note=_LEFT_OUT,
        ),
        Column("published_tuned_layers", "published", get=_published, seldom=True, note=_PUBLISHED),
    )
    return Table(
        name="models",
        title="Tuned layers per model: the largest need over its tasks",
        columns=columns,
        rows=tuple(
            Row(m, group=f"At {names.percent_short(m.threshold)} of full quality")
            for m in sorted(analysis.models, key=_model_order)
        ),
    )


_LEFT_OUT = "Left out: tasks without an answer, and with --as-paper those that the paper leaves out."
_AT_MOST = "At most: upper bound where deeper freezes were not run."
_THIS_ANSWER = "Probability: that this number is right, given the runs; empty where depths were not measured."
_PUBLISHED = f"Published: {published.PAPER}, at 90 %, CoLA left out."


def _gap(found: bool) -> str:
    """What a range means, where there is one."""
    return "A range: the depths right beyond the answer were not measured." if found else ""


def _tuned_range(m: ModelPoint) -> Value:
    return _span(m.at_least_tuned_layers, m.tuned_layers)


def _span(first: int | None, last: int | None) -> Value:
    return last if first is None or last is None else f"{first}–{last}"


def _model_probability(m: ModelPoint) -> Value:
    return None if m.tuned_layers is None else m.probability.get(m.tuned_layers)


def _tasks(tasks: Sequence[str]) -> Value:
    return ", ".join(names.task_name(task) for task in tasks) or None


def _published(m: ModelPoint) -> Value:
    key = published.model_key(m.model) if m.train_size is None else None
    return published.TUNED_LAYERS.get(key) if key and m.threshold == published.TUNED_THRESHOLD else None


def points_tables(analysis: Analysis) -> list[Table]:
    """All in one where there are few, else one per threshold, grouped by model."""
    series = Series(analysis.curves)
    if len(analysis.curves) <= FEW:
        return [_points_table(analysis.points, series, None, folded=False)]
    thresholds = sorted(analysis.thresholds)
    return [
        _points_table(
            [p for p in analysis.points if p.threshold == threshold],
            series,
            threshold,
            folded=threshold != thresholds[0] and len(analysis.curves) > MOST_OPEN,
        )
        for threshold in thresholds
    ]


def _points_table(
    points: Sequence[OperatingPoint], series: Series, threshold: float | None, *, folded: bool
) -> Table:
    percent = "" if threshold is None else f"{100 * threshold:.4g}"
    alone = len(set(map(curve_key, points))) == 1
    return Table(
        name="operating_points" + (f"_{percent.replace('.', '_')}" if percent else ""),
        title=_title(points, series, percent, alone=alone),
        columns=_columns(points, series, alone=alone, by_threshold=threshold is None),
        rows=tuple(
            Row(p, group=None if alone else _heading(p, series, threshold))
            for p in sorted(series.ordered(points), key=lambda p: p.threshold)
        ),
        folded=folded,
    )


def _title(points: Sequence[OperatingPoint], series: Series, percent: str, *, alone: bool) -> str:
    title = f"Operating points at {percent} % of full quality" if percent else "Operating points"
    if not alone:
        return title
    p = points[0]
    task, metric = names.task_name(p.task), names.metric_name(p.metric)
    return f"{title}: {series.name(p)} on {task}, {metric}, {p.total_layers} layers"


def _heading(p: OperatingPoint, series: Series, threshold: float | None) -> str:
    if threshold is None:
        return f"At {names.percent_short(p.threshold)} of full quality"
    return f"{series.name(p)}, {p.total_layers} layers"


def _columns(
    points: Sequence[OperatingPoint], series: Series, *, alone: bool, by_threshold: bool
) -> tuple[Column, ...]:
    hidden = set() if by_threshold and len({p.model for p in points}) > 1 else {"model"}
    if alone or (series.shown and len({(p.task, p.metric) for p in points}) == 1):
        # The title says which; the study's column needs the room.
        hidden |= {"task", "metric"}
    study, *others = place(series, hidden)
    ranged = any(p.deepest_frozen_layers is not None for p in points)
    return (
        Column("threshold", "at least", show=names.percent_short, key=True, shown=alone and by_threshold),
        study,
        label("protocol", shown=False),
        *others,
        Column("tuned", "tuned", get=_tuned, csv=False),
        Column("tuned_layers", "tuned", shown=False),
        label("status", shown=False),
        Column("total_layers", "of", csv=False, shown=by_threshold),
        Column("frozen", "frozen", get=_frozen, csv=False, note=f"{_FROZEN} {_gap(ranged)}".strip()),
        Column("frozen_layers", "frozen", shown=False),
        Column("deepest_frozen_layers", "deepest", shown=False),
        Column(
            "keeps",
            "keeps",
            get=lambda p: p.relative,
            show=names.percent,
            csv=False,
            note=quality_words.keeps(p.metric for p in points),
        ),
        Column("interval", "95 % interval", get=_interval, csv=False),
        label("likeliest", "probability", get=_likeliest, csv=False, note=_PROBABILITY),
        Column("probability", "probability", get=_probability, shown=False),
        Column("confident_frozen_layers", "frozen, confident", note=_CONFIDENT),
        Column(
            "chance_corrected_frozen_layers", "frozen, above chance", get=_above_chance, note=_ABOVE, csv=True
        ),
        Column(
            "chance_corrected_confident",
            "confident, above chance",
            get=lambda p: p.chance_corrected and p.chance_corrected.confident_frozen_layers,
            shown=False,
        ),
        Column("relative", "keeps", shown=False),
        Column("score", "score", show=score),
        Column("full_score", "full score", show=score),
        Column("learning_rate", "rate", show=names.rate),
        Column("runs", "runs", get=lambda p: p.trials if p.status == "ok" else None, csv=False),
        Column("trials", "runs", shown=False),
        Column(
            "success",
            "learned",
            show=lambda share: names.percent(share, 0),
            csv=False,
            shown=any(p.success is not None and p.success < 1 for p in points),
            note=_LEARNED,
        ),
        Column("success", "success", shown=False),
        label("sustained", get=_sustained, note="Sustained: no smaller freeze fails."),
        Column("relative_low", "low", shown=False),
        Column("relative_high", "high", shown=False),
        label("reason", shown=False),
        label("note", get=lambda p: "; ".join(p.notes) or None, shown=False),
    )


_FROZEN = "Frozen: the most layers frozen whose mean reaches the threshold; -1 is the embeddings alone."
_PROBABILITY = (
    "Probability: of the likeliest answers, given the runs; for a range, only its first depth was measured."
)
_CONFIDENT = (
    "Confident: the deepest freeze that reaches the threshold with 95 % confidence, and so does every "
    "shallower one that was measured."
)
_LEARNED = (
    "Learned: the share of the runs at the answer that did; collapsed and diverged ones are not in the score."
)
_ABOVE = "Above chance: the same question with chance taken off both scores."


def _tuned(p: OperatingPoint) -> Value:
    fewest = None if p.deepest_frozen_layers is None else p.fewest_tuned_layers
    return p.status if p.status != "ok" else _span(fewest, p.tuned_layers)


def _frozen(p: OperatingPoint) -> Value:
    return (
        p.frozen_layers
        if p.deepest_frozen_layers is None
        else _span(p.frozen_layers, p.deepest_frozen_layers)
    )


def _likeliest(p: OperatingPoint) -> Value:
    shares = {str(depth): share for depth, share in p.probability.items()}
    shares |= {f"{b.first}–{b.last}": b.probability for b in p.probability_between}
    likeliest = sorted(shares.items(), key=lambda item: -item[1])[:LIKELIEST]
    return (
        ", ".join(f"{depth}: {names.probability(share)}" for depth, share in likeliest if share >= 0.005)
        or None
    )


def _probability(p: OperatingPoint) -> Value:
    return None if p.frozen_layers is None else p.probability.get(p.frozen_layers)


def _above_chance(p: OperatingPoint) -> Value:
    return p.chance_corrected.frozen_layers if p.chance_corrected else None


def _interval(p: OperatingPoint) -> Value:
    if p.relative_low is None or p.relative_high is None:
        return None
    return names.interval(p.relative_low, p.relative_high, 1)


def _sustained(p: OperatingPoint) -> Value:
    return p.sustained if p.frozen_layers is not None else None


def _model_order(m: ModelPoint) -> tuple[object, ...]:
    return m.threshold, m.model, m.protocol or "", m.train_size or 0
