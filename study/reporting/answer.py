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
from study.reporting.names import metric_name, task_name
from study.reporting.series import Series, curve_key
from study.reporting.sureness import how_sure, layers, reliability, what_would_change

if TYPE_CHECKING:
    from study.analysis.costs import CurveCosts, DepthCost

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
        found.append((f"{point.sureness:.2f}", "probability of this answer"))
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
    kept = _kept(point)
    # The full model keeps everything and saves nothing beside itself.
    told = f": {', '.join([f'{kept}{where}', *_savings(_cost(point, costs))])}" if kept else where
    advice = _advice(point)
    return Answer(
        whose=whose,
        sentence=f"{advice if whose is None else advice[0].lower() + advice[1:]}{told}.",
        remarks=tuple(
            remark
            for remark in (
                _unsettled(model),
                how_sure(model, point, several=len(own) > 1),
                what_would_change(analysis, point),
                reliability(point),
                _warning(point),
                _beyond_the_rates(analysis, point),
                _left_out(model, own, point),
                _published(analysis, model, own),
            )
            if remark
        ),
    )


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
        return f"Fine-tune all {total} layers; no measured freeze keeps {100 * point.threshold:.4g} %"
    return f"Fine-tune the last {'' if tuned == 1 else f'{tuned} '}of {total} layers"


def _kept(point: OperatingPoint) -> str:
    if point.frozen_layers == 0:
        return ""
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
    parts += [f", the most demanding of {compared}"] if compared else []
    return "".join(parts)


def _left_out(model: ModelPoint, own: Sequence[OperatingPoint], point: OperatingPoint) -> str:
    """Tasks that are not behind the model's number, and why."""
    if len(own) == 1:
        return ""
    told = [f"{task_name(task)} is left out, as in the paper." for task in model.excluded]
    told += [
        f"{task_name(task)} is left out: {why}."
        for task, why in model.left_out.items()
        if task not in (point.task, model.at_most_task)
    ]
    return " ".join(told)


def _unsettled(model: ModelPoint) -> str:
    """Depths that were not measured: fewer layers may do, or a task not followed deep enough need more."""
    parts = []
    if model.at_least_tuned_layers is not None:
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
    beyond = {"lowest": "lower", "highest": "higher"}
    further = " and ".join(word for edge, word in beyond.items() if edge in edges)
    return f"Rates {further} than those tried may change it: the best was at the edge."


def _published(analysis: Analysis, model: ModelPoint, own: Sequence[OperatingPoint]) -> str:
    """The paper's number, where this is one of its models, over several tasks as in the paper."""
    key = published.model_key(model.model) if model.train_size is None else None
    if key is None or model.threshold != published.TUNED_THRESHOLD or len({p.task for p in own}) < 2:
        return ""
    if any(p.demo for p in own):
        return ""
    how = "" if analysis.as_paper else ", in its own way of counting (--as-paper)"
    return f"The paper found {layers(published.TUNED_LAYERS[key])} for {key}{how}."


def _warning(point: OperatingPoint) -> str:
    """Where the majority class alone comes close to the threshold, the share of full quality says little."""
    kept = kept_by_chance(point.metric, point.chance, point.full_score)
    if kept is None or kept < point.threshold - CLOSE:
        return ""
    alone = f"But the majority class alone keeps {100 * kept:.0f} % here"
    corrected = point.chance_corrected
    if corrected is None or corrected.tuned_layers is None:
        return f"{alone}."
    share = f"{100 * point.threshold:.4g} %"
    return f"{alone}; to keep {share} of what is above it, tune {layers(corrected.tuned_layers)}."


def _cost(point: OperatingPoint, costs: Sequence[CurveCosts]) -> DepthCost | None:
    curve = next((c for c in costs if curve_key(c) == curve_key(point)), None)
    return None if curve is None or point.frozen_layers is None else curve.at(point.frozen_layers)
