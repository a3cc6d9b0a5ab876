"""Operating points: the most that can be frozen at a wanted share of the full model's quality.

Per model, task and train size from its curve and draws; then the paper's one number per model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from study.analysis.chance import task_key
from study.analysis.intervals import CONFIDENCE
from study.analysis.quality import Curve, DepthScore
from study.analysis.runs import tuned_layers
from study.analysis.selection import Draws

if TYPE_CHECKING:
    from numpy.typing import NDArray

EXCLUDED = ("cola",)
"""Left out of a model's one number, as in the paper, which calls it an outlier."""
LEFT_OUT = {"wnli": "the paper's tables leave WNLI out: full fine-tuning does not beat its majority class"}
_TIE = 1e-9
"""Equal up to rounding is equal: a mean of exactly 90 % reaches 90 %."""


@dataclass(frozen=True, kw_only=True)
class ChancePoint:
    """The operating point in the chance-corrected view, (score - chance) / (full - chance)."""

    frozen_layers: int | None
    tuned_layers: int | None
    relative: float | None


@dataclass(frozen=True, kw_only=True)
class OperatingPoint:
    study: str | None
    protocol: str | None
    model: str
    task: str
    train_size: int | None
    metric: str
    threshold: float
    total_layers: int
    full_score: float | None
    frozen_layers: int | None
    tuned_layers: int | None
    deepest_frozen_layers: int | None
    """Where the depths right beyond the answer were not measured: the deepest that it could be."""
    score: float | None
    relative: float | None
    relative_low: float | None
    relative_high: float | None
    learning_rate: float | None
    trials: int
    """Runs behind `score`."""
    full_trials: int
    confident_frozen_layers: int | None
    """The deepest freeze that reaches the threshold in 95 % of the draws and by Student's one-sided test.

    The draws alone are too sure of a few runs: they know no spread beyond the one seen.
    """
    confident_tuned_layers: int | None
    probability: dict[int, float]
    """Share of the bootstrap draws in which each depth was the answer; empty where full has one run."""
    probability_undefined: float
    """Share of the draws in which the full model scored nothing above zero."""
    sustained: bool
    """False where some smaller freeze fails although this one passes, or nothing passes."""
    open_ended: bool
    """Nothing deeper than the answer was measured: the need is at most `tuned_layers`."""
    freezes: int
    """Depths other than 0 with a score."""
    chance: float | None
    chance_corrected: ChancePoint | None
    demo: bool
    notes: tuple[str, ...]

    @property
    def fewest_tuned_layers(self) -> int | None:
        """As few as might do, by what was not measured."""
        deepest = self.deepest_frozen_layers
        return self.tuned_layers if deepest is None else self.total_layers - deepest


@dataclass(frozen=True, kw_only=True)
class ModelPoint:
    """The paper's single number: the largest need over a model's tasks."""

    model: str
    protocol: str | None
    """Studies of one protocol are taken together; None for tables that name no study."""
    train_size: int | None
    threshold: float
    total_layers: int
    tuned_layers: int | None
    """The largest need of tasks that were followed deep enough; where none was, the most any may need."""
    at_least_tuned_layers: int | None
    """Where the depths right beyond an answer were not measured: as few as might do."""
    at_most_tuned_layers: int | None
    """Where a task was not followed deep enough and may need more than `tuned_layers`: the most it may."""
    at_most_task: str | None
    """The task that may need that many."""
    probability: dict[int, float]
    """Of each number of tuned layers, from the tasks' own; empty where one claims no uncertainty."""
    limiting_task: str | None
    limiting_tasks: tuple[str, ...]
    """All tasks with that need; `limiting_task` is the one with the least quality to spare."""
    excluded: tuple[str, ...]
    """Tasks of the table that the paper's number leaves out."""
    left_out: dict[str, str]
    """Other tasks that have no say, and why; with its study or metric where the task's other points do."""


def reaches(score: float, full: float, threshold: float) -> bool:
    return score >= threshold * full - _TIE * abs(full)


def operating_point(curve: Curve, draws: Draws | None, threshold: float) -> OperatingPoint:
    notes: list[str] = []
    answer, sustained = _answer(curve, threshold)
    measured = [depth for depth in curve.depths if depth.score is not None]
    probability: dict[int, float] = {}
    undefined, confident = 0.0, None
    if curve.undefined is not None:
        notes.append(curve.undefined)
    elif draws is not None:
        probability, undefined, confident = _resampled(curve, draws, threshold)
        notes += _doubts(curve, draws)
    deepest = _deepest(curve, answer)
    notes += _gap(answer, deepest, threshold)
    return OperatingPoint(
        study=curve.study,
        protocol=curve.protocol,
        model=curve.model,
        task=curve.task,
        train_size=curve.train_size,
        metric=curve.metric,
        threshold=threshold,
        total_layers=curve.total_layers,
        full_score=curve.full_score,
        frozen_layers=answer.frozen_layers if answer else None,
        tuned_layers=answer.tuned_layers if answer else None,
        deepest_frozen_layers=deepest,
        score=answer.score if answer else None,
        relative=answer.relative if answer else None,
        relative_low=answer.relative_low if answer else None,
        relative_high=answer.relative_high if answer else None,
        learning_rate=answer.learning_rate if answer else None,
        trials=len(answer.scores) if answer else 0,
        full_trials=curve.full_runs,
        confident_frozen_layers=confident.frozen_layers if confident else None,
        confident_tuned_layers=confident.tuned_layers if confident else None,
        probability=probability,
        probability_undefined=undefined,
        sustained=sustained,
        open_ended=answer is not None and answer is measured[-1] and answer.tuned_layers > 0,
        freezes=sum(depth.frozen_layers != 0 for depth in measured),
        chance=curve.chance,
        chance_corrected=_chance_point(curve, threshold),
        demo=curve.demo,
        notes=tuple(notes),
    )


def model_points(points: Sequence[OperatingPoint]) -> list[ModelPoint]:
    """One per model, protocol, train size and threshold, over the tasks that have a say."""
    together: dict[tuple[str, str | None, int | None, float], list[OperatingPoint]] = {}
    for p in points:
        together.setdefault((p.model, p.protocol, p.train_size, p.threshold), []).append(p)
    return [_model_point(group) for group in together.values()]


def _answer(curve: Curve, threshold: float) -> tuple[DepthScore | None, bool]:
    """The deepest freeze that reaches the threshold, and whether every smaller one does."""
    answer, failed_before, sustained = None, False, False
    for depth in curve.depths:
        if depth.score is None or curve.full_score is None or curve.undefined is not None:
            continue
        if reaches(depth.score, curve.full_score, threshold):
            answer, sustained = depth, not failed_before
        else:
            failed_before = True
    return answer, sustained


def _resampled(
    curve: Curve, draws: Draws, threshold: float
) -> tuple[dict[int, float], float, DepthScore | None]:
    """The probability of each answer, of none at all, and the deepest confident freeze."""
    bar = threshold * draws.full - _TIE * np.abs(draws.full)
    with np.errstate(invalid="ignore"):
        passed: NDArray[np.bool_] = draws.scores >= bar
    passed &= draws.full > 0
    deepest = np.zeros(len(draws.full), dtype=np.int64)
    for i, here in enumerate(passed):
        deepest[here] = i + 1
    share = np.bincount(deepest, draws.times, minlength=len(passed) + 1) / draws.times.sum()
    probability = {
        depth.frozen_layers: float(p) for depth, p in zip(curve.depths, share[1:], strict=True) if p > 0
    }
    sure = draws.usable & (passed @ draws.times >= CONFIDENCE * draws.times.sum())
    deepest_first = [int(i) for i in np.flatnonzero(sure)[::-1]]
    confident = next((curve.depths[i] for i in deepest_first if _surely(curve, draws, i, threshold)), None)
    return (probability if draws.usable[0] else {}), float(share[0]), confident


def _surely(curve: Curve, draws: Draws, index: int, threshold: float) -> bool:
    """Student's one-sided 95 % bound of the score reaches the threshold's share of the full score."""
    compared = draws.compared[index]
    if curve.depths[index].frozen_layers == 0:
        return True
    return compared is not None and compared.lower_bound(threshold) >= -_TIE * abs(curve.full_score or 0.0)


def _doubts(curve: Curve, draws: Draws) -> list[str]:
    if not draws.usable[0]:
        return ["one run of the full model: no uncertainty can be claimed, so there is no probability"]
    single = [
        str(depth.frozen_layers)
        for depth, usable in zip(curve.depths, draws.usable, strict=True)
        if depth.score is not None and not usable
    ]
    return [f"one run only at frozen {', '.join(single)}: no uncertainty from there"] if single else []


def _deepest(curve: Curve, answer: DepthScore | None) -> int | None:
    """The last depth before the next one measured: what lies between the two could not be known."""
    if answer is None:
        return None
    measured = sorted(max(d.frozen_layers, 0) for d in curve.depths if d.score is not None)
    here = max(answer.frozen_layers, 0)
    beyond = [n for n in measured if n > here]
    last = (beyond[0] if beyond else curve.total_layers + 1) - 1
    return last if last > here else None


def _gap(answer: DepthScore | None, deepest: int | None, threshold: float) -> list[str]:
    if answer is None or deepest is None:
        return []
    first = max(answer.frozen_layers, 0) + 1
    span = f"{first}" if deepest == first else f"{first} to {deepest}"
    return [f"frozen {span} was not measured: at {threshold:.4g} the answer could be as deep as {deepest}"]


def _chance_point(curve: Curve, threshold: float) -> ChancePoint | None:
    """None where chance is unknown, or the full model is no better than it."""
    known = [depth for depth in curve.depths if depth.chance_corrected is not None]
    if not known:
        return None
    passing = [depth for depth in known if reaches(depth.chance_corrected or 0.0, 1.0, threshold)]
    if not passing:
        return ChancePoint(frozen_layers=None, tuned_layers=None, relative=None)
    best = passing[-1]
    return ChancePoint(
        frozen_layers=best.frozen_layers, tuned_layers=best.tuned_layers, relative=best.chance_corrected
    )


def _model_point(points: Sequence[OperatingPoint]) -> ModelPoint:
    excluded = tuple(sorted({p.task for p in points if task_key(p.task) in EXCLUDED}))
    left_out = {p.task: LEFT_OUT[task_key(p.task)] for p in points if task_key(p.task) in LEFT_OUT}
    voting = [p for p in points if p.task not in excluded and p.task not in left_out]
    measured = [p for p in voting if p.tuned_layers is not None and p.freezes > 0]
    settled = [p for p in measured if not p.open_ended]
    largest = max((p.tuned_layers or 0 for p in settled or measured), default=None)
    needs = [p for p in measured if (p.tuned_layers or 0) <= (largest or 0)]
    unsettled = [p for p in measured if (p.tuned_layers or 0) > (largest or 0)]
    for p in voting:
        if p not in needs:
            left_out.setdefault(_named(p, needs), _no_say(p))
    most = max(unsettled, key=lambda p: p.tuned_layers or 0, default=None)
    least = max((p.fewest_tuned_layers or 0 for p in needs), default=0)
    limiting = sorted(
        (p for p in needs if p.tuned_layers == largest), key=lambda p: (p.open_ended, p.relative or 0, p.task)
    )
    return ModelPoint(
        model=points[0].model,
        protocol=points[0].protocol,
        train_size=points[0].train_size,
        threshold=points[0].threshold,
        total_layers=points[0].total_layers,
        tuned_layers=largest,
        at_least_tuned_layers=least if largest is not None and least < largest else None,
        at_most_tuned_layers=most.tuned_layers if most else None,
        at_most_task=_named(most, needs) if most else None,
        probability={} if most else _largest_need(needs),
        limiting_task=limiting[0].task if limiting else None,
        limiting_tasks=tuple(dict.fromkeys(p.task for p in limiting)),
        excluded=excluded,
        left_out=left_out,
    )


def _named(point: OperatingPoint, needs: Sequence[OperatingPoint]) -> str:
    """The task; where it has a say by another study or metric, which of its points has none."""
    same = [p for p in needs if p.task == point.task]
    if not same:
        return point.task
    if all(p.study == point.study for p in same):
        return f"{point.task} ({point.metric})"
    return f"{point.task} (study {point.study or 'unnamed'})"


def _no_say(point: OperatingPoint) -> str:
    if point.tuned_layers is None:
        return point.notes[0] if point.notes else "no operating point"
    if point.freezes == 0:
        return "only the full model was measured"
    return f"it needs {point.tuned_layers} tuned layers or fewer: nothing deeper was measured"


def _largest_need(points: Sequence[OperatingPoint]) -> dict[int, float]:
    """The distribution of the largest need: tasks are different data, so their draws are independent."""
    if not points or any(not p.probability or p.probability_undefined for p in points):
        return {}
    needs = range(points[0].total_layers + 1)
    at_most = np.ones(len(needs))
    for p in points:
        shares = np.zeros(len(needs))
        for frozen, share in p.probability.items():
            shares[tuned_layers(p.total_layers, frozen)] += share
        at_most *= np.minimum(shares.cumsum(), 1.0)
    probability = np.diff(at_most, prepend=0.0)
    return {need: float(p) for need, p in zip(needs, probability, strict=True) if p > 1e-12}
