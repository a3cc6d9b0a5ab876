"""Which runs collapsed: trained to the end, and learned nothing where runs beside them learned.

A collapse is the luck of a seed or of a learning rate, so it is judged beside other runs of the same depth: a
depth whose runs all score what chance does has not collapsed, that is its quality.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

LOST = 0.75
"""A collapsed run has lost more than this share of what its fellows have above chance,"""
NOISES = 4.0
"""and lies further below them than this many standard deviations of one run."""
AT_CHANCE = 0.1
"""A run with less than this share of what the depth's best runs have above chance is at chance."""
LEARNED, LEARNED_SHARE = 0.05, 0.25
"""Only beside runs that learned can another have collapsed: they are this much above chance, in points and
as a share of the best depth's."""
_LARGEST_OF = (0.0, 0.0, 0.564, 0.846, 1.029, 1.163, 1.267, 1.352, 1.424, 1.485, 1.539)
"""The expected largest of n standard normal values."""
_MEDIANS: tuple[Literal["lower"], Literal["linear"]] = ("lower", "linear")


def collapsed(
    scores: NDArray[np.float64], cells: NDArray[np.int64], depths: NDArray[np.int64], chance: float | None
) -> NDArray[np.bool_]:
    """Which of the runs collapsed. `cells` numbers the cell of each run from 0, in ascending order; `depths`
    numbers the depth of each cell."""
    if not len(scores):
        return np.zeros(0, dtype=bool)
    floor = 0.0 if chance is None else chance
    levels, spreads = _levels(scores, cells)
    # Of a run at chance little is asked: the quieter half of the cells says what noise is.
    quiet, noise = (float(np.quantile(spreads, 0.5, method=m)) if len(spreads) else 0.0 for m in _MEDIANS)
    best = np.full(int(depths.max()) + 1, floor)
    np.maximum.at(best, depths, levels)
    level, above = levels[cells], best[depths][cells] - floor
    unit = max(1.0, float(np.abs(scores).max()))
    learned = max(LEARNED * unit, LEARNED_SHARE * (float(best.max()) - floor), NOISES * quiet)
    loss = level - scores
    far_below = (loss > LOST * (level - floor)) & (loss > NOISES * noise) & (level - floor >= learned)
    nothing = scores <= floor + AT_CHANCE * above
    return far_below | (nothing & (above >= learned))


def _levels(
    scores: NDArray[np.float64], cells: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Where the better half of each cell's runs lies, and each cell's standard deviation of one run.

    That is from the distance of its best run from its median: a collapse only lowers a run, so it does not
    show in the upper half of a cell, and the median over cells leaves out those with many.
    """
    sizes = np.bincount(cells)
    starts = np.cumsum(sizes) - sizes
    levels, spreads = np.zeros(len(sizes)), [np.zeros(0)]
    for n in np.unique(sizes).tolist():
        same = np.flatnonzero(sizes == n)
        runs = np.sort(scores[starts[same][:, None] + np.arange(n)], axis=1)
        levels[same] = np.median(runs[:, n // 2 :], axis=1)
        if n > 1:
            spreads.append((runs[:, -1] - np.median(runs, axis=1)) / _LARGEST_OF[min(n, 10)])
    return levels, np.concatenate(spreads)
