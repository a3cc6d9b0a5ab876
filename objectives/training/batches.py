"""Batches on their way to the device: padded on the host one step ahead, by a thread of their own.

While a step computes, the next one's tokens and states are read (states may come from a disk), so that
training waits for neither. Each process loads its own part of every batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from objectives.capabilities import Capabilities, capabilities
from objectives.data.encoding import Encoded, evaluation_batches
from objectives.prefix.states import DeviceStates, States

_AHEAD = 2
_READ_AHEAD = 8
"""Batches whose states the system reads from the disk while others are computed."""
Rows = NDArray[np.int64]
Stored = States | DeviceStates


@dataclass
class Split:
    """Examples with, where the prefix is cached, the states of all splits at the trial's depth."""

    encoded: Encoded
    first: int = 0
    """The number of its first example among those of all splits."""
    states: Stored | None = None

    def stored(self, rows: Rows) -> Rows:
        """The places of these examples among the states."""
        return rows + self.first


@dataclass
class Batch:
    """Rows first, tensors once they are loaded."""

    rows: Rows
    inputs: dict[str, torch.Tensor] = field(default_factory=dict)
    labels: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    states: torch.Tensor | None = None
    """After the frozen layers, where they are cached."""
    weight: float = 1.0
    """What a sum over this process's examples is multiplied by to be its part of the whole batch's mean."""
    examples: int = 0
    """Of the whole batch, in all processes."""
    ends_step: bool = True
    """False where further micro-batches of the same batch follow."""


@dataclass(frozen=True)
class Loader:
    device: torch.device
    process: int = 0
    processes: int = 1
    micro_batch: int | None = None
    """The most examples at a time while training; None is the process's whole part of a batch."""
    multiple: int = 1
    """Of tokens that batches are padded to, where that costs little."""
    forward_share: float = 1.0
    """Of the tokens at a time that this device usually takes without gradient."""
    together: bool = False
    """Whether every process must take part in every forward pass, those of an evaluation too."""

    def training(self, split: Split, batches: Iterable[Rows]) -> Iterator[Batch]:
        """This process's part of each batch, in as many micro-batches as it takes."""

        def parts() -> Iterator[Batch]:
            for rows in batches:
                *before, last = self._pieces(rows, split.encoded.lengths)
                yield from (Batch(rows=r, weight=w, ends_step=False) for r, w in before)
                yield Batch(rows=last[0], weight=last[1], examples=len(rows))

        return self._load(split, parts())

    def _pieces(self, rows: Rows, lengths: Rows) -> list[tuple[Rows, float]]:
        """This process's micro-batches with their weights, each of like length and so with little padding.

        All processes have as many, for every one must take part in all: where none is left, with an example
        that counts for nothing.
        """
        mine = rows[self.process :: self.processes]
        largest = -(-len(rows) // self.processes)
        count = -(-largest // (self.micro_batch or largest))
        if count > 1:
            mine = mine[np.argsort(-lengths[mine], kind="stable")]
        pieces = np.array_split(mine, count)
        return [(piece, 1 / len(rows)) if len(piece) else (rows[:1], 0.0) for piece in pieces]

    def evaluation(self, split: Split) -> Iterator[Batch]:
        """This process's batches of all examples, the longest first."""
        tokens = max(1, int(self._can.forward_tokens * self.forward_share))
        batches = list(evaluation_batches(split.encoded.lengths, tokens))
        if self.together:
            # Whoever would be left without one repeats the shortest.
            batches += batches[-1:] * (-len(batches) % self.processes)
        mine = batches[self.process :: self.processes]
        return self._load(split, (Batch(rows=rows, examples=len(rows)) for rows in mine))

    def _load(self, split: Split, parts: Iterable[Batch]) -> Iterator[Batch]:
        waiting: deque[Future[Batch]] = deque()
        with ThreadPoolExecutor(1, "batches", self._can.enter_thread) as thread:
            for part in _expected(split, parts):
                waiting.append(thread.submit(self._on_host, split, part))
                if len(waiting) > _AHEAD:
                    yield self._on_device(split, waiting.popleft().result())
            while waiting:
                yield self._on_device(split, waiting.popleft().result())

    def _on_host(self, split: Split, batch: Batch) -> Batch:
        """NumPy alone, for PyTorch would start a second set of compute threads in this one."""
        rows = batch.rows
        padded = split.encoded.pad_rows(rows, self.multiple)
        if split.states is not None:
            width = padded["attention_mask"].shape[1]
            batch.states = self._can.pin(split.states.block(split.stored(rows), width))
        batch.inputs = {name: self._can.pin(torch.from_numpy(block)) for name, block in padded.items()}
        batch.labels = self._can.pin(torch.from_numpy(split.encoded.labels[rows]))
        return batch

    def _on_device(self, split: Split, batch: Batch) -> Batch:
        def move(block: torch.Tensor) -> torch.Tensor:
            return block.to(self.device, non_blocking=True)

        batch.inputs = {name: move(block) for name, block in batch.inputs.items()}
        batch.labels = move(batch.labels)
        if batch.states is not None and split.states is not None:
            batch.states = split.states.values(move(batch.states))
        return batch

    @cached_property
    def _can(self) -> Capabilities:
        return capabilities(self.device)


def _expected(split: Split, parts: Iterable[Batch]) -> Iterator[Batch]:
    """The same parts, the states of some more of them on their way from the disk."""
    if split.states is None:
        yield from parts
        return
    ahead: deque[Batch] = deque()
    for part in parts:
        split.states.expect(split.stored(part.rows))
        ahead.append(part)
        if len(ahead) > _READ_AHEAD:
            yield ahead.popleft()
    yield from ahead
