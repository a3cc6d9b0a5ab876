"""The answer of a study in a sentence: how many layers to tune, what that keeps and what it saves.

It puts an analysis and its costs into words; it computes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from study.analysis import published
from study.analysis.analyse import Analysis
from study.analysis.chance import kept_by_chance
from study.analysis.model_points import ModelPoint
from study.analysis.points import OperatingPoint
from study.reporting.document import Answer
from study.reporting.names import metric_name, percent, percent_short, probability, task_name
from study.reporting.series import Series, curve_key
from study.reporting.sureness import how_sure, layers, reliability, what_would_change

if TYPE_CHECKING:
    from study.analysis.costs import CurveCosts, DepthCost
    from study.analysis.quality import Curve

CLOSE = 0.05
"""How near to the threshold the majority class must come to be mentioned."""


def answers(analysis: Analysis, costs: Sequence[CurveCosts] = ()) -> tuple[Answer, ...]:
    """One per model, protocol and train size, at the lowest threshold."""
    threshold = min(analysis.thresholds)
    models = [m for m in analysis.models if m.threshold == threshold]
    series = Series(analysis.curves)
    return tuple(_answer(analysis, model, costs, series, named=len(models) > 1) for model in models)


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
    if point.relative is not None and point.frozen_layers != 0:
        found.append((f"{100 * point.relative:.0f} %", "of full quality"))
    if point.sureness is not None and not point.deepest_frozen_layers:
        found.append((probability(point.sureness), "probability of this answer"))
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
        (span, "run per mean" if span == "1" else "runs per mean"),
    ]


def _answer(
    analysis: Analysis, model: ModelPoint, costs: Sequence[CurveCosts], series: Series, *, named: bool
) -> Answer:
    key = (model.model, model.protocol, model.train_size, model.threshold)
    own = [p for p in analysis.points if (p.model, p.protocol, p.train_size, p.threshold) == key]
    size = "" if model.train_size is None else f" at {model.train_size:,} training examples"
    whose = f"{series.of_protocol(model.model, model.protocol)}{size}" if named else None
    point = own[0] if len(own) == 1 else _limiting(model, own)
    if point.tuned_layers is None or point.frozen_layers is None:
        return Answer(whose=whose, sentence=_no_answer(point, own, "n" if whose else "N"))
    where = "" if len(own) == 1 else f" on {task_name(point.task)}{_among(model, point, own)}"
    said = f"{_advice(point)}: {_kept(point, analysis.thresholds)}{where}."
    several = len(own) > 1
    parts = {
        "95 % interval": _interval(point),
        "Saves": _savings(_cost(point, costs)),
        "How sure": _together(how_sure(model, point, several=several), _unsettled(model, point, several)),
        "What would change it": _together(
            what_would_change(analysis, point), _beyond_the_rates(analysis, point)
        ),
        "Caution": _together(reliability(point), _warning(point)),
        "Not counted": _left_out(model, own, point),
        "The paper": _published(analysis, model, own),
    }
    return Answer(
        whose=whose,
        sentence=said if whose is None else said[0].lower() + said[1:],
        parts=tuple((name, text) for name, text in parts.items() if text),
    )


def _together(*sentences: str) -> str:
    return " ".join(filter(None, sentences))


def _no_answer(point: OperatingPoint, own: Sequence[OperatingPoint], first: str) -> str:
    task = f" for {task_name(point.task)}" if len(own) > 1 else ""
    return f"{first}o answer{task}: {point.reason}."


def _limiting(model: ModelPoint, own: Sequence[OperatingPoint]) -> OperatingPoint:
    """The point that the model's number comes from: of its limiting task the one with least to spare."""
    answered = [p for p in own if p.task == model.limiting_task and p.tuned_layers is not None]
    exact = [p for p in answered if p.tuned_layers == model.tuned_layers]
    return min(exact or answered, key=lambda p: (-(p.tuned_layers or 0), p.relative or 0.0), default=own[0])


def _advice(point: OperatingPoint) -> str:
    tuned, total, frozen = point.tuned_layers, point.total_layers, point.frozen_layers
    if tuned == 0:
        return f"Freeze all {total} layers and tune the task head alone"
    if frozen == -1:
        return f"Fine-tune all {total} layers and freeze the embeddings"
    if frozen == 0:
        return f"Fine-tune all {total} layers"
    return f"Fine-tune {'only the last' if tuned == 1 else f'the last {tuned}'} of {total} layers"


def _kept(point: OperatingPoint, thresholds: Sequence[float]) -> str:
    if point.frozen_layers == 0:
        # The full model keeps everything and saves nothing beside itself.
        return f"no freeze that was measured keeps {percent_short(point.threshold)} of its quality"
    if point.relative is None:
        return "what that keeps of the full model's quality is not known"
    return f"that keeps {percent(point.relative, 0, beside=thresholds)} of the full model's quality"


def _interval(point: OperatingPoint) -> str:
    if point.relative_low is None or point.relative_high is None:
        return ""
    low, high = 100 * point.relative_low, 100 * point.relative_high
    digits = 0 if high - low >= 1 else 1
    span = f"{low:.{digits}f} to {high:.{digits}f} %"
    return f"{span} of full quality; {percent_short(point.threshold)} is the threshold."


def _savings(cost: DepthCost | None) -> str:
    """Nothing for the full model, which is what the others are compared with."""
    if cost is None or cost.frozen_layers == 0:
        return ""
    seconds, memory = cost.relative.get("seconds"), cost.relative.get("peak_memory_bytes")
    parts = []
    if seconds and seconds < 1 and not _about_one(seconds):
        parts.append(f"{100 * (1 - seconds):.0f} % of the training time ({1 / seconds:.1f}x faster)")
    if memory and memory < 0.995:
        parts.append(f"{100 * (1 - memory):.0f} % of the memory")
    if cost.trainable_share is not None:
        parts.append(f"{100 * (1 - cost.trainable_share):.0f} % of the parameters to train and store")
    told = f"{_listed(parts)}." if parts else ""
    if seconds and _about_one(seconds):
        return _together(told, "It takes about the same time.")
    return _together(told, f"But it takes {seconds:.1f}x the time.") if seconds and seconds > 1 else told


def _about_one(share: float) -> bool:
    return f"{max(share, 1 / share):.1f}" == "1.0"


def _listed(parts: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def _among(model: ModelPoint, point: OperatingPoint, own: Sequence[OperatingPoint]) -> str:
    """Which of the points behind one number this is, and among how many."""
    silent = {task for task in (*model.excluded, *model.left_out) if task != point.task}
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
    parts += [f", the one of {compared} that needs the most layers"] if compared else []
    return "".join(parts)


def _left_out(model: ModelPoint, own: Sequence[OperatingPoint], point: OperatingPoint) -> str:
    """Tasks that are not behind the model's number, and why."""
    if len(own) == 1:
        return ""
    as_paper = [
        *model.excluded,
        *(task for task, why in model.left_out.items() if why == published.NOT_IN_THE_PAPER),
    ]
    told = [f"{_listed(list(map(task_name, as_paper)))}, as in the paper."] if as_paper else []
    told += [
        f"{task_name(task)}: {why}."
        for task, why in model.left_out.items()
        if task not in (point.task, model.at_most_task) and why != published.NOT_IN_THE_PAPER
    ]
    return " ".join(told)


def _unsettled(model: ModelPoint, point: OperatingPoint, several: bool) -> str:
    """Depths that were not measured: fewer layers may do, or a task not followed deep enough need more."""
    parts = []
    if model.at_least_tuned_layers is not None and (several or not point.knows_probability):
        parts.append(f"As few as {model.at_least_tuned_layers} may do: the depths between were not measured.")
    if model.at_most_tuned_layers is not None and model.at_most_task is not None:
        task, most = task_name(model.at_most_task), model.at_most_tuned_layers
        parts.append(f"{task} may need up to {most}: nothing deeper was measured there.")
    return " ".join(parts)


def _beyond_the_rates(analysis: Analysis, point: OperatingPoint) -> str:
    """An optimum at the edge of the rates tried, for the full model or the answer: others may change it."""
    curve = next(c for c in analysis.curves if curve_key(c) == curve_key(point))
    edges = {d.rate_edge for n in (0, point.frozen_layers) if n is not None and (d := curve.at(n))} - {None}
    if not edges:
        return ""
    told = {"lowest": "lower", "highest": "higher"}
    found = [edge for edge in told if edge in edges]
    further = " and ".join(told[edge] for edge in found)
    best = " and the ".join(found)
    verb = "was" if len(found) == 1 else "were"
    return f"{further.capitalize()} learning rates may change it: the {best} tried {verb} the best."


def _published(analysis: Analysis, model: ModelPoint, own: Sequence[OperatingPoint]) -> str:
    """The paper's number, where this is one of its models, over several tasks as in the paper."""
    key = published.model_key(model.model) if model.train_size is None else None
    if key is None or model.threshold != published.TUNED_THRESHOLD or len({p.task for p in own}) < 2:
        return ""
    if any(p.demo for p in own):
        return ""
    how = "" if analysis.as_paper else ", computed differently; use --as-paper to compare"
    return f"{layers(published.TUNED_LAYERS[key])} for {key}{how}."


def majority_keeps(part: Curve | OperatingPoint, threshold: float) -> float | None:
    """The share of full quality that the majority class alone keeps, where that is close to a threshold."""
    kept = kept_by_chance(part.metric, part.chance, part.full_score)
    return None if kept is None or kept < threshold - CLOSE else kept


def _warning(point: OperatingPoint) -> str:
    """Where the majority class alone comes close to the threshold, the share of full quality says little."""
    kept = majority_keeps(point, point.threshold)
    if kept is None:
        return ""
    alone = f"Predicting the majority class already keeps {100 * kept:.0f} % here"
    corrected = point.chance_corrected
    if corrected is None or corrected.tuned_layers is None:
        return f"{alone}."
    tune = layers(corrected.tuned_layers)
    return f"{alone}; to keep {percent_short(point.threshold)} of what is above that, tune {tune}."


def _cost(point: OperatingPoint, costs: Sequence[CurveCosts]) -> DepthCost | None:
    curve = next((c for c in costs if curve_key(c) == curve_key(point)), None)
    return None if curve is None or point.frozen_layers is None else curve.at(point.frozen_layers)
