"""A recorded study to replay: one model and task of a trial table, and what all of its runs together say.

The answer and its likely alternatives are the analysis' own; here they are only asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import median_low
from typing import TYPE_CHECKING, Any

import numpy as np

from objectives.contract import Cell, Recipe, UsageError
from objectives.depths import FULL
from objectives.settings import declared
from objectives.tasks.metrics import describe
from study import protocols
from study.analysis.choices import DRAWS, Select
from study.analysis.measure import measure
from study.analysis.runs import groups
from study.analysis.samples import Group
from study.analysis.verdict import verdict
from study.protocols.adaptive_settings import AdaptiveSettings
from study.protocols.units import Prefix, study_units
from study.simulation.replaying import Replaying
from study.specs.study_spec import StudySpec

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

SET_SHARE = 0.9
"""The exhaustive answer's own set: the likeliest answers that together reach this probability."""


@dataclass(frozen=True, kw_only=True)
class Recording:
    model: str
    task: str
    train_size: int | None
    metric: str
    total_layers: int
    chance: float | None
    scores: dict[tuple[int, float], NDArray[np.float64]]
    seeds: int
    """Runs per cell of the exhaustive protocol."""
    answer: int | None
    """Frozen layers of the exhaustive operating point; None where there is no answer."""
    answer_set: frozenset[int]

    @property
    def depths(self) -> tuple[int, ...]:
        return tuple(sorted({depth for depth, _ in self.scores}))

    @property
    def rates(self) -> tuple[float, ...]:
        return tuple(sorted({rate for _, rate in self.scores}))

    def spec(self, asked: Replaying, own: Mapping[str, Any] | None = None) -> StudySpec:
        """As a launch would make it: a search that adds seeds may use as many as any cell has.

        `own` are settings that only its protocol has; threshold and rates are kept whatever the protocol.
        """
        chosen = protocols.get(asked.protocol)
        most = max(len(scores) for scores in self.scores.values())
        seeds = tuple(range(1, (most if chosen.adds_seeds else self.seeds) + 1))
        common = {i.name: v for i in declared(AdaptiveSettings) if (v := getattr(asked, i.name)) is not None}
        known = {item.name for item in declared(chosen.settings)}
        given = {name: value for name, value in {**common, **(own or {})}.items() if name in known}
        settings = common | chosen.own_settings(given, seeds)
        return StudySpec(
            task=self.task,
            metric=self.metric,
            model=self.model,
            model_fingerprint="recorded",
            data="recorded",
            data_fingerprint="recorded",
            total_layers=self.total_layers,
            protocol=asked.protocol,
            frozen_layers=self.depths,
            learning_rates=self.rates,
            seeds=seeds,
            train_sizes=(self.train_size,),
            recipe=Recipe(prefix=asked.prefix),
            protocol_settings=tuple(sorted(settings.items())),
            recorded=True,
            chance=self.chance,
        )

    @cached_property
    def cells(self) -> frozenset[Cell]:
        """Those that can be replayed: the recorded depths and rates, with any simulated seed."""
        most = max(max(len(scores) for scores in self.scores.values()), self.seeds)
        return frozenset(
            Cell(depth, rate, seed, self.train_size)
            for depth, rate in self.scores
            for seed in range(1, 2 * most + 1)
        )

    def exhaustive_units(self, prefix: Prefix, epochs: float) -> float:
        """Every recorded depth and rate with as many seeds as the exhaustive protocol has."""
        cells = [
            Cell(depth, rate, seed, self.train_size)
            for depth, rate in self.scores
            for seed in range(1, self.seeds + 1)
        ]
        return study_units(cells, self.total_layers, prefix, epochs)


def recordings(table: pd.DataFrame, threshold: float, select: Select = "per-depth") -> list[Recording]:
    """Every model and task of the table that has a full model and another depth."""
    found = [_recording(group, threshold, select) for group in groups(table)]
    kept = [recording for recording in found if recording is not None]
    if not kept:
        raise UsageError(
            "nothing to replay: no model and task has complete runs at 0 frozen and at another depth"
        )
    return kept


def _recording(group: Group, threshold: float, select: Select) -> Recording | None:
    scores = {
        (depth.frozen_layers, rate.learning_rate): describe(group.metric).score(
            rate.runs.scores, group.chance
        )
        for depth in group.depths
        for rate in depth.rates
    }
    measured = {depth for depth, _ in scores}
    if FULL not in measured or len(measured) < 2:
        return None
    answer, likely = answer_of(group, threshold, select)
    one_rate = all(len(depth.rates) <= 1 for depth in group.depths if depth.frozen_layers != FULL)
    counted = [
        len(rate.choosing.scores)
        for depth in group.depths
        for rate in depth.rates
        if depth.frozen_layers == FULL or not one_rate
    ]
    return Recording(
        model=group.model,
        task=group.task,
        train_size=group.train_size,
        metric=group.metric,
        total_layers=group.total_layers,
        chance=group.chance,
        scores=scores,
        seeds=median_low(counted),
        answer=answer,
        answer_set=likeliest(likely),
    )


def answer_of(group: Group, threshold: float, select: Select) -> tuple[int | None, dict[int, float]]:
    """The analysis' answer and the probability of each, by frozen layers."""
    measured = measure(group, select)
    if measured.undefined is not None:
        return None, {}
    estimate = measured.estimate
    found = verdict(estimate, threshold, estimate.draws(DRAWS) if estimate.certain else None)
    depths = [depth.frozen_layers for depth in group.depths]
    answer = None if found.answer is None else depths[found.answer]
    return answer, dict(zip(depths, found.probability, strict=False))


def likeliest(probability: dict[int, float]) -> frozenset[int]:
    """The smallest set of answers whose probabilities reach SET_SHARE."""
    chosen: set[int] = set()
    for depth, _ in sorted(probability.items(), key=lambda item: (-item[1], item[0])):
        if sum(probability[n] for n in chosen) >= SET_SHARE:
            break
        chosen.add(depth)
    return frozenset(chosen)
