"""Batches on their way to the device: padded on the host one step ahead, by a thread of their own.

While a step computes, the next one's tokens and states are read (states may come from a disk), so that
training waits for neither. Each process loads its own part of every batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from objectives.capabilities import Capabilities, capabilities
from objectives.encoding import Encoded, evaluation_batches
from objectives.states import DeviceStates, States

_AHEAD = 2
_READ_AHEAD = 8
"""Batches whose states the system reads from the disk while others are computed."""
Rows = NDArray[np.int64]
Stored = States | DeviceStates
Part = tuple[Rows, float, int]
"""Examples, their weight, and how many the whole batch has."""


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
    rows: Rows
    inputs: dict[str, torch.Tensor]
    labels: torch.Tensor
    states: torch.Tensor | None
    """After the frozen layers, where they are cached."""
    weight: float = 1.0
    """What a sum over this process's examples is multiplied by to be its part of the whole batch's mean."""
    examples: int = 0
    """Of the whole batch, in all processes."""


@dataclass(frozen=True)
class Loader:
    device: torch.device
    process: int = 0
    processes: int = 1

    def training(self, split: Split, batches: Iterable[Rows]) -> Iterator[Batch]:
        """This process's part of each batch."""

        def parts() -> Iterator[Part]:
            for rows in batches:
                mine = rows[self.process :: self.processes]
                if len(mine):
                    yield mine, 1 / len(rows), len(rows)
                else:  # every process must take part in the step
                    yield rows[:1], 0.0, len(rows)

        return self._load(split, parts())

    def evaluation(self, split: Split) -> Iterator[Batch]:
        """This process's batches of all examples, the longest first."""
        batches = list(evaluation_batches(split.encoded.lengths, self._can.forward_tokens))
        mine = batches[self.process :: self.processes]
        return self._load(split, ((rows, 1.0, len(rows)) for rows in mine))

    def _load(self, split: Split, parts: Iterable[Part]) -> Iterator[Batch]:
        waiting: deque[Future[Batch]] = deque()
        with ThreadPoolExecutor(1, "batches", self._can.enter_thread) as thread:
            for part in _expected(split, parts):
                waiting.append(thread.submit(self._on_host, split, *part))
                if len(waiting) > _AHEAD:
                    yield self._on_device(split, waiting.popleft().result())
            while waiting:
                yield self._on_device(split, waiting.popleft().result())

    def _on_host(self, split: Split, rows: Rows, weight: float, examples: int) -> Batch:
        """NumPy alone, for PyTorch would start a second set of compute threads in this one."""
        padded = split.encoded.pad_rows(rows, multiple=8 if self._can.has_tensor_cores else 1)
        states = None
        if split.states is not None:
            width = padded["attention_mask"].shape[1]
            states = self._can.pin(split.states.block(split.stored(rows), width))
        inputs = {name: self._can.pin(torch.from_numpy(block)) for name, block in padded.items()}
        labels = self._can.pin(torch.from_numpy(split.encoded.labels[rows]))
        return Batch(rows, inputs, labels, states, weight, examples)

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


def _expected(split: Split, parts: Iterable[Part]) -> Iterator[Part]:
    """The same parts, the states of some more of them on their way from the disk."""
    if split.states is None:
        yield from parts
        return
    ahead: deque[Part] = deque()
    for part in parts:
        split.states.expect(split.stored(part[0]))
        ahead.append(part)
        if len(ahead) > _READ_AHEAD:
            yield ahead.popleft()
    yield from ahead
