"""How sure the answer is: the probability of each operating point, given a few noisy runs per depth.

A parametric bootstrap over fixed draws, so the same runs always give the same figures. One run says
nothing of its own noise, so noise is pooled over depths and starts from a prior.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from study.protocols.evidence import FULL, Evidence, Spot
from study.protocols.smoothing import smooth

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

SPREAD = 0.03
"""Standard deviation of one run relative to the full score, before any seed is repeated."""
SPREAD_WEIGHT = 3.0
"""How many repeated seeds that prior is worth."""
OWN_WEIGHT = 8.0
"""How many repeated seeds a spot needs to trust its own spread as much as the pooled one."""
DEPTH_STEP = 0.02
"""Usual loss from one more frozen layer, relative to the full score."""
RATE_STEP = 0.015
"""Usual difference between neighbouring learning rates, relative to the full score."""
RATE_MARGIN = 0.2
"""A rate worse by less than this share of the allowed loss is as good as the best."""
CLEARLY_WORSE = 0.4
"""A rate this likely to be worse than the leader by the margin has lost."""
_DRAWS = 256
_TINY = 1e-9


class Posterior:
    """What the evidence says: full quality, quality by depth, and the probability of each answer."""

    def __init__(self, evidence: Evidence):
        self.evidence = evidence
        self._means = {spot: _mean(group) for spot, group in evidence.scores.items()}
        self.tried_rates = [i for i in range(len(evidence.rates)) if evidence.runs((FULL, i))]
        best = max(self.tried_rates, key=lambda i: self._means[FULL, i])
        self.scale = max(abs(self._means[FULL, best]), _TINY)
        self._measure_noise(best)
        self._smooth_rates()
        self._smooth_depths()

    def _measure_noise(self, best: int) -> None:
        """The variance of one run at each spot, pooled over depths and over rates near the best.

        Rates that lost by the whole allowed loss, with their diverged runs, are not pooled.
        """
        scores = self.evidence.scores
        squares = {s: sum((x - self._means[s]) ** 2 for x in g) for s, g in scores.items()}
        near = self._means[FULL, best] - (1 - self.evidence.spec.threshold) * self.scale
        pool = sorted(spot for spot in scores if spot[0] != FULL or self._means[spot] >= near)
        self.freedom = SPREAD_WEIGHT + sum(len(scores[spot]) - 1 for spot in pool)
        prior = SPREAD_WEIGHT * (SPREAD * self.scale) ** 2
        self.noise = (prior + sum(squares[spot] for spot in pool)) / self.freedom
        self._variances = {
            spot: (OWN_WEIGHT * self.noise + squares[spot]) / (OWN_WEIGHT + len(scores[spot]) - 1)
            for spot in scores
        }

    def variance(self, spot: Spot) -> float:
        """Of one run there."""
        return self._variances.get(spot, self.noise)

    def _smooth_rates(self) -> None:
        groups = self.evidence.selection
        means = np.array([_mean(groups[FULL, i]) for i in self.tried_rates])
        errors = np.array([self._error(FULL, i) for i in self.tried_rates])
        step = RATE_STEP * self.scale
        count = len(self.evidence.rates)
        self.rate_means, self.rate_covariance = smooth(count, self.tried_rates, means, errors, step)
        self._rate_means, self._rate_covariance = self.rate_means.tolist(), self.rate_covariance.tolist()
        # Of equal rates (all are, while the first runs are in flight) the one nearest to the middle.
        ties = np.round(self.rate_means / self.scale, 9)
        self.leader = max(self.tried_rates, key=lambda i: (ties[i], -abs(2 * i - count + 1), -i))
        margin = RATE_MARGIN * (1 - self.evidence.spec.threshold)
        self.good_rates = [
            i
            for i in self.tried_rates
            if i == self.leader or self.deficit_probability(i, self.leader, margin) <= CLEARLY_WORSE
        ]
        scores = np.array([self._means[FULL, i] for i in self.tried_rates])
        quality, covariance = (
            (self.rate_means, self.rate_covariance)
            if np.array_equal(scores, means)
            else smooth(count, self.tried_rates, scores, errors, step)
        )
        # Rates that are tied share in the full quality, which spares it the luck of the winner.
        rows = self.rate_means + _normal(count) @ _root(self.rate_covariance).T
        rows[:, [i for i in range(count) if i not in self.tried_rates]] = -np.inf
        self.shares = np.bincount(rows.argmax(axis=1), minlength=count) / _DRAWS
        self.full = float(self.shares @ quality)
        self.full_rates = covariance @ self.shares
        """Covariance of the full quality with each rate's."""
        self.full_variance = float(self.shares @ covariance @ self.shares)

    def _error(self, depth: int, rate: int) -> float:
        return max(
            self.variance((depth, rate)) / self.evidence.runs((depth, rate)), (_TINY * self.scale) ** 2
        )

    def deficit_probability(self, rate: int, other: int, margin: float) -> float:
        """Of `rate` being worse than `other` by more than `margin` of the full score."""
        from scipy.special import stdtr

        c = self._rate_covariance
        deviation = max(c[rate][rate] + c[other][other] - 2 * c[rate][other], 0.0) ** 0.5 + _TINY * self.scale
        gap = self._rate_means[other] - self._rate_means[rate] - margin * self.scale
        return float(stdtr(self.freedom, gap / deviation))

    def _smooth_depths(self) -> None:
        depths = self.evidence.depths
        runs = {j: found for j, depth in enumerate(depths) if (found := self._depth_runs(depth))}
        self.measured = list(runs)
        self.probability = np.zeros(len(depths) + 1)
        self.probability[0] = 1.0
        if not self.measured:
            return
        pooled = np.array(list(runs.values()))
        means, errors = pooled[:, 0], pooled[:, 1]
        trend = self._trend(means) * np.arange(len(depths))
        level, self.depth_covariance = smooth(
            len(depths), self.measured, means - trend[self.measured], errors, DEPTH_STEP * self.scale
        )
        self.depth_means = level + trend
        self._draw_answers()

    def _trend(self, means: Array) -> float:
        """What one more frozen layer usually changes here: the median step, so that no cliff sets it."""
        if len(means) < 2:
            return 0.0
        return min(float(np.median(np.diff(means) / np.diff(self.measured))), 0.0)

    def _depth_runs(self, depth: int) -> tuple[float, float] | None:
        """Mean and error variance of a depth, by the spec's way of choosing its learning rate."""
        spots = self.depth_spots(depth)
        if not spots:
            return None
        total = sum(self.evidence.runs(spot) for spot in spots)
        mean = sum(self._means[spot] * self.evidence.runs(spot) for spot in spots) / total
        variance = sum(self.variance(spot) * self.evidence.runs(spot) for spot in spots) / total
        return mean, max(variance / total, (_TINY * self.scale) ** 2)

    def depth_spots(self, depth: int) -> list[Spot]:
        """Where the runs lie that stand for a depth: its own best rate, or all rates as good as the leader.

        Rates that took turns as the leader count together; a depth tried at a losing one is not measured.
        """
        spots = [spot for spot in self.evidence.scores if spot[0] == depth]
        if spots and self.evidence.spec.select == "per-depth":
            return [(depth, self.best_rate(depth))]
        return [spot for spot in spots if spot[1] in self.good_rates]

    def best_rate(self, depth: int) -> int:
        """Of a measured depth, among the rates with enough runs, as the analysis has it."""
        spots = [spot for spot in self.evidence.scores if spot[0] == depth]
        most = max(self.evidence.runs(spot) for spot in spots)
        enough = [spot for spot in sorted(spots) if 2 * self.evidence.runs(spot) >= most]
        return max(enough, key=self._choice)[1]

    def lucky(self, depth: int) -> list[Spot]:
        """Rates of a depth with a better mean than its best one's, but too few runs to count."""
        spots = [spot for spot in self.evidence.scores if spot[0] == depth]
        best = self._choice((depth, self.best_rate(depth)))
        return sorted(spot for spot in spots if self._choice(spot) > best)

    def _choice(self, spot: Spot) -> float:
        return _mean(self.evidence.selection[spot])

    def _draw_answers(self) -> None:
        count = len(self.evidence.depths)
        stretch = _stretch(self.freedom)
        normal = _normal(count + 1)
        depths = self.depth_means + normal[:, :count] @ _root(self.depth_covariance).T * stretch[:, None]
        full = self.full + normal[:, count] * self.full_variance**0.5 * stretch
        # A share of a full score that is zero or negative means nothing: no depth passes there.
        passes = (depths >= self.evidence.spec.threshold * full[:, None]) & (full > 0)[:, None]
        deepest = count - passes[:, ::-1].argmax(axis=1)
        answers = np.where(passes.any(axis=1), deepest, 0)
        self.probability = np.bincount(answers, minlength=count + 1) / _DRAWS
        share = self.passing = passes.mean(axis=0)
        deeper = passes[:, ::-1].cumsum(axis=1)[:, ::-1] - passes
        self.open = share * (1 - share) * (deeper == 0).mean(axis=0)
        """How undecided each depth is, weighted by the chance that nothing deeper settles the matter."""

    @property
    def answer(self) -> int:
        """Index of the answer: 0 for the full model, else one more than the depth's index.

        The likeliest, neighbours counting by half: answers are ordered, and while several are open one
        in their midst is steadier than a lone peak.
        """
        p = self.probability
        near = p.copy()
        near[1:] += p[:-1] / 2
        near[:-1] += p[1:] / 2
        return int(near.argmax())

    @property
    def frozen_layers(self) -> int:
        return self.evidence.depths[self.answer - 1] if self.answer else FULL


def _mean(values: list[float]) -> float:
    # A handful of floats, thousands of times in a simulation: NumPy would take ten times as long.
    return sum(values) / len(values)


def _root(covariance: Array) -> Array:
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0.0))


@lru_cache
def _normal(size: int) -> Array:
    """Fixed standard normal draws, in antithetic pairs."""
    half = np.random.default_rng(1911_03090).standard_normal((_DRAWS // 2, size))
    return np.vstack([half, -half])


@lru_cache(maxsize=256)
def _stretch(freedom: float) -> Array:
    """What turns normal draws into Student's with `freedom` degrees, in a fixed shuffled order."""
    from scipy.special import chdtri

    quantiles = np.random.default_rng(5).permutation((np.arange(_DRAWS) + 0.5) / _DRAWS)
    stretched: Array = np.sqrt(freedom / chdtri(freedom, quantiles))
    return stretched
