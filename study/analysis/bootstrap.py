"""Resampled means: what the scores would have been with other seeds, drawn from the runs there are.

It knows cells of runs and their seeds, not depths or thresholds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MOST_WEIGHTS = 2_000_000
"""Weights made at a time: more draws than fit are done in chunks."""
_MOST_KEPT = 16_000_000
"""Weights kept for other cells with as many runs."""
_FEW_SEEDS = 7
"""Up to here the draws repeat each other so often that each different one is worked out once."""


@dataclass(frozen=True)
class Runs:
    """The runs of one cell: a seed and one or more values each."""

    seeds: NDArray[np.int64]
    values: NDArray[np.float64]
    """(runs, columns): the score, and the selection score where there is one."""


@dataclass(frozen=True)
class Resampled:
    means: NDArray[np.float64]
    """(columns, cells, different draws)."""
    times: NDArray[np.int64]
    """How often each of these draws came up."""


class Resampler:
    """Draws every cell's runs with replacement, the same way in every analysis with the same seed."""

    def __init__(self, draws: int, seed: int = 0):
        self.draws = draws
        self._seed = seed
        self._kept: dict[int, list[NDArray[np.float64]]] = {}
        self._kept_weights = 0
        self._few: dict[int, tuple[NDArray[np.float64], NDArray[np.int64]]] = {}

    def resample(self, cells: Sequence[Runs], *, paired: bool) -> Resampled:
        """Each cell alone is an ordinary bootstrap of the mean of its n runs.

        Independent: no two cells have anything in common. Paired: seeds are drawn, not runs; cells
        with the same seeds get the same ones in a draw, cells that share some have those in common.
        """
        seeds = cells[0].seeds
        if paired and len(seeds) <= _FEW_SEEDS and all(_same(cell.seeds, seeds) for cell in cells):
            weights, times = self._distinct(len(seeds))
            values = np.stack([cell.values[cell.seeds.argsort()].T for cell in cells], axis=1)
            return Resampled(values @ weights / len(seeds), times)
        means = np.empty((cells[0].values.shape[1], len(cells), self.draws))
        fill = self._paired if paired else self._independent
        fill(cells, means)
        return Resampled(means, np.ones(self.draws, dtype=np.int64))

    def _distinct(self, n: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        if n not in self._few:
            weights = np.concatenate([chunk for _, chunk in self._weights(n)], axis=1)
            self._few[n] = np.unique(weights, axis=1, return_counts=True)
        return self._few[n]

    def _independent(self, cells: Sequence[Runs], means: NDArray[np.float64]) -> None:
        sizes = np.array([len(cell.seeds) for cell in cells])
        for n in np.unique(sizes):
            inside = np.flatnonzero(sizes == n)
            values = np.stack([cells[i].values.T for i in inside.tolist()], axis=1) / n
            drawn = np.empty((*values.shape[:2], self.draws))
            for start, weights in self._weights(int(n)):
                drawn[..., start : start + weights.shape[1]] = values @ weights
            # The draws of one run are independent of each other, so cells that begin at different
            # draws are independent in every draw, at the price of one set of weights for all.
            for k, i in enumerate(inside.tolist()):
                turn = i % self.draws
                means[:, i, turn:] = drawn[:, k, : self.draws - turn]
                means[:, i, :turn] = drawn[:, k, self.draws - turn :]

    def _paired(self, cells: Sequence[Runs], means: NDArray[np.float64]) -> None:
        seeds, at = np.unique(np.concatenate([cell.seeds for cell in cells]), return_inverse=True)
        of_run = np.repeat(np.arange(len(cells)), [len(cell.seeds) for cell in cells])
        values = np.concatenate([cell.values for cell in cells])
        counts = np.zeros((len(cells), len(seeds)))
        np.add.at(counts, (of_run, at), 1.0)
        totals = np.zeros((len(means), *counts.shape))
        for k, total in enumerate(totals):
            np.add.at(total, (of_run, at), values[:, k])
        sets, of_cell = np.unique(counts > 0, axis=0, return_inverse=True)
        for j, member in enumerate(sets):
            inside = np.flatnonzero(of_cell == j)
            whole = len(inside) == len(cells)
            once = counts[inside].max() == 1
            source = self._weights(len(seeds)) if member.all() else self._member_weights(member)
            for start, weights in source:
                drawn = slice(start, start + weights.shape[1])
                # With one run a seed every draw holds as many runs as the cell has.
                runs = member.sum() if once else counts[inside] @ weights
                if whole:
                    np.divide(totals @ weights, runs, out=means[..., drawn])
                else:
                    means[:, inside, drawn] = (totals[:, inside] @ weights) / runs

    def _weights(self, n: int) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """How often each draw holds each of n runs, (runs, draws), in chunks with their first draw."""
        if n in self._kept:
            chunks = iter(self._kept[n])
        else:
            chunks = (_counted(block, n) for block, _ in self._blocks(n))
            if self._kept_weights + n * self.draws <= _MOST_KEPT:
                self._kept[n] = list(chunks)
                self._kept_weights += n * self.draws
                chunks = iter(self._kept[n])
        start = 0
        for weights in chunks:
            yield start, weights
            start += weights.shape[1]

    def _member_weights(self, member: NDArray[np.bool_]) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """The weights of a cell that lacks some of the seeds.

        Each draw is one endless row of seeds, and the cell takes the first that it has run, as many as
        it has: every one of its seeds is equally likely, and what it shares with other cells stays shared.
        """
        seeds, wanted, start = len(member), int(member.sum()), 0
        for first, generator in self._blocks(seeds):
            block = first
            found = np.zeros((len(block), 1), dtype=np.int64)
            weights = np.zeros((seeds, len(block)))
            while True:
                hit = member[block]
                rank = hit.cumsum(axis=1) + found
                weights += _counted(block, seeds, hit & (rank <= wanted))
                found = rank[:, -1:]
                if (found >= wanted).all():
                    break
                block = generator.integers(0, seeds, block.shape, dtype=block.dtype)
            yield start, weights
            start += weights.shape[1]

    def _blocks(self, n: int) -> Iterator[tuple[NDArray[np.unsignedinteger], np.random.Generator]]:
        """Chunks of draws, n runs each, and the generator that goes on with their rows."""
        chunk = max(1, _MOST_WEIGHTS // n)
        smallest = np.uint8 if n <= 256 else np.uint16 if n <= 65_536 else np.uint32
        for start in range(0, self.draws, chunk):
            generator = np.random.default_rng((self._seed, n, start))
            shape = (min(chunk, self.draws - start), n)
            yield generator.integers(0, n, shape, dtype=smallest), generator


def _same(these: NDArray[np.int64], those: NDArray[np.int64]) -> bool:
    """The same seeds, once each."""
    unique = np.unique(these)
    return len(unique) == len(these) and np.array_equal(unique, np.unique(those))


def _counted(
    block: NDArray[np.unsignedinteger], n: int, taken: NDArray[np.bool_] | None = None
) -> NDArray[np.float64]:
    draws = len(block)
    at = block.astype(np.int64) * draws + np.arange(draws)[:, None]
    flat = at.ravel() if taken is None else at[taken]
    counts: NDArray[np.float64] = np.bincount(flat, minlength=draws * n).astype(np.float64)
    return counts.reshape(n, draws)
