"""Dropout for CPUs: sixteen random bits per element instead of a float, several times as fast.

PyTorch draws a Bernoulli float for every element, more than a tenth of a BERT's training step on a CPU.
Rates are rounded to 1/65536; else it is as `torch.nn.functional.dropout`, for which it stands in.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional

_LEVELS = 1 << 16


class _Dropout(torch.autograd.Function):
    """Keeps the mask as one byte per element, where PyTorch keeps four."""

    @staticmethod
    def forward(context: Any, values: torch.Tensor, rate: float) -> torch.Tensor:
        count = values.numel()
        draws = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
        bits = draws.view(torch.int16)[:count].view(values.shape)
        keep = bits >= round(rate * _LEVELS) - _LEVELS // 2
        context.save_for_backward(keep)
        context.scale = 1 / (1 - rate)
        return (values * keep).mul_(context.scale)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        (keep,) = context.saved_tensors
        return (gradients[0] * keep).mul_(context.scale), None


def dropout(
    input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> torch.Tensor:
    if not training or p == 0:
        return input
    if p >= 1 or inplace or input.device.type != "cpu":
        return _stock(input, p, training, inplace)
    return _Dropout.apply(input, p)


_stock = functional.dropout


@contextmanager
def fast_dropout(device: torch.device) -> Iterator[None]:
    """While it lasts, every dropout of every model on a CPU is the fast one."""
    if device.type != "cpu":
        yield
        return
    functional.dropout = dropout
    try:
        yield
    finally:
        functional.dropout = _stock
