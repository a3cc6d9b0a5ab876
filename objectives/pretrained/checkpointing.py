"""`--gradient-checkpointing`: tuned layers keep their inputs only, and compute the rest again going backward.

Frozen layers below the depth have nothing to keep. The same random numbers are drawn again, so that nothing
but time and memory changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from objectives.pretrained.dropout import RandomBits
    from objectives.pretrained.stack import LayerStack

Forward = Callable[..., Any]


@contextmanager
def checkpointing(stack: LayerStack, depth: int, bits: RandomBits | None) -> Iterator[None]:
    """While it lasts, the layers above `depth` are computed twice; `bits` is what dropout draws from."""
    tuned = list(stack.layers)[max(depth, 0) :]
    before = [vars(layer).get("forward") for layer in tuned]
    for layer in tuned:
        layer.forward = _twice(layer.forward, bits)
    try:
        yield
    finally:
        for layer, forward in zip(tuned, before, strict=True):
            if forward is None:
                del layer.forward
            else:
                layer.forward = forward


def _twice(once: Forward, bits: RandomBits | None) -> Forward:
    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), nullcontext() if bits is None else bits.repeating()

    def forward(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return once(*args, **kwargs)
        return checkpoint(once, *args, use_reentrant=False, context_fn=contexts, **kwargs)

    return forward
