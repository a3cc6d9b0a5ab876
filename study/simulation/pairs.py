"""What replays of a protocol add up to: how often it agrees with the exhaustive study, how sure, at what
cost.

The exhaustive study, resampled, does not always agree with itself either: that is the measure of agreement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from objectives.depths import tuned_layers
from study import protocols
from study.analysis.planner import SETTLED
from study.cli.wording import columns, counted
from study.simulation.repeats import Replay, replay
from study.simulation.replaying import Replaying
from study.simulation.source import SET_SHARE, Recording, recordings

if TYPE_CHECKING:
    import pandas as pd


_EXHAUSTIVE = 1_000_000
"""Repeats of the exhaustive study draw other runs than the protocol's."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One model and task: the exhaustive answer beside the protocol's."""

    recording: Recording
    replays: list[Replay]
    itself: list[Replay]
    """The exhaustive study, resampled."""
    exhaustive_units: float

    @property
    def answers(self) -> dict[int | None, float]:
        """Shares of the repeats by tuned layers, the most frequent first."""
        counts = Counter(_tuned(self.recording, replay.frozen_layers) for replay in self.replays)
        return {answer: count / len(self.replays) for answer, count in counts.most_common()}

    @property
    def exact(self) -> float:
        """Share of the repeats with the very answer of the exhaustive study."""
        return _share(self._right(replay) for replay in self.replays)

    @property
    def exact_itself(self) -> float:
        """The same of the exhaustive study, resampled."""
        return _share(self._right(replay) for replay in self.itself)

    @property
    def agreement(self) -> float:
        """Share of the repeats with an answer that the exhaustive study's own 90 % set holds."""
        right = {self.recording.answer, *self.recording.answer_set}
        return _share(replay.frozen_layers in right for replay in self.replays)

    @property
    def sure(self) -> list[bool]:
        """Of the repeats that state a probability of 0.9 or more: whether they are right."""
        return [
            self._right(r) for r in self.replays if r.probability is not None and r.probability >= SETTLED
        ]

    @property
    def compute(self) -> float:
        return self.mean("units") / self.exhaustive_units

    def mean(self, name: str) -> float:
        return float(sum(getattr(replay, name) for replay in self.replays) / len(self.replays))

    def _right(self, replay: Replay) -> bool:
        return replay.frozen_layers == self.recording.answer


def simulate(table: pd.DataFrame, asked: Replaying, own: Mapping[str, Any] | None = None) -> list[Pair]:
    """Every model and task of a trial table, replayed; `own` are settings that only its protocol has."""
    return [_pair(found, asked, own or {}) for found in recordings(table, asked.threshold, asked.select)]


def _pair(recording: Recording, asked: Replaying, own: Mapping[str, Any]) -> Pair:
    spec = recording.spec(asked, own)
    whole = recording.spec(replace(asked, protocol=protocols.Grid.name))
    return Pair(
        recording=recording,
        replays=[
            replay(recording, spec, repeat=i, workers=asked.workers, seed=asked.seed)
            for i in range(asked.repeats)
        ],
        itself=[
            replay(recording, whole, repeat=_EXHAUSTIVE + i, seed=asked.seed) for i in range(asked.repeats)
        ],
        exhaustive_units=recording.exhaustive_units(asked.prefix, spec.recipe.epochs),
    )


def to_json(pairs: Sequence[Pair]) -> dict[str, Any]:
    sure = [right for pair in pairs for right in pair.sure]
    repeats = sum(len(pair.replays) for pair in pairs)
    return {
        "pairs": [_pair_json(pair) for pair in pairs],
        "agreement": _mean([pair.agreement for pair in pairs]),
        "exact": _mean([pair.exact for pair in pairs]),
        "exact_itself": _mean([pair.exact_itself for pair in pairs]),
        "compute": _mean([pair.compute for pair in pairs]),
        "idle": _mean([pair.mean("idle") for pair in pairs]),
        "sure": len(sure) / repeats,
        "sure_and_right": sum(sure) / len(sure) if sure else None,
        "sure_and_wrong": (len(sure) - sum(sure)) / repeats,
    }


def _pair_json(pair: Pair) -> dict[str, Any]:
    recording = pair.recording
    return {
        "model": recording.model,
        "task": recording.task,
        "train_size": recording.train_size,
        "exhaustive_tuned_layers": _tuned(recording, recording.answer),
        "exhaustive_set": sorted(tuned_layers(recording.total_layers, n) for n in recording.answer_set),
        "answers": {str(tuned): share for tuned, share in pair.answers.items()},
        "agreement": pair.agreement,
        "exact": pair.exact,
        "exact_itself": pair.exact_itself,
        "compute": pair.compute,
        "cells": pair.mean("cells"),
        "idle": pair.mean("idle"),
        "sure": len(pair.sure) / len(pair.replays),
        "sure_and_right": sum(pair.sure) / len(pair.sure) if pair.sure else None,
    }


def text(pairs: Sequence[Pair], asked: Replaying) -> str:
    """A table for people: tuned layers, exhaustive and found."""
    figures = to_json(pairs)
    names = ("agreement", "exact", "exact_itself", "sure", "cells", "compute", "idle")
    shapes = ("{:.1%}", "{:.1%}", "{:.1%}", "{:.0%}", "{:.1f}", "{:.1%}", "{:.1%}")
    rows = [("model", "task", "exhaustive", "agree", "exact", "itself", "p>=0.9", *names[4:], "answers")]
    for row in figures["pairs"]:
        answers = " ".join(f"{tuned}:{share:.0%}" for tuned, share in row["answers"].items())
        task = row["task"] + (f"/{row['train_size']}" if row["train_size"] else "")
        numbers = (shape.format(row[name]) for name, shape in zip(names, shapes, strict=True))
        rows.append((row["model"], task, str(row["exhaustive_tuned_layers"]), *numbers, answers))
    lines = columns(rows, right=range(2, 10))
    right = "–" if figures["sure_and_right"] is None else f"{figures['sure_and_right']:.1%}"
    lines += [
        f"{asked.protocol}, {len(pairs)} pairs x {asked.repeats} repeats, prefix {asked.prefix}, "
        f"{counted(asked.workers, 'worker')}; answers in tuned layers",
        f"exact: {figures['exact']:.1%} with the very answer of the exhaustive study, which agrees with "
        "itself, "
        f"resampled, in {figures['exact_itself']:.1%}",
        f"agree: {figures['agreement']:.1%} (worst {min(pair.agreement for pair in pairs):.1%}) with an "
        "answer in "
        f"the exhaustive study's own {SET_SHARE:.0%} set",
        f"p>=0.9: {figures['sure']:.1%} of the answers state a probability of 0.9 or more; {right} of "
        "these are "
        "exact",
        f"compute: {figures['compute']:.1%} of the exhaustive study's "
        f"(worst {max(pair.compute for pair in pairs):.1%})",
        "Each repeat draws its runs from the recorded ones, so it answers from fewer runs than the "
        "report on the "
        "whole table, which shows the exhaustive answer.",
    ]
    return "\n".join(lines)


def _tuned(recording: Recording, frozen_layers: int | None) -> int | None:
    return None if frozen_layers is None else tuned_layers(recording.total_layers, frozen_layers)


def _share(values: Any) -> float:
    found = list(values)
    return sum(found) / len(found)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
