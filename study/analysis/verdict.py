"""The operating point at one threshold: the answer, its probability, and the deepest freeze that is certain.

All of it is read from one joint distribution of the depths' quality.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from study.analysis.estimate import SAME
from study.analysis.intervals import CONFIDENCE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from study.analysis.estimate import Estimate


@dataclass(frozen=True)
class Verdict:
    """Depths are numbered as in the estimate, the full model first."""

    answer: int | None
    """The deepest freeze whose mean reaches the threshold."""
    sustained: bool
    """Whether every smaller freeze reaches it, too."""
    probability: tuple[float, ...]
    """Of each depth being the deepest that reaches it; empty where nothing is known of the noise."""
    undefined: float
    """The probability that the full model is not above the level that shares are taken from."""
    confident: int | None
    """The deepest freeze that reaches it with 95 % confidence, as do all smaller ones that were measured."""


def verdict(
    estimate: Estimate, threshold: float, draws: NDArray[np.float64] | None = None, level: float = 0.0
) -> Verdict:
    """At a share of the full model's quality above `level`. Without draws nothing is said of probability."""
    answer, sustained = _answer(estimate, threshold, level)
    if draws is None or not estimate.certain or estimate.runs[0] < 2:
        return Verdict(answer, sustained, (), 0.0, None)
    shares = _shares(draws, threshold, level)
    return Verdict(
        answer,
        sustained,
        probability=tuple(shares[1:].tolist()),
        undefined=float(shares[0]),
        confident=_confident(estimate, threshold, level),
    )


def _answer(estimate: Estimate, threshold: float, level: float) -> tuple[int | None, bool]:
    answer, failed_before, sustained = None, False, False
    for index in range(len(estimate.means)):
        if not np.isfinite(estimate.means[index]):
            continue
        if estimate.contrast(index, threshold, level).value >= 0:
            answer, sustained = index, not failed_before
        else:
            failed_before = True
    return answer, sustained


def _shares(draws: NDArray[np.float64], threshold: float, level: float) -> NDArray[np.float64]:
    """How often no depth was the answer, and each."""
    full = draws[0] - level
    bar = threshold * full + level - SAME * np.abs(full)
    deepest = np.zeros(draws.shape[1], dtype=np.int64)
    with np.errstate(invalid="ignore"):
        for index, here in enumerate(draws):
            deepest[here >= bar] = index + 1
    deepest[full <= 0] = 0
    shares: NDArray[np.float64] = np.bincount(deepest, minlength=len(draws) + 1) / draws.shape[1]
    return shares


def _confident(estimate: Estimate, threshold: float, level: float) -> int | None:
    """A fixed sequence of tests from shallow to deep: the first that fails ends it.

    So the chance of any false claim is that of one test, however many depths there are. One run is enough to
    go on, by the noise of the others, but not to be the claim itself.
    """
    claimed = None
    for index, runs in enumerate(estimate.runs):
        if runs == 0:
            continue
        if index > 0 and estimate.contrast(index, threshold, level).passing < CONFIDENCE:
            break
        if runs > 1:
            claimed = index
    return claimed
