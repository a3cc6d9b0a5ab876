"""The last layer's work for the one token that the classifier reads.

BERT and its kin classify the first token. All tokens feed its attention, but what follows attention in the
last layer (three quarters of that layer's arithmetic) matters for it alone; the rest is never looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from objectives.capabilities import exact_products

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedModel

    from objectives.pretrained.stack import LayerStack

_AFTER_ATTENTION = ("attention.output", "attention.LayerNorm", "sa_layer_norm", "mlp_norm")
"""What takes a layer's states right after attention: in BERT and DeBERTa, MPNet, DistilBERT, ModernBERT."""


class Readout:
    """Whether a model's classifier reads the first token only, found by trying; and how to profit from it."""

    def __init__(self, model: PreTrainedModel, stack: LayerStack):
        named = dict(stack.layers[-1].named_modules())
        self._module = next((named[name] for name in _AFTER_ATTENTION if name in named), None)
        if self._module is not None and not self._changes_nothing(model):
            self._module = None

    @property
    def first_token_only(self) -> bool:
        return self._module is not None

    def _changes_nothing(self, model: PreTrainedModel) -> bool:
        """The same answers to random tokens, and answers that are not all alike."""
        generator = torch.Generator().manual_seed(0)
        ids = torch.randint(model.config.vocab_size, (4, 7), generator=generator).to(model.device)
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        training = model.training
        model.eval()
        try:
            with torch.no_grad(), exact_products():
                whole = model(**inputs).logits
                with self.reading():
                    read = model(**inputs).logits
        finally:
            model.train(training)
        varies = float((whole - whole[:1]).abs().max()) > 0
        return varies and read.shape == whole.shape and torch.allclose(read, whole, rtol=1e-4, atol=1e-5)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """While it lasts, the last layer answers for the first token only, where that is enough.

        A model that adds the layer's input afterwards (ModernBERT) gives all tokens again, of which only
        the first is right; no other is read.
        """
        if self._module is None:
            yield
            return
        handle = self._module.register_forward_pre_hook(_first_token)
        try:
            yield
        finally:
            handle.remove()


def _first_token(_module: nn.Module, states: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value[:, :1] if isinstance(value, torch.Tensor) else value for value in states)
