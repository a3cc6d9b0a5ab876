"""From a group's runs to the joint distribution of its depths' quality, and whether that is worth anything.

The adaptive search and the report measure with this one function, so that they give the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from study.analysis.choices import Pairing, Select
from study.analysis.estimate import Estimate, Runs, estimate
from study.analysis.intervals import CONFIDENCE
from study.analysis.samples import Group, RateRuns, Sample
from study.analysis.selection import Choice, choose

if TYPE_CHECKING:
    from numpy.typing import NDArray

OverExamples = Callable[[Sequence[Sample | None], str], "tuple[NDArray[np.float64], int] | None"]
"""The covariance of the depths' means over test examples, from the runs that stand for them and the metric.
"""
TRY = "try other learning rates, more epochs or more training data"


@dataclass(frozen=True)
class Measured:
    """A group's chosen rates and what their runs say."""

    group: Group
    choice: Choice
    estimate: Estimate
    paired: bool
    test_examples: int | None = None
    """Number of test examples included in the estimate; None where it is over seeds alone."""

    @property
    def full(self) -> RateRuns | None:
        return self.choice.rates[0] if self.group.full is not None else None

    @cached_property
    def undefined(self) -> str | None:
        """Why there is nothing to compare freezes with; None where there is."""
        if self.group.full is None:
            return "the full model (frozen_layers 0) is not in the table: add 0 to --frozen-layers"
        if self.full is None:
            return "the full model (frozen_layers 0) has no complete run"
        return self._no_better_than_chance() or self._not_above_zero(self.full)

    def _no_better_than_chance(self) -> str | None:
        quality, chance = float(self.estimate.means[0]), self.group.chance_quality
        if chance is None or self.group.chance is None:
            return None
        # Of test examples only as much as is known of each run, so that a search while it runs and the report
        # on all predictions say the same.
        examples = self.full.runs.example_variance if self.full is not None else None
        if quality > chance and self.estimate.above(chance, examples or 0.0).passing >= CONFIDENCE:
            return None
        how = "is not better than" if quality <= chance else "is not clearly better than"
        return f"{self._score}, which {how} chance ({self.group.chance:.4g}): {TRY}"

    def _not_above_zero(self, full: RateRuns) -> str | None:
        """Where every run is above zero and chance is unknown, zero is out of reach for two or three runs."""
        values = full.runs.scores[full.runs.kept]
        if self.estimate.means[0] <= 0:
            return f"{self._score}: a ratio to it means nothing"
        within_reach = values.min() <= 0 and len(values) > 1 and self.estimate.certain
        if within_reach and self.estimate.above(0.0).passing < CONFIDENCE:
            return f"{self._score}, not clearly above zero with these runs: a ratio to it means nothing"
        return None

    @property
    def _score(self) -> str:
        return f"the full model scores {self.group.shown(float(self.estimate.means[0])):.4g}"


def measure(
    group: Group, select: Select, pairing: Pairing = "auto", over_examples: OverExamples | None = None
) -> Measured:
    """The rates that stand for the depths, and the joint distribution of their quality."""
    choice = choose(group, select)
    paired = group.seeds_shared if pairing == "auto" else pairing == "paired"
    samples = [None if rate is None else rate.runs for rate in choice.rates]
    runs = [
        None if sample is None else Runs(sample.seeds[sample.kept], sample.scores[sample.kept])
        for sample in samples
    ]
    found = None if over_examples is None else over_examples(samples, group.metric)
    covariance, examples = (None, None) if found is None else found
    known = estimate(runs, paired=paired, over_examples=covariance)
    return Measured(group, choice, known, paired, examples)
