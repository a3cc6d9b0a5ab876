"""A trial table sorted into groups, depths and learning rates, with every run accounted for.

A group is one model, task, train size and metric, of one study where rows name theirs. Nothing is
averaged or chosen here, and no row is left out without being counted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from objectives.contract import UsageError
from objectives.tasks import metrics
from study.analysis.chance import known_chance
from study.analysis.choices import Outliers
from study.analysis.collapses import collapsed
from study.analysis.samples import Counts, DepthRuns, Group, RateRuns, Sample, make_sample
from study.trials.columns import SEARCH_SUFFIX, Columns

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray


def groups(table: pd.DataFrame, outliers: Outliers = "none") -> list[Group]:
    """Every group of the table, by model, task, train size and metric."""
    columns = Columns(table)
    _refuse(columns)
    order = np.lexsort((columns.search, columns.rate, columns.depth_order, columns.group))
    fallen = np.zeros(len(table), dtype=bool)
    found = [_group(columns, rows, outliers, fallen) for rows in _split(order, columns.group[order])]
    return sorted(
        found,
        key=lambda g: (g.model, g.task, g.train_size is None, g.train_size or 0, g.metric, g.study or ""),
    )


def _refuse(columns: Columns) -> None:
    """What no analysis can be right about: two models under one name."""
    layers = columns.keys.assign(layers=columns.layers).groupby("model", sort=False)["layers"].unique()
    for model, found in layers.items():
        if len(found) > 1:
            raise UsageError(
                f"{model} has total_layers {' and '.join(map(str, sorted(found)))}: "
                "one model has one number of layers; name them differently"
            )


def _group(columns: Columns, rows: NDArray[np.int64], outliers: Outliers, fallen: NDArray[np.bool_]) -> Group:
    """`fallen` has room to mark the table's collapsed runs."""
    key = columns.keys.iloc[rows[0]]
    recorded = columns.chance[rows]
    recorded = recorded[np.isfinite(recorded)]
    chance: tuple[float | None, str | None] = known_chance(key["task"], key["metric"])
    if len(recorded):
        chance = float(np.median(recorded)), "recorded with the trials"
    qualities = _qualities(columns, rows, key["metric"], chance[0])
    _mark_collapsed(columns, rows, qualities, fallen)
    sorting = _Sorting(columns, qualities, outliers, fallen)
    return Group(
        study=key["study"] or None,
        protocol=(columns.protocol[rows[0]].removesuffix(SEARCH_SUFFIX) or None) if key["study"] else None,
        model=key["model"],
        task=key["task"],
        train_size=None if key["size"] < 0 else int(key["size"]),
        metric=key["metric"],
        total_layers=int(columns.layers[rows[0]]),
        chance=chance[0],
        chance_source=chance[1],
        depths=tuple(sorting.depth(part) for part in _split(rows, columns.depth_order[rows])),
        seeds_shared=not columns.contradicted[rows].any(),
        demo=bool(columns.demo[rows].any()),
        duplicates=int(columns.identical[rows].sum()),
    )


@dataclass(frozen=True)
class _Qualities:
    """What a group's metric makes of scores: numbers of which more is better."""

    score: NDArray[np.float64]
    selection: NDArray[np.float64]
    chance: float | None


def _qualities(columns: Columns, rows: NDArray[np.int64], metric: str, chance: float | None) -> _Qualities:
    about = metrics.describe(metric)
    if about.higher_is_better:
        return _Qualities(columns.score, columns.selection, chance)
    if chance is None and not columns.usable[rows].any():
        # Chance is recorded with a trial's result: before the first there is no quality, and none is needed.
        unknown = np.full(len(columns.score), np.nan)
        return _Qualities(unknown, unknown, None)
    if chance is None:
        raise UsageError(
            f"metric {metric!r} is better the lower it is: to tell what share of the full quality is kept, "
            "the table needs a column chance, the error of the best constant answer"
        )
    score, selection = (about.quality(values, chance) for values in (columns.score, columns.selection))
    return _Qualities(score, selection, about.quality(chance, chance))


def _mark_collapsed(
    columns: Columns, rows: NDArray[np.int64], qualities: _Qualities, fallen: NDArray[np.bool_]
) -> None:
    usable = rows[columns.usable[rows]]
    place = np.stack([columns.depth_order[usable], columns.rate[usable], columns.search[usable]])
    new = np.ones(len(usable), dtype=bool)
    new[1:] = (place[:, 1:] != place[:, :-1]).any(axis=0)
    depths = np.unique(place[0][new], return_inverse=True)[1]
    fallen[usable] = collapsed(qualities.score[usable], np.cumsum(new) - 1, depths, qualities.chance)


@dataclass(frozen=True)
class _Sorting:
    """The rows of a group on their way to depths, learning rates and samples."""

    columns: Columns
    qualities: _Qualities
    outliers: Outliers
    fallen: NDArray[np.bool_]

    def depth(self, rows: NDArray[np.int64]) -> DepthRuns:
        columns = self.columns
        usable = rows[columns.usable[rows]]
        new = rows[~columns.identical[rows]]
        diverged = _diverged(columns, new)
        rates = tuple(
            self._rate(part, diverged.get(float(columns.rate[part[0]]), 0))
            for part in _split(usable, columns.rate[usable])
        )
        failed = new[columns.state[new] == "FAIL"]
        finished = columns.complete[new]
        done = set(zip(columns.rate[new[finished]], columns.seed[new[finished]], strict=True))
        lost = {
            cell for cell in zip(columns.rate[failed], columns.seed[failed], strict=True) if cell not in done
        }
        samples = [sample for rate in rates for sample in (rate.runs, rate.search) if sample is not None]
        filtered = 0 if self.outliers == "none" else sum(int((~sample.kept).sum()) for sample in samples)
        counts = Counts(
            complete=int(finished.sum()),
            failed=len(failed),
            failed_cells=len(lost),
            diverged=int(finished.sum()) - len(usable) + int(columns.says_diverged[failed].sum()),
            collapsed=sum(int(sample.collapsed.sum()) for sample in samples),
            unfinished=len(new) - int(finished.sum()) - len(failed),
            removed=filtered,
        )
        return DepthRuns(int(columns.depth[rows[0]]), rates, counts)

    def _rate(self, rows: NDArray[np.int64], diverged: int) -> RateRuns:
        searching = self.columns.search[rows]
        samples = [self._sample(part) for part in (rows[~searching], rows[searching]) if len(part)]
        search = samples[1] if len(samples) > 1 else None
        floor = self.qualities.chance or 0.0
        return RateRuns(float(self.columns.rate[rows[0]]), samples[0], search, diverged, floor)

    def _sample(self, rows: NDArray[np.int64]) -> Sample:
        return make_sample(
            self.columns.seed[rows],
            self.qualities.score[rows],
            self.qualities.selection[rows],
            self.fallen[rows],
            outliers=self.outliers,
            rows=rows,
            errors=self.columns.error[rows],
        )


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


def _split(rows: NDArray[np.int64], values: NDArray[Any]) -> list[NDArray[np.int64]]:
    """Runs of equal values, in order."""
    if not len(rows):
        return []
    return np.split(rows, np.flatnonzero(values[1:] != values[:-1]) + 1)
