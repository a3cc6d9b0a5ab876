"""The runs of one model and task, sorted by depth and learning rate, and which of them count for what.

Success and quality are two things: a collapsed run is counted as such and is not in the quality, which is the
mean of the runs that learned; learning rates are chosen by both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import fsum, inf, isfinite
from typing import TYPE_CHECKING

import numpy as np

from objectives.tasks import metrics
from study.analysis.choices import Outliers

if TYPE_CHECKING:
    from numpy.typing import NDArray

PRIOR_RUNS, PRIOR_FREEDOM = 10.0, 2.0
"""How many runs of a rate its depth's share of diverged ones is worth; of collapsed ones, too, before the
study says how much rates differ in them, and how many degrees of freedom this guess is worth."""


@dataclass(frozen=True, kw_only=True)
class Counts:
    """How many trials of one depth ended in which way."""

    complete: int = 0
    failed: int = 0
    """Trials that ended as FAIL, retried ones included."""
    failed_cells: int = 0
    """Cells that failed and were never completed."""
    diverged: int = 0
    """Runs without a finite score: complete ones, and failed ones whose reason says so."""
    collapsed: int = 0
    """Complete runs that learned nothing, beside others of their depth that did."""
    unfinished: int = 0
    removed: int = 0
    """Runs that the outlier filter took out of the means."""

    def __add__(self, other: Counts) -> Counts:
        return Counts(**{name: value + getattr(other, name) for name, value in vars(self).items()})


def total(counts: Iterable[Counts]) -> Counts:
    return sum(counts, start=Counts())


@dataclass(frozen=True)
class Sample:
    """Complete runs with a finite score."""

    seeds: NDArray[np.int64]
    scores: NDArray[np.float64]
    """As qualities (`Metric.quality`): more is better, whatever the metric."""
    selection: NDArray[np.float64]
    """The selection scores, NaN where the table has none."""
    collapsed: NDArray[np.bool_]
    kept: NDArray[np.bool_]
    """The runs whose mean is the quality: those that did not collapse, or that the outlier filter kept. Never
    none of them: where all runs are at chance, that is the quality."""
    filtered: bool
    """Whether the outlier filter says which runs are kept."""
    rows: NDArray[np.int64]
    """Positions in the trial table; empty for runs that come from no table."""
    errors: NDArray[np.float64]
    """Standard errors of the scores over test examples, NaN where they are not known."""

    @cached_property
    def score(self) -> float:
        return _mean(self.scores, self.kept)

    @cached_property
    def selection_score(self) -> float:
        """NaN where a run that counts has none."""
        return _mean(self.selection, self.kept)

    @property
    def example_variance(self) -> float | None:
        """Of the quality over test examples, at most: that of one run; None where it is not known."""
        found = self.errors[self.kept]
        return float(np.square(found).mean()) if np.isfinite(found).all() else None

    @property
    def successes(self) -> int:
        return int((~self.collapsed).sum())


def make_sample(
    seeds: NDArray[np.int64],
    scores: NDArray[np.float64],
    selection: NDArray[np.float64],
    collapsed: NDArray[np.bool_],
    *,
    outliers: Outliers = "none",
    rows: NDArray[np.int64] | None = None,
    errors: NDArray[np.float64] | None = None,
) -> Sample:
    """With `outliers`, the paper's filter says which runs count, and collapses are only counted."""
    filtered = outliers == "paper"
    if filtered:
        kept = paper_keeps(scores)
    else:
        kept = np.ones(len(scores), dtype=bool) if collapsed.all() else ~collapsed
    if rows is None:
        rows = np.zeros(0, dtype=np.int64)
    if errors is None:
        errors = np.full(len(scores), np.nan)
    return Sample(seeds, scores, selection, collapsed, kept, filtered, rows, errors)


def paper_keeps(scores: NDArray[np.float64]) -> NDArray[np.bool_]:
    """The authors' filter: zeros go, and runs at or below 0.9 of the best run of the cell.

    Where the best run is below zero, 0.9 of it would be above it: then only zeros go. A cell of zeros
    alone keeps them, as the published tables do: there is nothing that they are outliers of.
    """
    best = scores.max()
    kept = scores != 0
    if best > 0:
        kept &= scores > 0.9 * best
    return kept if kept.any() else ~kept


@dataclass(frozen=True)
class RateRuns:
    """The runs of one depth at one learning rate."""

    learning_rate: float
    runs: Sample
    search: Sample | None = None
    """Runs of a separate learning-rate search; they choose the rate and are not in the score."""
    diverged: int = 0
    """Seeds whose run here ended without a finite score; they are not in the samples."""
    floor: float = 0.0
    """What a diverged run is worth where rates are chosen: chance, or zero where that is unknown."""

    @property
    def finished(self) -> int:
        """All runs that came to an end, diverged ones too."""
        return len(self.runs.seeds) + (len(self.search.seeds) if self.search else 0) + self.diverged

    @property
    def choosing(self) -> Sample:
        return self.search or self.runs

    @property
    def has_selection(self) -> bool:
        return isfinite(self.choosing.selection_score)

    @property
    def chose(self) -> int:
        """The runs that choose the rate, diverged ones too."""
        return len(self.choosing.seeds) + self.diverged

    def expected(self, by_selection: bool, success: float) -> float:
        """The score of a run, if a share of them learns and the others count as chance."""
        sample = self.choosing
        mean = sample.selection_score if by_selection else sample.score
        return mean if sample.filtered else self.floor + success * (mean - self.floor)


@dataclass(frozen=True)
class DepthRuns:
    frozen_layers: int
    rates: tuple[RateRuns, ...]
    """In ascending order; only rates with at least one complete run."""
    counts: Counts

    @property
    def survived(self) -> float:
        """Share of the runs, at all rates, that did not diverge."""
        finished = sum(rate.chose for rate in self.rates)
        return sum(len(rate.choosing.seeds) for rate in self.rates) / finished if finished else 1.0

    @property
    def learned(self) -> float:
        """Share of those that did not collapse."""
        ended = sum(len(rate.choosing.seeds) for rate in self.rates)
        return sum(rate.choosing.successes for rate in self.rates) / ended if ended else 1.0


@dataclass(frozen=True, kw_only=True)
class Group:
    study: str | None
    """None for rows that name no study, as others' tables do."""
    protocol: str | None
    """The study's; None where there is no study."""
    model: str
    task: str
    train_size: int | None
    metric: str
    total_layers: int
    chance: float | None
    chance_source: str | None
    depths: tuple[DepthRuns, ...]
    """From nothing frozen to everything; -1 (embeddings only) comes after 0."""
    seeds_shared: bool = True
    """False where the same cell and seed has two scores: the seed does not identify the run."""
    demo: bool = False
    duplicates: int = 0

    def shown(self, quality: float) -> float:
        """A quality as a score in the group's metric."""
        return metrics.describe(self.metric).score(quality, self.chance)

    @property
    def chance_quality(self) -> float | None:
        """What no learning at all is worth."""
        return (
            None if self.chance is None else metrics.describe(self.metric).quality(self.chance, self.chance)
        )

    def worth(self, depth: DepthRuns, rate: RateRuns, by_selection: bool) -> float:
        """What a rate is chosen by: the expected score of a run.

        A few runs say little of how often one diverges or collapses: those of the depth at its other rates
        count beside them. Divergence is mostly the rate's fault, a collapse often the seed's: of these, the
        others count the less the more rates differ in them.
        """
        ended, survived = len(rate.choosing.seeds), depth.survived
        share = (ended + PRIOR_RUNS * survived) / (rate.chose + PRIOR_RUNS) if survived < 1 else 1.0
        learned, beside = depth.learned, self._runs_beside
        if isfinite(beside):
            learned = (rate.choosing.successes + beside * learned) / (ended + beside)
        return rate.expected(by_selection, share * learned)

    @cached_property
    def _runs_beside(self) -> float:
        """How many runs of a rate its depth's share of collapses is worth: the fewer, the more the rates
        differ than chance would have it, as for a beta-binomial; without end where they differ less."""
        squares, freedom, runs = 0.0, 0, []
        for depth in self.depths:
            share = depth.learned
            if len(depth.rates) > 1 and 0 < share < 1:
                pairs = [(rate.choosing.successes, len(rate.choosing.seeds)) for rate in depth.rates]
                squares += sum((x - n * share) ** 2 / n for x, n in pairs) / (share * (1 - share))
                freedom += len(pairs) - 1
                runs += [n for _, n in pairs]
        more = fsum(runs) / len(runs) - 1 if runs else 0.0
        if more <= 0:
            return PRIOR_RUNS
        expected = 1 + more / (PRIOR_RUNS + 1)
        excess = (squares + PRIOR_FREEDOM * expected) / (freedom + PRIOR_FREEDOM) - 1
        return inf if excess <= 0 else max(more / excess - 1, 1.0)

    @property
    def full(self) -> DepthRuns | None:
        """The full model's runs."""
        first = self.depths[0] if self.depths else None
        return first if first is not None and first.frozen_layers == 0 else None


def _mean(values: NDArray[np.float64], kept: NDArray[np.bool_]) -> float:
    # fsum, so that equal runs have exactly their own value as mean, and ties stay ties.
    counted = values.tolist() if kept.all() else values[kept].tolist()
    return fsum(counted) / len(counted)
