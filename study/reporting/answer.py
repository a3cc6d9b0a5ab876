"""The answer of a study in a sentence: how many layers to tune, what that keeps and what it saves.

Words from an analysis and its costs; it decides nothing and invents no number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from study.analysis.analyse import Analysis
from study.analysis.points import ModelPoint, OperatingPoint
from study.names import metric_name, task_name
from study.reporting.series import Series

if TYPE_CHECKING:
    from study.analysis.costs import CurveCosts, DepthCost

CLOSE = 0.05
"""How near to the threshold the majority class must come to be mentioned."""


def answers(analysis: Analysis, costs: Sequence[CurveCosts] = ()) -> tuple[str, ...]:
    """One sentence per model, protocol and train size, at the lowest threshold."""
    threshold = min(analysis.thresholds)
    models = [m for m in analysis.models if m.threshold == threshold]
    series = Series(analysis.curves)
    several = len(models) > 1
    return tuple(_sentence(analysis, model, costs, series, named=several) for model in models)


def facts(analysis: Analysis, costs: Sequence[CurveCosts] = ()) -> tuple[tuple[str, str], ...]:
    """The few numbers that go on top: a value and what it is."""
    threshold = min(analysis.thresholds)
    models = [m for m in analysis.models if m.threshold == threshold]
    found: list[tuple[str, str]] = []
    if len(models) == 1 and len([p for p in analysis.points if p.threshold == threshold]) == 1:
        found += _point_facts(next(p for p in analysis.points if p.threshold == threshold), costs)
    else:
        found += _scope_facts(analysis)
    counts = analysis.counts
    failed = f", {counts.failed:,} failed" if counts.failed else ""
    return (*found, (f"{counts.complete:,}", f"complete trials{failed}"))


def _point_facts(point: OperatingPoint, costs: Sequence[CurveCosts]) -> list[tuple[str, str]]:
    if point.tuned_layers is None or point.frozen_layers is None:
        return []
    found = [(f"{point.tuned_layers} of {point.total_layers}", "layers to tune")]
    if point.relative is not None:
        found.append((f"{100 * point.relative:.0f} %", "of full quality"))
    cost = _cost(point, costs)
    told = {"seconds": "of the time", "peak_memory_bytes": "of the memory", "storage_bytes": "of the storage"}
    if cost is not None and cost.frozen_layers != 0:
        found += [
            (f"{100 * share:.0f} %", told[name]) for name, share in cost.relative.items() if name in told
        ]
    return found


def _scope_facts(analysis: Analysis) -> list[tuple[str, str]]:
    """Of several models or tasks: how much was compared. The sentences say the rest."""
    models = {c.model for c in analysis.curves}
    tasks = {c.task for c in analysis.curves}
    sizes = {c.train_size for c in analysis.curves}
    runs = [len(d.scores) for c in analysis.curves for d in c.depths if d.scores]
    span = f"{min(runs)}–{max(runs)}" if runs and min(runs) < max(runs) else str(max(runs, default=0))
    series = Series(analysis.curves)
    return [
        (str(len(models)), "model" if len(models) == 1 else "models"),
        (str(len(tasks)), "task" if len(tasks) == 1 else "tasks"),
        *([(str(series.studies), "studies")] if series.shown else []),
        *([(str(len(sizes)), "train sizes")] if len(sizes) > 1 else []),
        (span, "runs behind each mean"),
    ]


def _sentence(
    analysis: Analysis, model: ModelPoint, costs: Sequence[CurveCosts], series: Series, *, named: bool
) -> str:
    whose = (model.model, model.protocol, model.train_size, model.threshold)
    own = [p for p in analysis.points if (p.model, p.protocol, p.train_size, p.threshold) == whose]
    size = "" if model.train_size is None else f" at {model.train_size:,} training examples"
    opening = f"{series.of_protocol(model.model, model.protocol)}{size}: " if named else ""
    point = own[0] if len(own) == 1 else _limiting(model, own)
    share = f"{100 * model.threshold:.4g} %"
    if point.tuned_layers is None or point.frozen_layers is None:
        why = point.notes[0] if point.notes else f"no measured freeze keeps {share} of the full quality"
        return f"{opening}{'N' if not opening else 'n'}o answer yet for {task_name(point.task)}: {why}."
    where = "" if len(own) == 1 else f" on {task_name(point.task)}{_among(model, point, own)}"
    parts = [f"{_kept(point)}{where}", *_savings(_cost(point, costs))]
    said = f"{opening}{_advice(point, bool(opening))}: {', '.join(parts)}."
    return f"{said}{_unsettled(model)}{_doubt(point)}{_warning(point)}"


def _limiting(model: ModelPoint, own: Sequence[OperatingPoint]) -> OperatingPoint:
    """The point that the model's number comes from: of its limiting task the one with least to spare."""
    answered = [p for p in own if p.task == model.limiting_task and p.tuned_layers is not None]
    exact = [p for p in answered if p.tuned_layers == model.tuned_layers]
    return min(exact or answered, key=lambda p: (-(p.tuned_layers or 0), p.relative or 0.0), default=own[0])


def _advice(point: OperatingPoint, lower: bool) -> str:
    tuned, total, frozen = point.tuned_layers, point.total_layers, point.frozen_layers
    if tuned == 0:
        text = f"Freeze all {total} layers and tune the task head alone"
    elif frozen == -1:
        text = f"Fine-tune all {total} layers and freeze the embeddings"
    elif frozen == 0 and not point.freezes:
        text = f"Fine-tune all {total} layers; no freeze was measured"
    elif frozen == 0:
        text = f"Fine-tune all {total} layers; no measured freeze keeps {100 * point.threshold:.4g} %"
    elif tuned == 1:
        text = f"Fine-tune the last of {total} layers"
    else:
        text = f"Fine-tune the last {tuned} of {total} layers"
    return text[0].lower() + text[1:] if lower else text


def _kept(point: OperatingPoint) -> str:
    if point.relative is None:
        return "quality relative to full unknown"
    interval = ""
    if point.relative_low is not None and point.relative_high is not None:
        interval = f" [{100 * point.relative_low:.0f}–{100 * point.relative_high:.0f}]"
    return f"{100 * point.relative:.0f} % of full quality{interval}"


def _savings(cost: DepthCost | None) -> list[str]:
    """Nothing for the full model, which is what the others are compared with."""
    if cost is None or cost.frozen_layers == 0:
        return []
    parts = []
    seconds = cost.relative.get("seconds")
    memory = cost.relative.get("peak_memory_bytes")
    if seconds:
        parts.append(_times(seconds))
    if memory:
        parts.append(f"{100 * memory:.0f} % of the memory")
    if cost.trainable_share is not None:
        parts.append(f"{100 * cost.trainable_share:.0f} % of the parameters trained")
    return parts


def _times(share: float) -> str:
    if f"{max(share, 1 / share):.1f}" == "1.0":
        return "about the same time"
    return f"{1 / share:.1f}x less time" if share < 1 else f"{share:.1f}x the time"


def _among(model: ModelPoint, point: OperatingPoint, own: Sequence[OperatingPoint]) -> str:
    """Which of the points behind one number this is, and what it was compared with."""
    silent = [task for task in (*model.excluded, *model.left_out) if task != point.task]
    voting = {p.task for p in own if p.task not in silent}
    same = [p for p in own if p.task == point.task]
    parts = [f" by {metric_name(point.metric)}"] if len({p.metric for p in same}) > 1 else []
    parts += [f" in study {point.study or 'without a name'}"] if len({p.study for p in same}) > 1 else []
    answered = [p for p in same if p.tuned_layers is not None and p.freezes]
    counts = {
        "tasks": len(voting),
        "studies": len({p.study for p in answered}),
        "metrics": len({p.metric for p in answered}),
    }
    compared = next((f"{count} {things}" for things, count in counts.items() if count > 1), None)
    parts += [f", the most demanding of {compared}"] if compared else []
    without = [task_name(task) for task in silent if task != model.at_most_task]
    return "".join(parts) + (f" ({', '.join(without)} left out)" if without else "")


def _unsettled(model: ModelPoint) -> str:
    """Depths that were not measured: fewer layers may do, or a task not followed deep enough need more."""
    said = ""
    if model.at_least_tuned_layers is not None:
        said = f" As few as {model.at_least_tuned_layers} may do: the depths between were not measured."
    if model.at_most_tuned_layers is None or model.at_most_task is None:
        return said
    task = task_name(model.at_most_task)
    return f"{said} {task} may need up to {model.at_most_tuned_layers}: nothing deeper was measured there."


def _doubt(point: OperatingPoint) -> str:
    """What to do where the runs do not make the answer sure."""
    if point.relative_low is None and (point.trials < 2 or point.full_trials < 2):
        return " That is one run: its uncertainty is unknown."
    sure = point.confident_tuned_layers
    if sure is None or point.tuned_layers is None or sure <= point.tuned_layers:
        return ""
    layers = "1 layer" if sure == 1 else f"{sure} layers"
    return f" To be 95 % sure of {100 * point.threshold:.4g} %, tune {layers}."


def _warning(point: OperatingPoint) -> str:
    """Where the majority class alone comes close to the threshold, the share of full quality says little."""
    if not point.chance or not point.full_score:
        return ""
    if point.chance < (point.threshold - CLOSE) * point.full_score:
        return ""
    if point.chance >= point.full_score:
        return " But the full model is no better than the majority class: shares of its quality say nothing."
    alone = f" But the majority class alone keeps {100 * point.chance / point.full_score:.0f} % here"
    corrected = point.chance_corrected
    if corrected is None or corrected.tuned_layers is None:
        return f"{alone}."
    share = f"{100 * point.threshold:.4g} %"
    return f"{alone}; to keep {share} of what is above it, tune {corrected.tuned_layers} layers."


def _cost(point: OperatingPoint, costs: Sequence[CurveCosts]) -> DepthCost | None:
    own = (point.study, point.model, point.task, point.train_size, point.metric)
    found = (c for c in costs if (c.study, c.model, c.task, c.train_size, c.metric) == own)
    curve = next(found, None)
    return None if curve is None or point.frozen_layers is None else curve.at(point.frozen_layers)
