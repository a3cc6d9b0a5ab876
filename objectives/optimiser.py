"""The optimiser of one trial: which parameters it holds, and which of them decay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import nn

    from objectives.contract import Recipe


def trainable(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def make_optimizer(model: nn.Module, recipe: Recipe, learning_rate: float) -> torch.optim.Optimizer:
    make = torch.optim.AdamW if recipe.optimizer == "adamw" else torch.optim.Adam
    return make(trainable(model), lr=learning_rate, weight_decay=recipe.weight_decay, fused=True)
