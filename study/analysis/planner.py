"""What would settle an answer: how many more seeds, at which depths, or which range to settle for.

By looking ahead: if the depths are as good as they look now, new runs are drawn with the noise that is known,
and what the analysis would say then is worked out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from objectives.depths import layers_frozen

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from study.analysis.estimate import Estimate
    from study.analysis.points import OperatingPoint
    from study.analysis.quality import Curve

    Array = NDArray[np.float64]

SETTLED = 0.9
"""An answer with this probability is settled."""
POWER = 0.8
"""A plan must settle it this likely."""
MOST_SEEDS = 30
"""More seeds than this are not worth it: settle for a range."""
_WORTH = 0.02
"""Depths with a smaller probability of being the answer need no more runs."""
_LOOKS = 300
_TRIED = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 60, 80, 120, 200, 400, 1000)


@dataclass(frozen=True, kw_only=True)
class SettlePlan:
    """What to run, or what to be content with."""

    frozen_layers: tuple[int, ...]
    """Depths that need more runs, the full model besides; or that were never run."""
    seeds: int | None
    """More seeds at each of them; None where even a thousand would not do."""
    power: float
    """The probability that these settle it."""
    unmeasured: tuple[int, ...]
    """Depths that the answer may be at and that were not run."""
    first: int
    last: int
    """The answer lies between these, with the probability that settles it."""

    @property
    def worthwhile(self) -> bool:
        return bool(self.unmeasured) or (self.seeds is not None and self.seeds <= MOST_SEEDS)


def settle_plan(point: OperatingPoint, curve: Curve, estimate: Estimate) -> SettlePlan | None:
    """None where there is no answer, nothing is known of the noise, or it is settled already."""
    if point.frozen_layers is None or not point.knows_probability or estimate.runs[0] < 2:
        return None
    sure = point.seeds_probability if point.seeds_probability is not None else point.sureness
    missing = tuple(
        n
        for between in point.probability_between
        if between.probability > 1 - SETTLED
        for n in range(layers_frozen(between.first) + 1, between.last + 1)
    )
    first, last = _range(point)
    if missing:
        return SettlePlan(
            frozen_layers=missing,
            seeds=max(estimate.runs[0], 3),
            power=0.0,
            unmeasured=missing,
            first=first,
            last=last,
        )
    if sure is None or sure >= SETTLED:
        return None
    ahead = _Ahead(estimate.seeds_alone(), point.threshold)
    needed = ahead.undecided()
    found = [(seeds, ahead.power(seeds, needed)) for seeds in _TRIED]
    enough = next(((seeds, power) for seeds, power in found if power >= POWER), None)
    return SettlePlan(
        frozen_layers=tuple(curve.depths[i].frozen_layers for i in needed),
        seeds=None if enough is None else enough[0],
        power=found[-1][1] if enough is None else enough[1],
        unmeasured=(),
        first=first,
        last=last,
    )


def _range(point: OperatingPoint) -> tuple[int, int]:
    """The shortest stretch of answers that together are settled."""
    shares = {n: (n, p) for n, p in point.probability.items()}
    shares |= {b.first: (b.last, b.probability) for b in point.probability_between}
    depths = sorted(shares, key=layers_frozen)
    best: tuple[int, int] | None = None
    for i, low in enumerate(depths):
        total = 0.0
        for high in depths[i:]:
            total += shares[high][1]
            if total >= SETTLED:
                found = (low, shares[high][0])
                best = found if best is None or found[1] - found[0] < best[1] - best[0] else best
                break
    return best or (depths[0], shares[depths[-1]][0])


class _Ahead:
    """What more runs would show, with errors taken as normal and only the full model's shared."""

    def __init__(self, estimate: Estimate, threshold: float):
        self._threshold = threshold
        self._known = np.flatnonzero(np.isfinite(estimate.means))
        self._runs = np.array(estimate.runs, dtype=float)[self._known]
        self._variance = np.diag(estimate.over_seeds)[self._known] * self._runs
        """Of one run."""
        self._means = estimate.means[self._known]
        self._nodes, weights = np.polynomial.hermite_e.hermegauss(9)
        self._weights = weights / weights.sum()

    def undecided(self) -> list[int]:
        """Depths that may be the answer, and the next one beyond them."""
        chances = self._answers(self._means[None, :], self._variance / self._runs)[0]
        likely = np.flatnonzero(chances >= _WORTH)
        last = min(int(likely.max()) + 1, len(self._known) - 1) if len(likely) else 0
        first = max(int(likely.min()) if len(likely) else 0, 1)
        return [int(self._known[i]) for i in range(first, last + 1)]

    def power(self, seeds: int, depths: list[int]) -> float:
        """The probability that this many more runs at the full model and these depths settle the answer."""
        more = np.where(np.isin(self._known, [0, *depths]), float(seeds), 0.0)
        generator = np.random.default_rng((1911, seeds))
        noise = generator.standard_normal((_LOOKS, len(self._known)))
        total = self._runs + more
        means = self._means + noise * np.sqrt(self._variance * more) / total
        chances = self._answers(means, self._variance / total)
        return float((chances.max(axis=1) >= SETTLED).mean())

    def _answers(self, means: Array, variances: Array) -> Array:
        """(looks, depths): the probability of each depth being the answer."""
        from scipy.special import ndtr

        share, spread = self._threshold, np.sqrt(np.maximum(variances[1:], 1e-300))
        full = means[:, :1, None] + np.sqrt(variances[0]) * self._nodes[None, None, :]
        passing = ndtr((means[:, 1:, None] - share * full) / spread[None, :, None])
        failing = np.cumprod((1 - passing)[:, ::-1], axis=1)[:, ::-1]
        beyond = np.concatenate([failing[:, 1:], np.ones_like(failing[:, :1])], axis=1)
        freezes = (passing * beyond) @ self._weights
        whole: Array = np.concatenate([(failing[:, :1] @ self._weights), freezes], axis=1)
        return whole
