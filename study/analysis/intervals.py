"""Student's intervals from a few runs: of a mean, and of a mean relative to another (Fieller's).

Scores in, bounds out; None where there are too few runs, or where the ratio has no bounds at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

CONFIDENCE = 0.95
"""Of intervals, two-sided, and of bounds, one-sided."""


@lru_cache(maxsize=10_000)
def student(share: float, degrees: float) -> float:
    """The quantile of Student's distribution; the degrees of freedom need not be whole."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, share))


def mean_interval(scores: NDArray[np.float64]) -> tuple[float, float] | None:
    """Student's 95 % interval of the mean; None with one run."""
    if len(scores) < 2:
        return None
    width = student((1 + CONFIDENCE) / 2, len(scores) - 1) * _error(scores)
    return float(scores.mean() - width), float(scores.mean() + width)


def lower_bound(scores: NDArray[np.float64]) -> float:
    """Student's one-sided 95 % bound of the mean of two runs or more."""
    return float(scores.mean() - student(CONFIDENCE, len(scores) - 1) * _error(scores))


@dataclass(frozen=True)
class Compared:
    """The runs of a depth beside those of the full model, at least two each."""

    scores: NDArray[np.float64]
    full: NDArray[np.float64]
    paired: bool
    """Both are in the same order of the same seeds."""

    def ratio_interval(self) -> tuple[float, float] | None:
        """Fieller's 95 % interval: every share t with |mean - t full| <= Student's t x its error.

        None where that has no bounds, because the full model's mean is not clearly above zero.
        """
        mean, full = float(self.scores.mean()), float(self.full.mean())
        if full <= 0:
            return None
        ratio = mean / full
        width = student((1 + CONFIDENCE) / 2, self._degrees(ratio)) ** 2
        of_scores, of_full = self._of_scores, self._of_full
        shared = 0.0
        if self.paired:
            n = len(self.full)
            shared = float((self.scores - mean) @ (self.full - full)) / (n * (n - 1))
        leading = full**2 - width * of_full
        if leading <= 0:
            return None
        middle = mean * full - width * shared
        # The discriminant written so that runs without any spread leave exactly nothing of it.
        inside = full**2 * self._variance(ratio) - width * max(of_scores * of_full - shared**2, 0.0)
        root = (width * max(inside, 0.0)) ** 0.5
        return (middle - root) / leading, (middle + root) / leading

    def lower_bound(self, share: float) -> float:
        """Student's one-sided 95 % bound of the mean minus a share of the full model's."""
        difference = float(self.scores.mean() - share * self.full.mean())
        return difference - student(CONFIDENCE, self._degrees(share)) * self._variance(share) ** 0.5

    def _variance(self, share: float) -> float:
        """Of the mean minus a share of the full model's mean."""
        if self.paired:
            return _error(self.scores - share * self.full) ** 2
        return self._of_scores + share**2 * self._of_full

    def _degrees(self, share: float) -> float:
        """Of the pairs, n - 1; else Welch and Satterthwaite's."""
        if self.paired or self._variance(share) == 0:
            return min(len(self.scores), len(self.full)) - 1.0
        here = self._of_scores / self._variance(share)
        rest = here**2 / (len(self.scores) - 1) + (1 - here) ** 2 / (len(self.full) - 1)
        return round(1 / rest, 3)

    @cached_property
    def _of_scores(self) -> float:
        """The variance of the mean."""
        return _error(self.scores) ** 2

    @cached_property
    def _of_full(self) -> float:
        return _error(self.full) ** 2


def compare(
    scores: NDArray[np.float64],
    seeds: NDArray[np.int64],
    full: NDArray[np.float64],
    full_seeds: NDArray[np.int64],
    *,
    paired: bool,
) -> Compared | None:
    """Pair by pair where both have the same seeds, once each; None where one has a single run."""
    if min(len(scores), len(full)) < 2:
        return None
    order, full_order = seeds.argsort(), full_seeds.argsort()
    same = (
        paired
        and np.array_equal(seeds[order], full_seeds[full_order])
        and len(np.unique(seeds)) == len(seeds)
    )
    return Compared(scores[order], full[full_order], True) if same else Compared(scores, full, False)


def _error(scores: NDArray[np.float64]) -> float:
    """The standard error of the mean; exactly nothing for equal runs."""
    if (scores == scores[0]).all():
        return 0.0
    return float(scores.std(ddof=1)) / len(scores) ** 0.5
