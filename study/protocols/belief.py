"""What the adaptive search makes of its runs: the analysis' own answer, and where another run would tell
most.

The answer and its probability are those of the report on the same runs. For choosing the next run alone, the
noise starts from a prior: one run says nothing of its own noise.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from study.analysis.choices import DRAWS
from study.analysis.estimate import Contrast, Estimate, Prior, Runs, estimate
from study.analysis.measure import Measured, measure
from study.analysis.selection import best
from study.analysis.verdict import verdict
from study.protocols.evidence import FULL, Evidence, Spot

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from study.analysis.samples import RateRuns

    Array = NDArray[np.float64]

SPREAD = 0.03
"""Standard deviation of one run relative to the full score, before any seed is repeated."""
SPREAD_RUNS = 3.0
"""How many repeated seeds that prior is worth."""
RATE_MARGIN = 0.2
"""A rate worse by less than this share of the allowed loss is as good as the best."""
CLEARLY_WORSE = 0.4
"""A rate this likely to be worse than the leader by the margin has lost."""
_LOOKS = 1_000
"""Draws behind the choice of the next run."""


class Belief:
    """Made of evidence with at least one complete run of the full model."""

    def __init__(self, evidence: Evidence):
        self.evidence = evidence
        self.threshold = evidence.asked.threshold
        self.measured: Measured = measure(evidence.group(), evidence.asked.select)
        self.group = self.measured.group
        full = self.group.full
        assert full is not None
        chosen = best(self.group, full, self.measured.choice.by_selection)
        assert chosen is not None
        self.leader = evidence.rates.index(chosen.learning_rate)
        """The full model's best rate."""
        self.full_rate = evidence.rates.index(self._rate(FULL))
        """The rate that the full model is compared at."""
        self._places = {depth.frozen_layers: i for i, depth in enumerate(self.group.depths)}

    def _rate(self, depth: int) -> float:
        rates = zip(self.group.depths, self.measured.choice.rates, strict=True)
        return next(rate.learning_rate for d, rate in rates if d.frozen_layers == depth and rate is not None)

    # The answer, as the report gives it.

    @property
    def no_answer(self) -> str | None:
        return self.measured.undefined

    @cached_property
    def _answer(self) -> int | None:
        return None if self.no_answer is not None else verdict(self.measured.estimate, self.threshold).answer

    @property
    def frozen_layers(self) -> int | None:
        return None if self._answer is None else self.group.depths[self._answer].frozen_layers

    @cached_property
    def probability(self) -> float | None:
        """Of the answer; None where the runs say nothing of their noise yet."""
        found = self.measured.estimate
        if self._answer is None or not found.certain:
            return None
        shares = verdict(found, self.threshold, found.draws(DRAWS)).probability
        return shares[self._answer] if shares else None

    @property
    def place(self) -> int:
        """Of the answer among the depths that can be it; -1 for the full model, or where there is none."""
        frozen = self.frozen_layers
        return -1 if frozen is None or frozen == FULL else self.evidence.depths.index(frozen)

    def is_measured(self, depth: int) -> bool:
        index = self._places.get(depth)
        return index is not None and self.measured.choice.rates[index] is not None

    def best_rate(self, depth: int) -> int | None:
        """The index of the rate that stands for a depth; None where none does yet."""
        return self.evidence.rates.index(self._rate(depth)) if self.is_measured(depth) else None

    def chosen_runs(self, depth: int) -> int:
        """Runs behind the depth's score."""
        index = self._places.get(depth)
        return 0 if index is None else self.measured.estimate.runs[index]

    # Where to look next.

    @cached_property
    def scale(self) -> float:
        return max(abs(float(self.measured.estimate.means[0])), 1e-9)

    @cached_property
    def prior(self) -> Prior:
        return Prior((SPREAD * self.scale) ** 2, SPREAD_RUNS)

    @cached_property
    def guess(self) -> Estimate:
        """The analysis' estimate with the prior's noise."""
        rates = self.measured.choice.rates
        return estimate(list(map(_kept, rates)), paired=self.measured.paired, prior=self.prior)

    @cached_property
    def _passing(self) -> NDArray[np.bool_]:
        """(depths, draws): whether a depth reaches the threshold."""
        draws = self.guess.draws(_LOOKS)
        with np.errstate(invalid="ignore"):
            passing: NDArray[np.bool_] = (draws >= self.threshold * draws[0]) & (draws[0] > 0)
        return passing

    def passing(self, depth: int) -> float:
        """The probability that a measured depth reaches the threshold."""
        return float(self._passing[self._places[depth]].mean())

    @cached_property
    def open(self) -> Array:
        """How undecided each depth is, weighted by the chance that nothing deeper settles the matter."""
        share = self._passing.mean(axis=1)
        deeper: NDArray[np.int64] = np.cumsum(self._passing[::-1], axis=0)[::-1] - self._passing
        doubts: Array = share * (1 - share) * (deeper == 0).mean(axis=1)
        doubts[0] = 0.0
        return doubts

    def gain(self, spot: Spot) -> float:
        """How much doubt another run at a spot takes from the open depths."""
        depth = spot[0]
        index = self._places.get(depth)
        if index is None or self.best_rate(depth) != spot[1]:
            return 0.0
        n = self.guess.runs[index]
        fall = self.guess.over_seeds[index, index] / (n + 1)
        doubts = 0.0
        for i, doubt in enumerate(self.open.tolist()):
            if doubt > 0 and (i == index or index == 0):
                variance = self.guess.contrast(i, self.threshold).variance
                share = self.threshold**2 if index == 0 else 1.0
                doubts += doubt * share * fall / variance if variance > 0 else 0.0
        return doubts

    # Learning rates of the full model.

    @property
    def tried_rates(self) -> list[int]:
        return list(self._full_rates)

    @cached_property
    def _noise(self) -> tuple[float, float]:
        """The variance of one run, pooled over everything that was run, and its degrees of freedom."""
        samples = [rate.runs for depth in self.group.depths for rate in depth.rates]
        values = [sample.scores[sample.kept] for sample in samples]
        squares = sum(float(((v - v.mean()) ** 2).sum()) for v in values if len(v) > 1)
        freedom = self.prior.runs + sum(len(v) - 1 for v in values)
        return (self.prior.runs * self.prior.variance + squares) / freedom, freedom

    @cached_property
    def _full_rates(self) -> dict[int, tuple[float, int]]:
        """What each rate of the full model is chosen by, and of how many runs that is."""
        full = self.group.full
        assert full is not None
        by_selection = self.measured.choice.by_selection
        return {
            self.evidence.rates.index(rate.learning_rate): (
                self.group.worth(full, rate, by_selection),
                int(rate.runs.kept.sum()),
            )
            for rate in full.rates
        }

    def worse(self, rate: int, other: int, margin: float) -> float:
        """The probability that the full model at `rate` is worse than at `other` by more than `margin` of
        it."""
        (mean, runs), (better, of) = self._full_rates[rate], self._full_rates[other]
        noise, freedom = self._noise
        behind = better - mean - margin * self.scale
        return Contrast(behind, noise * (1 / runs + 1 / of), freedom).passing

    @cached_property
    def good_rates(self) -> list[int]:
        """The full model's rates that are not clearly worse than its best."""
        margin = RATE_MARGIN * (1 - self.threshold)
        return [
            i
            for i in self.tried_rates
            if i == self.leader or self.worse(i, self.leader, margin) <= CLEARLY_WORSE
        ]


def _kept(rate: RateRuns | None) -> Runs | None:
    if rate is None:
        return None
    return Runs(rate.runs.seeds[rate.runs.kept], rate.runs.scores[rate.runs.kept])
