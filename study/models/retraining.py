"""Trains the chosen run once more, from its recorded seed, and compares its score with the record."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from objectives.contract import Cell, CurvePoint, TrialRecord
from study.workers.jobs import make_objective
from study.workers.options import Places

if TYPE_CHECKING:
    from collections.abc import Callable

    from objectives.training.finetune import FineTuning
    from study.specs.study_spec import StudySpec


@dataclass(frozen=True)
class Retrained:
    objective: FineTuning
    """Its `model` holds the weights that gave the score."""
    record: TrialRecord
    comparison: str
    """The new score beside the recorded one, in a sentence."""


def retrain(
    spec: StudySpec,
    cell: Cell,
    recorded: TrialRecord,
    places: Places,
    report: Callable[[CurvePoint], None] = lambda point: None,
) -> Retrained:
    from objectives.training.finetune import FineTuning

    _as_many_threads(recorded)
    # In this process alone, however many trained it then.
    alone = replace(places, fitting=replace(places.fitting, shard=False))
    objective = make_objective(spec, alone)
    assert isinstance(objective, FineTuning)
    objective.keep_scored()
    record = objective(cell, report)
    return Retrained(objective, record, compare(record, recorded))


def compare(record: TrialRecord, recorded: TrialRecord) -> str:
    """Equal on the same machine with the same versions; else the difference, and what may explain it."""
    here, there = record.score, recorded.score
    if here == there:
        return f"{record.metric} {here:.4f}, exactly the recorded score"
    told = f"{record.metric} {here:.4f}, recorded {there:.4f} (difference {here - there:+.2g})"
    reasons = _differences(record, recorded)
    return (
        f"{told}: {', '.join(reasons)}" if reasons else f"{told}, on the same device with the same versions"
    )


def _differences(record: TrialRecord, recorded: TrialRecord) -> list[str]:
    found = [
        f"{what} {old} then, {new} now"
        for what, old, new in (
            ("device", recorded.device, record.device),
            ("processes", recorded.processes, record.processes),
            ("frozen layers", recorded.prefix, record.prefix),
        )
        if old != new
    ]
    names = sorted(set(recorded.versions) | set(record.versions))
    found += [
        f"{name} {recorded.versions.get(name, '?')} then, {record.versions.get(name, '?')} now"
        for name in names
        if recorded.versions.get(name) != record.versions.get(name)
    ]
    return found


def _as_many_threads(recorded: TrialRecord) -> None:
    """Sums on a CPU depend on how many threads share them."""
    match = re.fullmatch(r"cpu x(\d+)", recorded.device or "")
    if match:
        import torch

        torch.set_num_threads(int(match[1]))
