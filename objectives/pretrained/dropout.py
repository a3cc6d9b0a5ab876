"""Dropout for CPUs: sixteen random bits per element instead of a float, several times as fast.

PyTorch draws a Bernoulli float for every element, more than a tenth of a BERT's training step on a CPU.
Rates are rounded to 1/65536; else it is as `torch.nn.functional.dropout`, for which it stands in.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn import functional

if TYPE_CHECKING:
    from objectives.capabilities import Capabilities

_LEVELS = 1 << 16
_stock = functional.dropout


class RandomBits:
    """A stream of random bits, the same wherever PyTorch was seeded the same before the first draw."""

    @cached_property
    def _generator(self) -> np.random.Generator:
        return np.random.Generator(np.random.SFC64(int(torch.randint(2**63 - 1, ()))))

    @property
    def state(self) -> dict[str, Any]:
        return dict(self._generator.bit_generator.state)

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._generator.bit_generator.state = state

    def repeating(self) -> AbstractContextManager[None]:
        """For later: while it lasts, what was drawn from this moment on is drawn once more."""
        return self._from(self.state)

    @contextmanager
    def _from(self, state: dict[str, Any]) -> Iterator[None]:
        later, self.state = self.state, state
        try:
            yield
        finally:
            self.state = later

    def draw(self, shape: torch.Size) -> torch.Tensor:
        count = shape.numel()
        words = self._generator.integers(-(2**63), 2**63 - 1, (count + 3) // 4, np.int64, endpoint=True)
        return torch.from_numpy(words).view(torch.int16)[:count].view(shape)


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, values: torch.Tensor, rate: float, stream: RandomBits) -> torch.Tensor:
        # Zeros and ones as floats at once: a mask would have to be cast wherever it is used.
        factors = torch.empty(values.shape, dtype=values.dtype)
        torch.ge(stream.draw(values.shape), round(rate * _LEVELS) - _LEVELS // 2, out=factors)
        factors.mul_(1 / (1 - rate))
        context.save_for_backward(factors)
        return values * factors

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (factors,) = context.saved_tensors
        return gradients[0] * factors, None, None


@contextmanager
def fast_dropout(can: Capabilities) -> Iterator[RandomBits | None]:
    """While it lasts, every dropout of every model on a CPU is the fast one, and draws from this stream."""
    if not can.is_host:
        yield None
        return
    stream = RandomBits()

    def dropout(
        input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> torch.Tensor:
        if not training or p == 0:
            return input
        if p >= 1 or inplace or not input.is_cpu:
            return _stock(input, p, training, inplace)
        return _Dropout.apply(input, p, stream)

    functional.dropout = dropout
    try:
        yield stream
    finally:
        functional.dropout = _stock
