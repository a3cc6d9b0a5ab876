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


@dataclass(frozen=True)
class Runs:
    """The runs of one cell: a seed and one or more values each."""

    seeds: NDArray[np.int64]
    values: NDArray[np.float64]
    """(runs, columns): the score, and the selection score where there is one."""


class Resampler:
    """Draws every cell's runs with replacement, the same way in every analysis with the same seed."""

    def __init__(self, draws: int, seed: int = 0):
        self.draws = draws
        self._seed = seed
        self._kept: dict[int, list[NDArray[np.float64]]] = {}
        self._kept_weights = 0

    def means(self, cells: Sequence[Runs], *, paired: bool) -> NDArray[np.float64]:
        """(draws, cells, columns): each cell alone is an ordinary bootstrap of the mean of its n runs.

        Independent: no two cells have anything in common. Paired: seeds are drawn, not runs; cells
        with the same seeds get the same ones in a draw, cells that share some have those in common.
        """
        columns = cells[0].values.shape[1] if cells else 1
        means = np.empty((self.draws, len(cells), columns))
        fill = self._paired if paired else self._independent
        fill(cells, means)
        return means

    def _independent(self, cells: Sequence[Runs], means: NDArray[np.float64]) -> None:
        sizes = np.array([len(cell.seeds) for cell in cells])
        for n in np.unique(sizes):
            inside = np.flatnonzero(sizes == n)
            values = np.stack([cells[i].values for i in inside.tolist()], axis=1)
            drawn = np.empty((self.draws, len(inside), values.shape[2]))
            for start, weights in self._weights(int(n)):
                drawn[start : start + len(weights)] = np.tensordot(weights, values, axes=1) / n
            # The rows of weights are independent of each other, so cells that read them from different
            # rows on are independent in every draw, at the price of one set of weights for all.
            for k, i in enumerate(inside):
                means[:, i] = np.roll(drawn[:, k], int(i), axis=0)

    def _paired(self, cells: Sequence[Runs], means: NDArray[np.float64]) -> None:
        seeds = np.unique(np.concatenate([cell.seeds for cell in cells]))
        counts = np.zeros((len(seeds), len(cells)))
        totals = np.zeros((*counts.shape, means.shape[2]))
        for i, cell in enumerate(cells):
            at = np.searchsorted(seeds, cell.seeds)
            np.add.at(counts[:, i], at, 1)
            np.add.at(totals[:, i], at, cell.values)
        sets, of_cell = np.unique(counts > 0, axis=1, return_inverse=True)
        for j in range(sets.shape[1]):
            inside = np.flatnonzero(of_cell == j)
            member = sets[:, j]
            source = self._weights(len(seeds)) if member.all() else self._member_weights(member)
            for start, weights in source:
                rows = slice(start, start + len(weights))
                runs = weights @ counts[:, inside]
                means[rows, inside] = np.tensordot(weights, totals[:, inside], axes=1) / runs[..., None]

    def _weights(self, n: int) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """How often each draw holds each of n runs, in chunks of draws with their first draw."""
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
            start += len(weights)

    def _member_weights(self, member: NDArray[np.bool_]) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """The weights of a cell that lacks some of the seeds.

        Each draw is one endless row of seeds, and the cell takes the first that it has run, as many as
        it has: every one of its seeds is equally likely, and what it shares with other cells stays shared.
        """
        seeds, wanted, start = len(member), int(member.sum()), 0
        for first, generator in self._blocks(seeds):
            block = first
            found = np.zeros((len(block), 1), dtype=np.int64)
            weights = np.zeros(block.shape)
            while True:
                hit = member[block]
                rank = hit.cumsum(axis=1) + found
                weights += _counted(block, seeds, hit & (rank <= wanted))
                found = rank[:, -1:]
                if (found >= wanted).all():
                    break
                block = generator.integers(0, seeds, block.shape, dtype=block.dtype)
            yield start, weights
            start += len(weights)

    def _blocks(self, n: int) -> Iterator[tuple[NDArray[np.unsignedinteger], np.random.Generator]]:
        """Chunks of draws, n runs each, and the generator that goes on with their rows."""
        chunk = max(1, _MOST_WEIGHTS // n)
        smallest = np.uint8 if n <= 256 else np.uint16 if n <= 65_536 else np.uint32
        for start in range(0, self.draws, chunk):
            generator = np.random.default_rng((self._seed, n, start))
            shape = (min(chunk, self.draws - start), n)
            yield generator.integers(0, n, shape, dtype=smallest), generator


def _counted(
    block: NDArray[np.unsignedinteger], n: int, taken: NDArray[np.bool_] | None = None
) -> NDArray[np.float64]:
    at = np.arange(len(block), dtype=np.int64)[:, None] * n + block
    flat = at.ravel() if taken is None else at[taken]
    counts: NDArray[np.float64] = np.bincount(flat, minlength=len(block) * n).astype(np.float64)
    return counts.reshape(len(block), n)
