"""`--compile`: tuned layers through `torch.compile`, one by one, so that one layer's code serves them all.

Off by default: the fused code rounds differently, compiling takes a minute per worker, and on CPUs it gains
nothing (the README has the measurement).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from objectives.contract import UsageError

if TYPE_CHECKING:
    from objectives.pretrained.stack import LayerStack

_VARIANTS = 64
"""Training and evaluating, with and without gradient below, the last layer: beyond PyTorch's limit of eight,
after which it would run uncompiled without a word."""


class Compiled:
    def __init__(self, stack: LayerStack, device: torch.device):
        torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, _VARIANTS)
        _try(device)
        self._stack = stack
        self._forwards = [torch.compile(layer.forward, dynamic=True) for layer in stack.layers]

    @contextmanager
    def running(self, depth: int) -> Iterator[None]:
        """While it lasts, the layers above `depth` run compiled."""
        tuned = list(zip(self._stack.layers, self._forwards, strict=True))[max(depth, 0) :]
        for layer, forward in tuned:
            layer.forward = forward
        try:
            yield
        finally:
            for layer, _ in tuned:
                del layer.forward


def _try(device: torch.device) -> None:
    """Compile next to nothing, so that a machine without a compiler says so before the first trial."""
    try:
        torch.compile(lambda x: x.relu() + 1)(torch.ones(8, device=device))
    except Exception as error:
        reason = str(error).strip().splitlines()[0][:150]
        raise UsageError(f"--compile: torch.compile does not work here ({reason}); leave it out") from error
