"""The one token of the last layer's states that a model's head reads, where it reads but one.

With every layer frozen nothing else need be kept. Which token it is, is found by trying; a head that reads
several (a mean over tokens) has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import torch

from objectives.capabilities import exact_products

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from objectives.pretrained.replay import Replay

Inputs = Mapping[str, torch.Tensor]
Rule = Literal["first", "last", "last id"]
"""The first position; the last that is not masked; the last whose token is not the padding token."""


@dataclass(frozen=True)
class HeadToken:
    rule: Rule
    alone: bool
    """Whether the head takes it as a sequence of one: else the other places are filled with zeros."""
    pad: int

    def take(self, states: torch.Tensor, inputs: Inputs) -> torch.Tensor:
        """(batch, hidden) of the padded states."""
        places = self._places(inputs)
        return states[torch.arange(len(places), device=states.device), places]

    def put(self, token: torch.Tensor, inputs: Inputs) -> torch.Tensor:
        """States that the head answers alike to."""
        if self.alone:
            return token.unsqueeze(1)
        places = self._places(inputs)
        states = token.new_zeros((len(token), inputs["input_ids"].shape[1], token.shape[1]))
        states[torch.arange(len(places), device=token.device), places] = token
        return states

    def _places(self, inputs: Inputs) -> torch.Tensor:
        ids = inputs["input_ids"]
        if self.rule == "first":
            return torch.zeros(len(ids), dtype=torch.long, device=ids.device)
        read = inputs["attention_mask"] if self.rule == "last" else (ids != self.pad).long()
        return (torch.arange(ids.shape[1], device=ids.device) * read).argmax(-1)


def find_head_token(model: PreTrainedModel, replay: Replay, *, left: bool) -> HeadToken | None:
    """By random states: the token that alone gives the same answers, with dropout too."""
    inputs, states = _examples(model, left)
    pad = int(model.config.get_text_config().pad_token_id or 0)
    rules: tuple[Rule, ...] = ("last", "last id") if left else ("first", "last", "last id")
    whole = _answers(model, replay, inputs, states)
    if not float((whole - whole[:, :1]).abs().max()) > 0:
        return None  # A head that answers everything alike proves nothing.

    def answers_alike(token: HeadToken) -> bool:
        reduced = token.put(token.take(states, inputs), inputs)
        return torch.allclose(_answers(model, replay, inputs, reduced), whole, rtol=1e-4, atol=1e-5)

    found = next((one for rule in rules if answers_alike(one := HeadToken(rule, False, pad))), None)
    if found is not None and found.rule == "first":
        alone = replace(found, alone=True)
        try:
            return alone if answers_alike(alone) else found
        except RuntimeError:  # Some models insist on the length of their input.
            return found
    return found


def _examples(model: PreTrainedModel, left: bool) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Padded examples of several lengths, one of which ends in a padding token that is not masked."""
    generator = torch.Generator().manual_seed(0)
    config = model.config.get_text_config()
    pad = int(config.pad_token_id or 0)
    lengths, width = torch.tensor([9, 7, 5, 9, 3]), 9
    places = torch.arange(width)
    mask = places >= width - lengths[:, None] if left else places < lengths[:, None]
    ids = torch.randint(config.vocab_size - 1, mask.shape, generator=generator)
    ids = torch.where(mask, ids + (ids >= pad).long(), pad)
    ids[1, -1 if left else lengths[1] - 1] = pad
    states = torch.randn((*mask.shape, config.hidden_size), generator=generator)
    inputs = {"input_ids": ids.to(model.device), "attention_mask": mask.long().to(model.device)}
    return inputs, states.to(model.device)


def _answers(
    model: PreTrainedModel, replay: Replay, inputs: dict[str, torch.Tensor], states: torch.Tensor
) -> torch.Tensor:
    """Logits with and without dropout; the seed is the same each time."""
    training = model.training
    found = []
    try:
        for mode in (False, True):
            model.train(mode)
            torch.manual_seed(0)
            with torch.no_grad(), exact_products(), replay.skipping(replay.stack.total_layers):
                replay.load(states)
                found.append(model(**inputs).logits.float())
    finally:
        model.train(training)
    return torch.stack(found)
