"""A recorded study to replay: one model and task of a trial table, and what its whole protocol says.

The exhaustive answer and its bootstrap set are the analysis' own; here they are only asked for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median_low
from typing import TYPE_CHECKING

import numpy as np

from objectives.contract import Cell, Recipe, UsageError
from study.analysis.bootstrap import Resampler
from study.analysis.points import operating_point
from study.analysis.quality import measure
from study.analysis.runs import Group, groups
from study.analysis.selection import Select
from study.protocols.outcomes import grid_cells
from study.protocols.units import Prefix, study_units
from study.spec import StudySpec

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

SET_SHARE = 0.9
"""The exhaustive answer's own set: the likeliest answers that together reach this probability."""
_DRAWS = 4_000


@dataclass(frozen=True, kw_only=True)
class Recording:
    model: str
    task: str
    train_size: int | None
    metric: str
    total_layers: int
    select: Select
    """"full-model" where depths were recorded at one rate each, as in the paper, else "per-depth"."""
    scores: dict[tuple[int, float], NDArray[np.float64]]
    seeds: int
    """Runs per cell of the exhaustive protocol."""
    answer: int | None
    """Frozen layers of the exhaustive operating point."""
    answer_set: frozenset[int]

    @property
    def depths(self) -> tuple[int, ...]:
        return tuple(sorted({depth for depth, _ in self.scores}))

    @property
    def rates(self) -> tuple[float, ...]:
        return tuple(sorted({rate for _, rate in self.scores}))

    def spec(self, protocol: str, *, threshold: float, confidence: float, prefix: Prefix) -> StudySpec:
        """As a launch would make it: seeds up to the most that any cell has."""
        most = max(len(scores) for scores in self.scores.values())
        return StudySpec(
            task=self.task,
            metric=self.metric,
            model=self.model,
            model_fingerprint="recorded",
            data="recorded",
            data_fingerprint="recorded",
            total_layers=self.total_layers,
            protocol=protocol,
            frozen_layers=self.depths,
            learning_rates=self.rates,
            seeds=tuple(range(1, (most if protocol == "adaptive" else self.seeds) + 1)),
            train_sizes=(self.train_size,),
            recipe=Recipe(prefix=prefix),
            threshold=threshold,
            confidence=confidence,
            select=self.select,
            recorded=True,
        )

    def exhaustive_units(self, prefix: Prefix, epochs: float) -> float:
        """The paper's protocol (all rates at 0 frozen, every depth at one) or the whole grid."""
        spec = self.spec("grid", threshold=0.9, confidence=0.9, prefix=prefix)
        if self.select == "per-depth":
            cells = grid_cells(spec, spec.frozen_layers, spec.learning_rates)
        else:
            deeper = [depth for depth in spec.frozen_layers if depth != 0]
            cells = grid_cells(spec, [0], self._full_rates()) + grid_cells(spec, deeper, self.rates[:1])
        return study_units(cells, self.total_layers, prefix, epochs)

    def _full_rates(self) -> list[float]:
        return [rate for depth, rate in self.scores if depth == 0]

    def recorded_rate(self, cell: Cell) -> float:
        """The cell's own rate, or the nearest one that its depth was recorded at."""
        rates = [rate for depth, rate in self.scores if depth == cell.frozen_layers]
        return min(rates, key=lambda rate: (abs(math.log(rate / cell.learning_rate)), rate))


def recordings(table: pd.DataFrame, threshold: float) -> list[Recording]:
    """Every model and task of the table that has a full model and another depth."""
    found = [_recording(group, threshold) for group in groups(table)]
    kept = [recording for recording in found if recording is not None]
    if not kept:
        raise UsageError(
            "nothing to replay: no model and task has complete runs at 0 frozen and at another depth"
        )
    return kept


def _recording(group: Group, threshold: float) -> Recording | None:
    scores = {
        (depth.frozen_layers, rate.learning_rate): rate.runs.scores
        for depth in group.depths
        for rate in depth.rates
    }
    measured = {depth for depth, _ in scores}
    if 0 not in measured or len(measured) < 2:
        return None
    one_rate = all(len(depth.rates) <= 1 for depth in group.depths if depth.frozen_layers != 0)
    select: Select = "full-model" if one_rate else "per-depth"
    curve, draws = measure(group, select, "auto", Resampler(_DRAWS))
    point = operating_point(curve, draws, threshold)
    counted = [
        r.choosing.scores for d in group.depths for r in d.rates if d.frozen_layers == 0 or not one_rate
    ]
    return Recording(
        model=group.model,
        task=group.task,
        train_size=group.train_size,
        metric=group.metric,
        total_layers=group.total_layers,
        select=select,
        scores=scores,
        seeds=median_low([len(runs) for runs in counted]),
        answer=point.frozen_layers,
        answer_set=likeliest(point.probability),
    )


def likeliest(probability: dict[int, float]) -> frozenset[int]:
    """The smallest set of answers whose probabilities reach SET_SHARE."""
    chosen: set[int] = set()
    for depth, _ in sorted(probability.items(), key=lambda item: (-item[1], item[0])):
        if sum(probability[n] for n in chosen) >= SET_SHARE:
            break
        chosen.add(depth)
    return frozenset(chosen)
