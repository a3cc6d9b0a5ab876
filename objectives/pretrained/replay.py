"""Running a model from the middle: stored hidden states in place of its first layers.

The first n layers answer with the states; the model's own forward does the rest (masks, position
biases, rotary tables), so nothing here knows an architecture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import nn
    from transformers import PreTrainedModel

    from objectives.pretrained.stack import LayerStack


class _Stop(Exception):
    """Ends a forward pass once the wanted layer has answered."""


class Replay:
    """What a model's layers return, and the means to answer in their place."""

    def __init__(self, model: PreTrainedModel, stack: LayerStack):
        self.stack = stack
        self._arity, self._sequence_first = _probe(model, stack)
        self._states: torch.Tensor | None = None
        self._paused = False
        self.runs_through = False
        """Whether a forward pass that has all it needs is run to its end nevertheless."""

    def load(self, states: torch.Tensor) -> None:
        """The padded states (batch, length, hidden) of the next forward pass."""
        self._states = states

    def _answering(self, layer: nn.Module) -> Callable[..., Any]:
        def forward(*args: Any, **kwargs: Any) -> Any:
            if self._paused:
                return type(layer).forward(layer, *args, **kwargs)
            assert self._states is not None, "no states were loaded for this forward pass"
            states = self._states.transpose(0, 1) if self._sequence_first else self._states
            # As a layer lays them out: on a GPU, dropout draws its mask in the order of the memory.
            states = states.contiguous()
            return states if self._arity == 0 else (states, *[None] * (self._arity - 1))

        return forward

    @contextmanager
    def skipping(self, depth: int) -> Iterator[None]:
        """Let the first `depth` layers answer with the loaded states."""
        skipped = list(self.stack.layers)[:depth]
        for layer in skipped:
            layer.forward = self._answering(layer)
        try:
            yield
        finally:
            self._states = None
            for layer in skipped:
                del layer.forward

    def compute(
        self, model: PreTrainedModel, inputs: dict[str, torch.Tensor], depth: int, dtype: torch.dtype
    ) -> torch.Tensor:
        """The states of one batch, as the cache would hold them: no dropout, no gradient."""
        import torch

        taken: list[torch.Tensor] = []
        training = model.training
        model.eval()
        self._paused = True
        try:
            with (
                torch.no_grad(),
                self.rounding(dtype),
                self.capturing([depth], lambda _depth, states: taken.append(states)) as forward,
            ):
                forward(model, inputs)
        finally:
            self._paused = False
            model.train(training)
        return taken[0].to(dtype)

    @contextmanager
    def rounding(self, dtype: torch.dtype) -> Iterator[None]:
        """While it lasts, what every layer passes on is rounded to what can be stored.

        So that stored states are the same whichever stored depth they were computed from.
        """
        if dtype.itemsize >= 4:
            yield
            return

        def rounded(_module: nn.Module, _args: Any, output: Any) -> Any:
            states = output if self._arity == 0 else output[0]
            states = states.to(dtype).to(states.dtype)
            return states if self._arity == 0 else (states, *output[1:])

        hooks = [layer.register_forward_hook(rounded) for layer in self.stack.layers]
        try:
            yield
        finally:
            for handle in hooks:
                handle.remove()

    @contextmanager
    def capturing(
        self, depths: Sequence[int], keep: Callable[[int, torch.Tensor], None]
    ) -> Iterator[Callable[..., None]]:
        """A forward that hands each depth's states to `keep`, and stops after the deepest."""

        def hook(depth: int) -> Callable[..., None]:
            def taken(_module: nn.Module, _args: Any, output: Any) -> None:
                states = output if self._arity == 0 else output[0]
                keep(depth, states.transpose(0, 1) if self._sequence_first else states)
                if depth == max(depths) and not self.runs_through:
                    raise _Stop

            return taken

        hooks = [self.stack.layers[depth - 1].register_forward_hook(hook(depth)) for depth in depths]

        def forward(model: PreTrainedModel, inputs: dict[str, torch.Tensor]) -> None:
            try:
                model(**inputs)
            except _Stop:
                return
            if not self.runs_through:
                raise RuntimeError(f"{type(model).__name__} never ran layer {max(depths)}")

        try:
            yield forward
        finally:
            for handle in hooks:
                handle.remove()


def _probe(model: PreTrainedModel, stack: LayerStack) -> tuple[int, bool]:
    """Run two examples of three tokens: does a layer return a tuple, and which axis is the batch?"""
    import torch

    seen: list[tuple[int, bool]] = []

    def look(_module: nn.Module, _args: Any, output: Any) -> None:
        states = output if isinstance(output, torch.Tensor) else output[0]
        seen.append((0 if isinstance(output, torch.Tensor) else len(output), states.shape[0] == 3))

    handle = stack.layers[0].register_forward_hook(look)
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            ids = torch.ones((2, 3), dtype=torch.long, device=model.device)
            model(input_ids=ids, attention_mask=torch.ones_like(ids))
    finally:
        handle.remove()
        model.train(training)
    return seen[0]
