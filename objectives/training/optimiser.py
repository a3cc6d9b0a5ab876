"""The optimiser of one trial: which parameters it holds, and which of them decay."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from objectives.contract import Recipe

_SPARED = re.compile(r"bias|layernorm|rmsnorm|(^|\.)norm($|\.)|_norm($|\.)")
"""Names of parameters that do not decay: biases and norms, as Transformers' Trainer has it."""


def trainable(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def make_optimizer(model: nn.Module, recipe: Recipe, learning_rate: float) -> torch.optim.Optimizer:
    make = torch.optim.AdamW if recipe.optimizer == "adamw" else torch.optim.Adam
    groups = _groups(model, recipe.weight_decay)
    return make(groups, lr=learning_rate, fused=True)


def _groups(model: nn.Module, decay: float) -> Sequence[dict[str, object]]:
    if not decay:
        return [{"params": trainable(model), "weight_decay": 0.0}]
    spared = _spared(model)
    tuned = {name: p for name, p in model.named_parameters() if p.requires_grad}
    decaying = [parameter for name, parameter in tuned.items() if name not in spared]
    rest = [parameter for name, parameter in tuned.items() if name in spared]
    groups = [{"params": decaying, "weight_decay": decay}, {"params": rest, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def _spared(model: nn.Module) -> set[str]:
    norms = [name for name, module in model.named_modules() if isinstance(module, nn.LayerNorm)]
    of_norms = tuple(f"{name}." for name in norms)
    return {n for n, _ in model.named_parameters() if n.startswith(of_norms) or _SPARED.search(n.lower())}
