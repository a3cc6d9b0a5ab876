"""A trial table sorted into groups, depths and learning rates, with every run accounted for.

A group is one model, task, train size and metric, of one study where rows name theirs. Nothing is
averaged or chosen here, and no row is left out without being counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import fsum, isfinite
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from objectives.contract import UsageError
from study.analysis.chance import known_chance
from study.columns import Columns

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

Outliers = Literal["none", "paper"]
_ERRORS = {"error", "err", "mse", "rmse", "mae", "mape", "msle", "brier", "wer", "cer"}
_LOSSES = {"loss", "nll", "entropy", "perplexity", "ppl"}


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What became of the trials of one depth."""

    complete: int = 0
    failed: int = 0
    """Trials that ended as FAIL, retried ones included."""
    failed_cells: int = 0
    """Cells that failed and were never completed."""
    diverged: int = 0
    """Runs without a finite score: complete ones, and failed ones whose reason says so."""
    collapsed: int = 0
    """Complete runs no better than chance at a depth whose best run is clearly above it; they count."""
    unfinished: int = 0
    removed: int = 0
    """Runs the outlier filter took out of the means."""

    def __add__(self, other: Counts) -> Counts:
        return Counts(**{name: value + getattr(other, name) for name, value in vars(self).items()})


@dataclass(frozen=True)
class Sample:
    """Complete runs with a finite score."""

    seeds: NDArray[np.int64]
    scores: NDArray[np.float64]
    selection: NDArray[np.float64]
    """The selection scores, NaN where the table has none."""
    kept: NDArray[np.bool_]
    """False for runs the outlier filter removed; never all of them."""

    @cached_property
    def score(self) -> float:
        return _mean(self.scores, self.kept)

    @cached_property
    def selection_score(self) -> float:
        """NaN where a run that counts has none."""
        return _mean(self.selection, self.kept)


@dataclass(frozen=True)
class RateRuns:
    """The runs of one depth at one learning rate."""

    learning_rate: float
    runs: Sample
    search: Sample | None
    """Runs of a separate learning-rate search; they choose the rate and are not in the score."""
    diverged: int = 0
    """Seeds whose run here ended without a finite score; they are not in the samples."""

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

    def choice(self, by_selection: bool) -> float:
        """The mean that this rate is chosen by."""
        return self.choosing.selection_score if by_selection else self.choosing.score


@dataclass(frozen=True)
class DepthRuns:
    frozen_layers: int
    rates: tuple[RateRuns, ...]
    """In ascending order; only rates with at least one complete run."""
    counts: Counts


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
    seeds_shared: bool
    """False where the same cell and seed has two scores: the seed does not identify the run."""
    demo: bool
    duplicates: int
    rows: NDArray[np.int64]
    """Positions in the table, for costs."""


def freeze_order(frozen_layers: int) -> float:
    """Less to more frozen: nothing (0), the embeddings (-1), then layers."""
    return 0.5 if frozen_layers == -1 else float(frozen_layers)


def tuned_layers(total_layers: int, frozen_layers: int) -> int:
    return total_layers - max(frozen_layers, 0)


def groups(table: pd.DataFrame, outliers: Outliers = "none") -> list[Group]:
    """Every group of the table, by model, task, train size and metric."""
    columns = Columns(table)
    _refuse(columns)
    order = np.lexsort((columns.search, columns.rate, columns.depth_order, columns.group))
    found = [_group(columns, rows, outliers) for rows in _split(order, columns.group[order])]
    return sorted(
        found,
        key=lambda g: (g.model, g.task, g.train_size is None, g.train_size or 0, g.metric, g.study or ""),
    )


def _refuse(columns: Columns) -> None:
    """What no analysis can be right about: two models under one name, and scores that should be low."""
    for metric in columns.keys["metric"].unique():
        if lower_is_better(metric):
            raise UsageError(
                f"metric {metric!r} is better the lower it is, and the analysis keeps a share of the highest "
                "score: give a score where higher is better"
            )
    layers = columns.keys.assign(layers=columns.layers).groupby("model", sort=False)["layers"].unique()
    for model, found in layers.items():
        if len(found) > 1:
            raise UsageError(
                f"{model} has total_layers {' and '.join(map(str, sorted(found)))}: "
                "one model has one number of layers; name them differently"
            )


def lower_is_better(metric: str) -> bool:
    """By the words of its name; a negated one (neg_mean_squared_error) is better the higher it is."""
    words = set(re.split(r"[^a-z0-9]+", metric.lower()))
    return not words.isdisjoint(_ERRORS | _LOSSES) and words.isdisjoint({"neg", "negative"})


def _group(columns: Columns, rows: NDArray[np.int64], outliers: Outliers) -> Group:
    key = columns.keys.iloc[rows[0]]
    recorded = columns.chance[rows]
    recorded = recorded[np.isfinite(recorded)]
    chance: tuple[float | None, str | None] = known_chance(key["task"], key["metric"])
    if len(recorded):
        chance = float(np.median(recorded)), "recorded with the trials"
    depths = [_depth(columns, part, outliers, chance[0]) for part in _split(rows, columns.depth_order[rows])]
    return Group(
        study=key["study"] or None,
        protocol=(columns.protocol[rows[0]] or None) if key["study"] else None,
        model=key["model"],
        task=key["task"],
        train_size=None if key["size"] < 0 else int(key["size"]),
        metric=key["metric"],
        total_layers=int(columns.layers[rows[0]]),
        chance=chance[0],
        chance_source=chance[1],
        depths=tuple(depths),
        seeds_shared=not columns.contradicted[rows].any(),
        demo=bool(columns.demo[rows].any()),
        duplicates=int(columns.identical[rows].sum()),
        rows=rows,
    )


def _depth(columns: Columns, rows: NDArray[np.int64], outliers: Outliers, chance: float | None) -> DepthRuns:
    usable = rows[columns.usable[rows]]
    new = rows[~columns.identical[rows]]
    diverged = _diverged(columns, new)
    rates = tuple(
        _rate(columns, part, outliers, diverged.get(float(columns.rate[part[0]]), 0))
        for part in _split(usable, columns.rate[usable])
    )
    failed = new[columns.state[new] == "FAIL"]
    finished = columns.complete[new]
    done = set(zip(columns.rate[new[finished]], columns.seed[new[finished]], strict=True))
    lost = {cell for cell in zip(columns.rate[failed], columns.seed[failed], strict=True) if cell not in done}
    nonfinite = int(finished.sum()) - len(usable)
    samples = [sample for rate in rates for sample in (rate.runs, rate.search) if sample is not None]
    counts = Counts(
        complete=int(finished.sum()),
        failed=len(failed),
        failed_cells=len(lost),
        diverged=nonfinite + int(columns.says_diverged[failed].sum()),
        collapsed=_collapsed(columns.score[usable], chance),
        unfinished=len(new) - int(finished.sum()) - len(failed),
        removed=sum(int((~sample.kept).sum()) for sample in samples),
    )
    return DepthRuns(int(columns.depth[rows[0]]), rates, counts)


def _diverged(columns: Columns, rows: NDArray[np.int64]) -> dict[float, int]:
    """By learning rate: the seeds that diverged, and that no retry brought to a finite score."""
    failed = (columns.state[rows] == "FAIL") & columns.says_diverged[rows]
    lost = rows[failed | (columns.complete[rows] & ~columns.usable[rows])]
    if not len(lost):
        return {}
    saved = rows[columns.usable[rows]]
    cells = set(zip(columns.rate[lost].tolist(), columns.seed[lost].tolist(), strict=True))
    cells -= set(zip(columns.rate[saved].tolist(), columns.seed[saved].tolist(), strict=True))
    return dict(Counter(rate for rate, _ in cells))


def _rate(columns: Columns, rows: NDArray[np.int64], outliers: Outliers, diverged: int) -> RateRuns:
    searching = columns.search[rows]
    samples = [_sample(columns, part, outliers) for part in (rows[~searching], rows[searching]) if len(part)]
    search = samples[1] if len(samples) > 1 else None
    return RateRuns(float(columns.rate[rows[0]]), samples[0], search, diverged)


def _sample(columns: Columns, rows: NDArray[np.int64], outliers: Outliers) -> Sample:
    scores = columns.score[rows]
    kept = np.ones(len(rows), dtype=bool) if outliers == "none" else paper_keeps(scores)
    return Sample(columns.seed[rows], scores, columns.selection[rows], kept)


def _mean(values: NDArray[np.float64], kept: NDArray[np.bool_]) -> float:
    # fsum, so that equal runs have exactly their own value as mean, and ties stay ties.
    counted = values.tolist() if kept.all() else values[kept].tolist()
    return fsum(counted) / len(counted)


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


def _collapsed(scores: NDArray[np.float64], chance: float | None) -> int:
    if chance is None or not len(scores) or 0.9 * scores.max() <= chance:
        return 0
    return int((scores <= chance + 1e-6).sum())


def _split(rows: NDArray[np.int64], values: NDArray[Any]) -> list[NDArray[np.int64]]:
    """Runs of equal values, in order."""
    if not len(rows):
        return []
    return np.split(rows, np.flatnonzero(values[1:] != values[:-1]) + 1)


def total(counts: Sequence[Counts]) -> Counts:
    return sum(counts, start=Counts())
