"""The rows of the word embeddings that the data use: with nothing frozen, only they are trained.

The other rows have no gradient and are never read, yet would cost as much as those in the optimiser's passes
and in its memory: a third of a small BERT, most of a multilingual model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from objectives.data.encoding import Encoded


class Vocabulary:
    """A model's word embeddings, and the tokens that any of its data holds."""

    def __init__(self, model: PreTrainedModel, data: Iterable[Encoded], device: torch.device | None = None):
        """`device` is where trials run, if it is not where the model is kept."""
        self.returns = True
        """Whether the whole embeddings take over what their rows learnt."""
        module = model.get_input_embeddings()
        self._module = module if isinstance(module, nn.Embedding) and not is_shared(module, model) else None
        if self._module is None:
            return
        used = torch.zeros(self._module.num_embeddings, dtype=torch.bool)
        for encoded in data:
            used[encoded.columns["input_ids"]] = True
            used[encoded.pad["input_ids"]] = True
        if self._module.padding_idx is not None:
            used[self._module.padding_idx] = True
        self._rows = used.nonzero().squeeze(1).to(model.device)
        # A token that no data holds has no place, and looking it up fails.
        self._places = torch.where(used, used.cumsum(0) - 1, -1).to(device or model.device)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While it lasts, the embeddings have the data's rows only, if they are to be trained.

        At the end the whole embeddings take over what those rows learnt.
        """
        module = self._module
        if module is None or not module.weight.requires_grad:
            yield
            return
        whole, padding = module.weight, module.padding_idx
        module.weight = nn.Parameter(whole.detach()[self._rows])
        if padding is not None:
            module.padding_idx = int(self._places[padding])
        handle = module.register_forward_pre_hook(self._place)
        try:
            yield
        finally:
            handle.remove()
            learnt = module.weight.detach()
            module.weight, module.padding_idx = whole, padding
            if self.returns:
                self._put(whole, learnt)

    def completed(self, whole: torch.Tensor, learnt: torch.Tensor) -> torch.Tensor:
        """Whole embeddings with the rows that were trained alone."""
        if learnt.shape == whole.shape:
            return learnt
        found = whole.clone()
        self._put(found, learnt)
        return found

    def _put(self, whole: torch.Tensor, learnt: torch.Tensor) -> None:
        with torch.no_grad():
            whole[self._rows] = learnt

    def _place(self, _module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self._places[inputs[0]], *inputs[1:])


def is_shared(embeddings: nn.Embedding, model: nn.Module) -> bool:
    """Whether another module computes with the same weight, which must then stay whole."""
    owners = [m for m in model.modules() if any(p is embeddings.weight for p in m._parameters.values())]
    return len(owners) > 1
