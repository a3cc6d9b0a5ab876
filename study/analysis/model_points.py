"""The paper's one number per model: the largest need over its tasks, and which tasks are behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from objectives.depths import tuned_layers
from study.analysis import published
from study.analysis.chance import task_key
from study.analysis.measure import TRY
from study.analysis.points import OperatingPoint

_MOST_UNKNOWN = 0.005


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
    possible: tuple[int, ...]
    """Further numbers of tuned layers that may be the answer: no probability is known, for some task was not
    measured at the depths that would tell."""
    limiting_task: str | None
    limiting_tasks: tuple[str, ...]
    """All tasks with that need; `limiting_task` is the one with the least quality to spare."""
    excluded: tuple[str, ...]
    """Tasks that the paper's number leaves out, where it was asked for; else none."""
    left_out: dict[str, str]
    """Other tasks that are not included, and why; named with study or metric where these tell points
    apart."""


def model_points(points: Sequence[OperatingPoint], *, as_paper: bool = False) -> list[ModelPoint]:
    """One per model, protocol, train size and threshold; as the paper, without what it leaves out."""
    together: dict[tuple[str, str | None, int | None, float], list[OperatingPoint]] = {}
    for p in points:
        together.setdefault((p.model, p.protocol, p.train_size, p.threshold), []).append(p)
    return [_model_point(group, as_paper) for group in together.values()]


def _model_point(points: Sequence[OperatingPoint], as_paper: bool) -> ModelPoint:
    excluded = tuple(sorted({p.task for p in points if as_paper and task_key(p.task) in published.EXCLUDED}))
    left_out = {
        p.task: published.LEFT_OUT[task_key(p.task)]
        for p in points
        if as_paper and task_key(p.task) in published.LEFT_OUT
    }
    voting = [p for p in points if p.task not in excluded and p.task not in left_out]
    measured = [p for p in voting if p.tuned_layers is not None]
    settled = [p for p in measured if not p.open_ended]
    largest = max((p.tuned_layers or 0 for p in settled or measured), default=None)
    needs = [p for p in measured if (p.tuned_layers or 0) <= (largest or 0)]
    unsettled = [p for p in measured if (p.tuned_layers or 0) > (largest or 0)]
    for p in voting:
        if p not in needs:
            left_out.setdefault(_named(p, needs), _no_say(p))
    most = max(unsettled, key=lambda p: p.tuned_layers or 0, default=None)
    least = max((p.fewest_tuned_layers or 0 for p in needs), default=0)
    probability, possible = ({}, set()) if most else _largest_need(needs)
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
        probability=probability,
        possible=tuple(sorted(possible)),
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
        # What to try is said where the task itself is.
        return (point.reason or "no operating point").removesuffix(f": {TRY}")
    return f"it needs {point.tuned_layers} tuned layers or fewer: nothing deeper was measured"


def _largest_need(points: Sequence[OperatingPoint]) -> tuple[dict[int, float], set[int]]:
    """The distribution of the largest need: tasks are different data, so they are independent.

    Needs that some task may have, by depths that were not measured, come apart: nobody knows which it is.
    """
    if not points or any(not p.knows_probability or p.probability_undefined > _MOST_UNKNOWN for p in points):
        return {}, set()
    needs = range(points[0].total_layers + 1)
    at_most = np.ones(len(needs))
    unclear: set[int] = set()
    for p in points:
        shares = np.zeros(len(needs))
        for frozen, share in p.probability.items():
            shares[tuned_layers(p.total_layers, frozen)] += share
        for between in p.probability_between:
            shares[tuned_layers(p.total_layers, between.first)] += between.probability
            if between.probability > _MOST_UNKNOWN:
                unclear |= {tuned_layers(p.total_layers, n) for n in range(between.first, between.last + 1)}
        at_most *= np.minimum(shares.cumsum(), 1.0)
    probability = np.diff(at_most, prepend=0.0)
    found = zip(needs, probability.tolist(), strict=True)
    return {need: p for need, p in found if p > 1e-12 and need not in unclear}, unclear
