"""What a few runs per depth say of the depths' quality: one joint distribution that every claim is read from.

Means, a covariance over seeds (Student's, its variances and covariances shrunk to those pooled over depths)
and, where predictions are known, one over test examples. It knows values and seeds, nothing of rates or
thresholds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import fsum, isfinite
from typing import TYPE_CHECKING

import numpy as np

from study.analysis.intervals import CONFIDENCE, fieller, student, student_share

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

POOL_RUNS = 2.0
"""How many runs of a depth's own the variance pooled over depths is worth."""
SAME = 1e-9
"""Equal up to rounding is equal: a mean of exactly 90 % reaches 90 %."""


@dataclass(frozen=True)
class Runs:
    """The runs that stand for one depth."""

    seeds: NDArray[np.int64]
    values: Array


@dataclass(frozen=True)
class Contrast:
    """Quality at one depth minus a share of the full model's: its value, variance and degrees of freedom."""

    value: float
    variance: float
    degrees: float

    @property
    def passing(self) -> float:
        """The probability that it is not below zero."""
        if self.variance <= 0:
            return float(self.value >= 0)
        return student_share(self.value / self.variance**0.5, self.degrees)


@dataclass(frozen=True)
class Estimate:
    """The joint distribution of the depths' quality; the full model comes first."""

    means: Array
    """NaN where a depth was not measured."""
    over_seeds: Array
    """Covariance of the means; NaN where it is not known, as with one run everywhere."""
    degrees: Array
    """Student's, of each mean."""
    over_examples: Array | None = None
    """Covariance of the means over test examples; None where predictions are not known."""
    runs: tuple[int, ...] = ()

    @property
    def covariance(self) -> Array:
        return self.over_seeds if self.over_examples is None else self.over_seeds + self.over_examples

    @property
    def certain(self) -> bool:
        """Whether anything can be said of how sure the means are."""
        return bool(np.isfinite(self.covariance[0, 0]))

    def seeds_alone(self) -> Estimate:
        """The same for this very test set."""
        return Estimate(self.means, self.over_seeds, self.degrees, None, self.runs)

    def contrast(self, index: int, share: float, level: float = 0.0) -> Contrast:
        """Of a depth beside a share of the full model, both above `level`."""
        value = self.means[index] - share * self.means[0] - (1 - share) * level
        if abs(value) <= SAME * abs(self.means[0]):
            value = 0.0
        variance, degrees = self._of(index, share)
        return Contrast(float(value), variance, degrees)

    def above(self, level: float, example_variance: float = 0.0) -> Contrast:
        """The full model above a level, as chance, by the noise of seeds and this much of test examples."""
        seeds = self._quadratic(0)[0] if self.certain and self.runs[0] > 1 else 0.0
        variance, degrees = self._combined((seeds, example_variance), 0)
        return Contrast(float(self.means[0]) - level, variance, degrees if seeds > 0 else 1e6)

    def interval(self, index: int) -> tuple[float, float] | None:
        """Student's 95 % interval of a mean."""
        variance, degrees = self._combined(self._quadratic(index), index)
        if not isfinite(variance):
            return None
        width = student((1 + CONFIDENCE) / 2, degrees) * variance**0.5
        return float(self.means[index]) - width, float(self.means[index]) + width

    def ratio_interval(self, index: int, level: float = 0.0) -> tuple[float, float] | None:
        """Fieller's 95 % interval of a depth's share of the full model, both above `level`."""
        full, here = float(self.means[0]) - level, float(self.means[index]) - level
        variance, degrees = self._of(index, here / full) if full > 0 else (np.nan, np.nan)
        if not isfinite(variance):
            return None
        c = self.covariance
        own, of_full, shared = float(c[index, index]), float(c[0, 0]), float(c[index, 0])
        return fieller(here, full, own, of_full, shared, student((1 + CONFIDENCE) / 2, degrees))

    def _of(self, index: int, share: float) -> tuple[float, float]:
        """Variance and degrees of freedom of a depth minus a share of the full model."""
        return self._combined(self._quadratic(index, share), index, 0)

    def _quadratic(self, index: int, share: float = 0.0) -> tuple[float, float]:
        """The variance over seeds and over examples."""

        def of(c: Array) -> float:
            return max(float(c[index, index] - 2 * share * c[index, 0] + share**2 * c[0, 0]), 0.0)

        return of(self.over_seeds), 0.0 if self.over_examples is None else of(self.over_examples)

    def _combined(self, variances: tuple[float, float], *indices: int) -> tuple[float, float]:
        """Satterthwaite's degrees: those of the part over seeds, more as the examples' part grows."""
        seeds, examples = variances
        degrees = float(min(self.degrees[index] for index in indices))
        if seeds > 0 and examples > 0:
            degrees *= ((seeds + examples) / seeds) ** 2
        return seeds + examples, round(min(degrees, 1e6), 3)

    def draws(self, count: int, seed: int = 0) -> Array:
        """(depths, draws): joint draws of the qualities; depths that were not measured are NaN."""
        found = np.full((len(self.means), count), np.nan)
        known = np.flatnonzero(np.isfinite(self.means))
        inside = np.ix_(known, known)
        errors = _root(self.over_seeds[inside]) @ _normal(count, len(known), seed)
        for row, index in enumerate(known.tolist()):
            errors[row] *= _stretch(round(float(self.degrees[index]), 1), count, seed)
        if self.over_examples is not None:
            errors += _root(self.over_examples[inside]) @ _normal(count, len(known), seed + 1)
        found[known] = self.means[known][:, None] + errors
        return found


@dataclass(frozen=True)
class Prior:
    """What is taken for the variance of one run before any seed is repeated, and how many runs that is
    worth."""

    variance: float
    runs: float


def estimate(
    depths: Sequence[Runs | None],
    *,
    paired: bool,
    over_examples: Array | None = None,
    prior: Prior | None = None,
) -> Estimate:
    """From the runs that stand for each depth, the full model's first.

    Paired: runs with the same seed share what the seed does to them.
    """
    scatter = _Scatter(depths, paired, prior or Prior(0.0, 0.0))
    return Estimate(
        means=scatter.means,
        over_seeds=scatter.covariance(),
        degrees=scatter.own + scatter.pool,
        over_examples=over_examples,
        runs=tuple(0 if runs is None else len(runs.seeds) for runs in depths),
    )


class _Scatter:
    """Sums of squares and products of the runs about their depth's mean, by pairs of depths."""

    def __init__(self, depths: Sequence[Runs | None], paired: bool, prior: Prior):
        size = len(depths)
        self._prior = prior
        self.counts = np.array([0 if runs is None else len(runs.seeds) for runs in depths], dtype=float)
        self.means = np.array([np.nan if runs is None else _mean(runs.values) for runs in depths])
        self.products, self.shared = np.zeros((size, size)), np.zeros((size, size))
        rows = [
            None if runs is None else runs.values - mean
            for runs, mean in zip(depths, self.means, strict=True)
        ]
        if paired and self.counts.sum() > 0:
            residuals, present = _aligned(depths, rows)
            self.products = residuals @ residuals.T
            self.shared = present @ present.T
        for i, row in enumerate(rows):
            self.products[i, i] = 0.0 if row is None else _squares(row)
            self.shared[i, i] = self.counts[i]
        self.own = np.maximum(self.counts - 1, 0.0)
        self.pool = np.minimum(POOL_RUNS, prior.runs + (self.own.sum() - self.own) / 2)
        """What the other depths say counts no more than half of what they know."""

    @cached_property
    def _pairs(self) -> Array:
        """Degrees of freedom of each pair's products: n - 1 where both have the same n seeds."""
        n, m = np.maximum(self.counts[:, None], 1), np.maximum(self.counts[None, :], 1)
        return np.maximum(self.shared * (1 - 1 / n - 1 / m + self.shared / (n * m)), 0.0)

    def _correlation(self, variance: float) -> float:
        """Of runs with one seed, pooled over depths beside the full model; as much as is sure of it.

        One standard error (Fisher's) below the estimate, and not below zero: a few seeds that happen to agree
        must not make a comparison look exact.
        """
        pairs = self._pairs[0, 1:]
        if variance <= 0 or pairs.sum() <= 0:
            return 0.0
        found = float(self.products[0, 1:].sum() / pairs.sum() / variance)
        sure = np.arctanh(np.clip(found, -1 + 1e-9, 1 - 1e-9)) - 1 / max(float(pairs.max()), 1.0) ** 0.5
        return max(float(np.tanh(sure)), 0.0)

    def covariance(self) -> Array:
        prior, known_runs = self._prior, self._prior.runs + self.own.sum()
        if known_runs == 0:
            return np.full(self.products.shape, np.nan)
        variance = (prior.runs * prior.variance + np.trace(self.products)) / known_runs
        target = np.where(self.shared > 0, variance * self._correlation(variance), 0.0)
        np.fill_diagonal(target, variance)
        weight = np.minimum(self.pool[:, None], self.pool[None, :])
        known = self._pairs.copy()
        np.fill_diagonal(known, self.own)
        total = weight + known
        with np.errstate(invalid="ignore", divide="ignore"):
            of_runs = np.where(total > 0, (weight * target + self.products) / total, 0.0)
            found = of_runs * self.shared / (self.counts[:, None] * self.counts[None, :])
        found[self.shared == 0] = 0.0
        np.fill_diagonal(found, np.where(self.counts > 0, np.diag(found), np.nan))
        return found


def _aligned(depths: Sequence[Runs | None], rows: Sequence[Array | None]) -> tuple[Array, Array]:
    """Residuals and presence, (depths, seeds); of a seed that a depth has twice, the runs count apart."""
    keys = [None if runs is None else _occurrences(runs.seeds) for runs in depths]
    seeds = np.unique(np.concatenate([key for key in keys if key is not None]))
    residuals, present = np.zeros((len(depths), len(seeds))), np.zeros((len(depths), len(seeds)))
    for i, (key, row) in enumerate(zip(keys, rows, strict=True)):
        if key is not None and row is not None:
            at = np.searchsorted(seeds, key)
            residuals[i, at], present[i, at] = row, 1.0
    return residuals, present


def _occurrences(seeds: NDArray[np.int64]) -> Array:
    """The seeds, told apart where one comes up again."""
    keys = seeds.astype(float)
    _, first = np.unique(seeds, return_index=True)
    again = np.ones(len(seeds), dtype=bool)
    again[first] = False
    if again.any():
        keys[again] = -1.0 - np.arange(int(again.sum()))
    return keys


def _mean(values: Array) -> float:
    # fsum, so that equal runs have exactly their own value as mean, and ties stay ties.
    return fsum(values.tolist()) / len(values)


def _squares(residuals: Array) -> float:
    return float(residuals @ residuals) if np.ptp(residuals) > 0 else 0.0


def _root(covariance: Array) -> Array:
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0.0))


@lru_cache(maxsize=64)
def _normal(count: int, size: int, seed: int) -> Array:
    """Fixed standard normal draws, in antithetic pairs."""
    half = np.random.default_rng((seed, size)).standard_normal((size, -(-count // 2)))
    return np.hstack([half, -half])[:, :count]


@lru_cache(maxsize=256)
def _stretch(degrees: float, count: int, seed: int) -> Array:
    """What turns normal draws into Student's, the same way round for all degrees of freedom."""
    from scipy.special import chdtri

    quantiles = np.random.default_rng((seed, 1911)).permutation((np.arange(count) + 0.5) / count)
    stretched: Array = np.sqrt(degrees / chdtri(degrees, quantiles))
    return stretched
