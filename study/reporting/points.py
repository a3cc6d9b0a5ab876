"""The report's tables of operating points and of one number per model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from study import names
from study.analysis import published
from study.analysis.analyse import Analysis
from study.analysis.points import ModelPoint, OperatingPoint
from study.names import UNKNOWN
from study.reporting.document import Column, Row, Table, Value, silent
from study.reporting.series import Series

MOST_OPEN = 12
FEW = 4
AT_LEAST = " Possibly: as few as might do where the depths right beyond an answer were not measured."
POSSIBLY = "Possibly: as deep as the answer could be where the depths right beyond it were not measured. "
AT_MOST = " At most: what a task that was not followed deep enough may need."


def _score(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.4f}"


def _share(value: float | None) -> str:
    return names.percent(value)


def models_table(analysis: Analysis) -> Table | None:
    """The paper's single number per model, with its own beside it; None where a model has one task only."""
    tasks: defaultdict[tuple[object, ...], set[str]] = defaultdict(set)
    for c in analysis.curves:
        tasks[c.model, c.protocol, c.train_size].add(c.task)
    if max(map(len, tasks.values()), default=0) < 2:
        return None
    series = Series(analysis.curves)
    sizes = any(m.train_size is not None for m in analysis.models)
    columns = [
        Column("model", "model", number=False),
        Column("protocol", "protocol", number=False),
        Column("threshold", "of full quality", names.percent_short),
        Column("tuned_layers", "tuned layers"),
        Column("at_least_tuned_layers", "possibly"),
        Column("at_most_tuned_layers", "at most"),
        Column("total_layers", "of"),
        Column("probability", "probability", _probability),
        Column("limiting_tasks", "limited by", number=False),
        Column("left_out", "left out", number=False),
        Column("published_tuned_layers", "published"),
    ]
    if sizes:
        columns.insert(2, Column("train_size", "train size", names.size_name))
    rows = []
    for m in sorted(analysis.models, key=_model_order):
        key = published.model_key(m.model) if m.train_size is None else None
        figure = published.TUNED_LAYERS.get(key) if key and m.threshold == published.TUNED_THRESHOLD else None
        values: list[Value] = [
            m.model,
            m.protocol,
            m.threshold,
            m.tuned_layers,
            m.at_least_tuned_layers,
            m.at_most_tuned_layers,
            m.total_layers,
            m.probability.get(m.tuned_layers) if m.tuned_layers is not None else None,
            ", ".join(names.task_name(t) for t in m.limiting_tasks) or None,
            ", ".join(names.task_name(t) for t in (*m.excluded, *m.left_out)) or None,
            figure,
        ]
        if sizes:
            values.insert(2, m.train_size)
        rows.append(Row(tuple(values), group=f"At {names.percent_short(m.threshold)} of full quality"))
    seldom = ("at_least_tuned_layers", "at_most_tuned_layers", "left_out", "published_tuned_layers")
    hidden = {"threshold", *silent(columns, rows, seldom)}
    return Table(
        name="models",
        title="Tuned layers per model: the largest need over its tasks",
        columns=tuple(columns),
        rows=tuple(rows),
        hidden=frozenset(hidden | (set() if series.protocols_shown else {"protocol"})),
        note=(
            f"Probability: share of the bootstrap draws with this very answer. Published: {published.PAPER}, "
            "at 90 %, CoLA left out."
            + (AT_LEAST if "at_least_tuned_layers" not in hidden else "")
            + (AT_MOST if "at_most_tuned_layers" not in hidden else "")
        ),
    )


def points_tables(analysis: Analysis) -> list[Table]:
    """All in one where there are few, grouped by threshold; else one per threshold, grouped by model."""
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
    columns = (
        Column("threshold", "of full", names.percent_short),
        Column("study", "study", series.study_name, number=False),
        Column("protocol", "protocol", number=False),
        Column("model", "model", number=False),
        Column("task", "task", names.task_name, number=False),
        Column("train_size", "train size", names.size_name),
        Column("metric", "metric", names.metric_name, number=False),
        Column("tuned_layers", "tuned"),
        Column("frozen_layers", "frozen"),
        Column("deepest_frozen_layers", "frozen, possibly"),
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
    for p in sorted(points, key=lambda p: _order(p, series)):
        corrected = p.chance_corrected
        values: tuple[Value, ...] = (
            p.threshold,
            p.study,
            p.protocol,
            p.model,
            p.task,
            p.train_size,
            p.metric,
            p.tuned_layers,
            p.frozen_layers,
            p.deepest_frozen_layers,
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
        group = f"{series.name(p)}, {p.total_layers} layers"
        rows.append(Row(values, group=_heading(p) if threshold is None else group))
    hidden = ["threshold", "protocol", "model", "relative_low", "relative_high", "note"]
    hidden += [] if series.shown else ["study"]
    if series.shown and len({(p.task, p.metric) for p in points}) == 1:
        # The title says which; the study's column needs the room.
        hidden += ["task", "metric"]
    hidden += [] if any(p.deepest_frozen_layers is not None for p in points) else ["deepest_frozen_layers"]
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
            + ("" if "deepest_frozen_layers" in hidden else POSSIBLY)
            + "Probability: the share of bootstrap draws with this very answer. "
            "Confident: the deepest freeze that stays above the threshold in 95 % of the draws and by "
            "Student's one-sided test. "
            "Above chance: the same question with chance taken off both scores. "
            "Sustained: no smaller freeze fails."
        ),
    )


def _model_order(m: ModelPoint) -> tuple[object, ...]:
    return m.threshold, m.model, m.protocol or "", m.train_size or 0


def _order(p: OperatingPoint, series: Series) -> tuple[object, ...]:
    return p.threshold, series.rank(p), names.task_order(p.task), p.metric, p.train_size or 0


def _heading(p: OperatingPoint) -> str:
    return f"At {names.percent_short(p.threshold)} of full quality"


def _probability(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.2f}"
