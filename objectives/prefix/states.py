"""Stored states of one depth as trials read them: mapped from the cache's file, or whole on the device."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

Rows = NDArray[np.int64]
_COPIED_BYTES = 1 << 26
"""That are moved to the device at a time."""


@dataclass(frozen=True)
class Places:
    """Where in the file each example is."""

    starts: Rows
    widths: Rows
    """Rows of the file that it takes: its tokens, or 1."""
    one_token: bool
    """Only the token that the head reads is stored."""
    left: bool
    """Padding goes before the tokens."""


class States:
    """The states of all examples after one number of layers, in a file.

    The map keeps the file's lock: an entry that somebody has mapped is never removed.
    """

    def __init__(
        self, file: BinaryIO, places: Places, *, dtype: torch.dtype, hidden: int, seconds: float = 0.0
    ):
        self.places, self.dtype = places, dtype
        self.seconds = seconds
        """What computing them takes, with all layers below."""
        self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        # Batches are drawn at random, and `expect` knows them: what lies beside them is not read ahead.
        self._map.madvise(mmap.MADV_RANDOM)
        # Integers of the same size: NumPy only moves the states, and knows no bfloat16.
        self.flat = np.frombuffer(self._map, dtype=f"i{dtype.itemsize}").reshape(-1, hidden)

    def expect(self, rows: Rows) -> None:
        """Have the system read these examples' states while others are computed."""
        row_bytes = self.flat.itemsize * self.flat.shape[1]
        for row in rows:
            first = int(self.places.starts[row]) * row_bytes
            last = first + int(self.places.widths[row]) * row_bytes
            first -= first % mmap.PAGESIZE
            self._map.madvise(mmap.MADV_WILLNEED, first, last - first)

    def read_in_order(self) -> None:
        """From now on from the first row to the last, with the system's own reading ahead.

        Measured on a cold file: ten times as fast as page by page; MADV_SEQUENTIAL was slower than either.
        """
        self._map.madvise(mmap.MADV_NORMAL)

    def block(self, rows: Rows, width: int) -> torch.Tensor:
        """What goes to the device for these examples: their states, with zeros where there is padding.

        (batch, width, hidden), or (batch, hidden) where one token is stored.
        """
        import torch

        places = self.places
        if places.one_token:
            return torch.from_numpy(self.flat[places.starts[rows]]).view(self.dtype)
        block = np.zeros((len(rows), width, self.flat.shape[1]), dtype=self.flat.dtype)
        for place, row in enumerate(rows):
            first, length = int(places.starts[row]), int(places.widths[row])
            at = width - length if places.left else 0
            block[place, at : at + length] = self.flat[first : first + length]
        return torch.from_numpy(block).view(self.dtype)

    def values(self, block: torch.Tensor) -> torch.Tensor:
        """The states of such a block, once it is on the device."""
        return block


class DeviceStates:
    """The same in the device's memory: a block says which rows the device gathers."""

    def __init__(self, mapped: States, device: torch.device):
        import torch

        self.places, self.seconds = mapped.places, mapped.seconds
        rows, hidden = mapped.flat.shape
        # One row of zeros more, for padding.
        self._stored = torch.zeros((rows + 1, hidden), dtype=mapped.dtype, device=device)
        step = max(1, _COPIED_BYTES // (hidden * mapped.dtype.itemsize))
        mapped.read_in_order()
        for first in range(0, rows, step):
            part = torch.from_numpy(mapped.flat[first : first + step].copy()).view(mapped.dtype)
            self._stored[first : first + len(part)] = part.to(device)

    @property
    def nbytes(self) -> int:
        return self._stored.numel() * self._stored.element_size()

    def expect(self, rows: Rows) -> None:
        """They are there."""

    def block(self, rows: Rows, width: int) -> torch.Tensor:
        import torch

        places = self.places
        starts = places.starts[rows]
        if places.one_token:
            return torch.from_numpy(starts)
        lengths = places.widths[rows][:, None]
        at = np.arange(width) - (width - lengths if places.left else np.zeros_like(lengths))
        there = (at >= 0) & (at < lengths)
        return torch.from_numpy(np.where(there, starts[:, None] + at, len(self._stored) - 1))

    def values(self, block: torch.Tensor) -> torch.Tensor:
        return self._stored[block]
