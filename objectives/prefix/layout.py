"""Where in a file of states each example lies: in chunks, the longest examples at the end of the file.

Chunks are computed from the last one in the file to the first, so that a file which the next depth is
computed from can be cut off behind them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

CHUNK_BYTES = 1 << 25
"""About how much of a depth is computed before it is written: what a killed process loses."""


@dataclass(frozen=True)
class Layout:
    """Of examples of these lengths, whose chunks hold at most so many tokens (or one example)."""

    lengths: NDArray[np.int64]
    chunk_tokens: int

    @cached_property
    def chunks(self) -> list[NDArray[np.int64]]:
        """The examples of each, in the order in which they are computed and written: longest first."""
        order = np.argsort(-self.lengths, kind="stable")
        ends = np.cumsum(self.lengths[order])
        number = (ends - 1) // self.chunk_tokens
        return np.split(order, np.flatnonzero(np.diff(number)) + 1)

    def spans(self, widths: NDArray[np.int64]) -> list[tuple[int, int]]:
        """First and last row of each chunk in the file, where an example takes so many rows of it."""
        sizes = [int(widths[chunk].sum()) for chunk in self.chunks]
        ends = sum(sizes) - np.concatenate([[0], np.cumsum(sizes)])
        return [(int(first), int(last)) for last, first in pairwise(ends)]

    def starts(self, widths: NDArray[np.int64]) -> NDArray[np.int64]:
        """The row of the file with which each example begins."""
        found = np.empty(len(self.lengths), dtype=np.int64)
        for chunk, (first, _) in zip(self.chunks, self.spans(widths), strict=True):
            found[chunk] = first + np.cumsum(widths[chunk]) - widths[chunk]
        return found
