"""What each test example adds to a score: how much the score owes to which examples they are. No torch.

By leaving examples out (the jackknife). Squares of influences add up to the score's variance over examples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from objectives.tasks.metrics import Metric
from objectives.tasks.predictions import Predictions, unpack

Array = NDArray[np.float64]
GROUPS = 50
"""Where a metric does not fall into a few kinds of examples, they are left out in this many groups."""
_MOST_KINDS = 64


def standard_error(packed: str, metric: Metric) -> float | None:
    """Of a score, over the examples behind it; None where they are too few or too alike to tell."""
    run = unpack(packed)
    with np.errstate(invalid="ignore"):
        error = float(np.square(influence([run], metric)(run)).sum() ** 0.5)
    return error if len(run) > 1 and np.isfinite(error) else None


def influence(runs: Sequence[Predictions], metric: Metric) -> Callable[[Predictions], Array]:
    """What each example, or group of them, adds to a run's score: squares sum up to the score's variance."""
    if runs[0].labels is None:
        return lambda run: (run.outputs - run.outputs.mean()) / len(run)
    classes = runs[0].form == "classes" and runs[0].labels.ndim == 1
    if classes and max(len(np.unique(_kinds(run))) for run in runs) <= _MOST_KINDS:
        return lambda run: _by_kind(run, metric)
    return lambda run: _by_group(run, metric)


def _kinds(run: Predictions) -> NDArray[np.int64]:
    """A number for each example: of its label and the answer."""
    assert run.labels is not None
    kinds: NDArray[np.int64] = run.labels * run.outputs.shape[1] + run.outputs.argmax(axis=1)
    return kinds


def _by_kind(run: Predictions, metric: Metric) -> Array:
    """Examples with the same label and answer have the same influence: each kind is left out once."""
    _, first, of = np.unique(_kinds(run), return_index=True, return_inverse=True)
    every, size = np.arange(len(run)), len(run)
    without = np.array([run.score(metric, np.delete(every, at)) for at in first.tolist()])
    changes = without[of]
    scaled: Array = (changes.mean() - changes) * ((size - 1) / size) ** 0.5
    return scaled


def _by_group(run: Predictions, metric: Metric) -> Array:
    parts = _parts(len(run))
    without = np.array(
        [run.score(metric, np.flatnonzero(parts != part)) for part in range(int(parts.max()) + 1)]
    )
    count = len(without)
    scaled: Array = (without.mean() - without) * ((count - 1) / count) ** 0.5
    return scaled


@lru_cache(maxsize=16)
def _parts(examples: int) -> NDArray[np.int64]:
    """The same groups for all runs, so that they are compared on the same examples."""
    order = np.random.default_rng(examples).permutation(examples)
    parts: NDArray[np.int64] = order % min(GROUPS, examples)
    return parts
