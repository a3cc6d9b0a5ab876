"""How much the depths' scores vary with the choice of test examples, from each run's answers to each of them.

All runs answered the same examples, so depths are compared example by example. What a run's own randomness
does to single examples is in the spread over seeds already, and taken off here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from objectives.tasks import metrics
from objectives.tasks.influence import influence
from objectives.tasks.predictions import Predictions, unpack
from study.analysis.samples import Sample

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

Stored = Mapping[tuple[str, int], str]
"""Packed predictions by study and trial number."""


class ExampleNoise:
    """Finds the predictions of a table's rows; makes covariances over examples of them."""

    def __init__(self, table: pd.DataFrame, stored: Stored):
        self._stored = stored
        known = bool(stored) and {"study", "trial"} <= set(table.columns)
        self._keys = list(zip(table["study"], table["trial"], strict=True)) if known else []

    def covariance(self, samples: Sequence[Sample | None], metric: str) -> tuple[Array, int] | None:
        """Of the depths' means over test examples, and how many there are; None where some run's answers are
        not known."""
        runs = [None if sample is None else self._of(sample) for sample in samples]
        known = [run for found in runs if found is not None for run in found]
        if not known or any(run is None for run in known):
            return None
        found = [run for run in known if run is not None]
        if len({(len(run), run.form) for run in found}) != 1:
            return None
        of_run = influence(found, metrics.describe(metric))
        rows = [None if own is None else np.stack([of_run(run) for run in own if run]) for own in runs]
        return _covariance(rows), len(found[0])

    def _of(self, sample: Sample) -> list[Predictions | None]:
        return [self._find(row) for row in sample.rows[sample.kept].tolist()]

    def _find(self, row: int) -> Predictions | None:
        if not self._keys or not isinstance(self._keys[row][0], str) or self._keys[row][1] is None:
            return None
        key = (self._keys[row][0], int(self._keys[row][1]))
        return unpack(self._stored[key]) if key in self._stored else None


def _covariance(rows: Sequence[Array | None]) -> Array:
    """From each depth's (runs, parts) influences: sums over parts, less the runs' own randomness."""
    size = len(rows)
    means = [None if own is None else own.mean(axis=0) for own in rows]
    found = np.zeros((size, size))
    for i, here in enumerate(means):
        for j, there in enumerate(means[: i + 1]):
            if here is not None and there is not None:
                found[i, j] = found[j, i] = float(here @ there)
    for i, own in enumerate(rows):
        if own is not None and len(own) > 1:
            noise = float(own.var(axis=0, ddof=1).sum()) / len(own)
            found[i, i] = max(found[i, i] - noise, 0.0)
    return found
