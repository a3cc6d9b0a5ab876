"""Means along a line (depths, or learning rates) from a few noisy runs, neighbours helping each other.

A random walk with heavy-tailed steps: where noise is large against the steps it pools neighbours, at a
cliff it lets go of them. Plain linear algebra; it knows nothing of cells or answers.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

_ROUNDS = 3
"""Of re-weighting the steps; more change nothing that matters."""
_FREEDOM = 2.0
"""Degrees of freedom of a step: low enough for cliffs."""


def smooth(size: int, at: list[int], means: Array, variances: Array, step: float) -> tuple[Array, Array]:
    """Mean and covariance at all `size` places, from `means` with error `variances` at places `at`.

    `step` is the usual difference between neighbours.
    """
    centre = means.mean()
    precision, pull = np.zeros(size), np.zeros(size)
    precision[at] = 1 / variances
    pull[at] = (means - centre) / variances
    differences = _differences(size)
    steps = np.full(size - 1, step * step)
    level = 1e-6 / (step * step)
    for again in range(_ROUNDS):
        joint = (differences.T * (1 / steps)) @ differences
        joint[np.diag_indices(size)] += precision + level
        covariance = np.linalg.inv(joint)
        estimate = covariance @ pull
        if again < _ROUNDS - 1:
            spread = ((differences @ covariance) * differences).sum(axis=1)
            steps = (_FREEDOM * step * step + (differences @ estimate) ** 2 + spread) / (_FREEDOM + 1)
    return estimate + centre, (covariance + covariance.T) / 2


@lru_cache
def _differences(size: int) -> Array:
    return np.diff(np.eye(size), axis=0)
