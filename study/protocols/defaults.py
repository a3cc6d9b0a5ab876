"""What each protocol stands for when the command line names no grid and no recipe.

Numbers from the paper, the blog and the house grid; it builds no spec and validates nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from objectives.contract import UsageError
from study.spec import PROTOCOLS

PAPER_RATES = (1e-5, 2e-5, 3e-5, 4e-5, 5e-5)
BLOG_DEPTHS = (-1, 0, 2, 4, 8, 10, 12)
BLOG_LAYERS = 12
BLOG_SIZES = (50, 100, 200, 500, 1000)


@dataclass(frozen=True, kw_only=True)
class Defaults:
    """A grid and the fields of the Recipe in which the protocol differs from the house's."""

    frozen_layers: tuple[int, ...]
    learning_rates: tuple[float, ...] = PAPER_RATES
    seeds: tuple[int, ...] = (1, 2, 3)
    train_sizes: tuple[int | None, ...] = (None,)
    recipe: Mapping[str, Any] = field(default_factory=dict)


def defaults(protocol: str, *, total_layers: int, model: str, demo: bool) -> Defaults:
    """The defaults of `protocol` for a model of `total_layers` layers.

    `model` decides the paper's epochs (RoBERTa 10, every other model 3). The demo keeps each protocol's
    plan: what its tiny model needs (rates, epochs) is the launcher's to lay over these.
    """
    upper_half = (0, *range((total_layers + 1) // 2, total_layers + 1))
    if protocol == "grid":
        return Defaults(frozen_layers=upper_half)
    if protocol == "adaptive":
        # Seeds are a ceiling here: the search adds one only where the answer is still open.
        return Defaults(frozen_layers=upper_half, seeds=tuple(range(1, 11)))
    if protocol == "paper":
        return Defaults(frozen_layers=upper_half, seeds=(1, 2, 3, 4, 5), recipe=_paper_recipe(model, demo))
    if protocol == "low-resource":
        return Defaults(
            frozen_layers=_blog_depths(total_layers),
            learning_rates=(5e-5,),
            seeds=(1, 2, 3, 4, 5),
            train_sizes=BLOG_SIZES,
            recipe={
                "batch_size": 16,
                "epochs": 10,
                "warmup": 1.0,
                "evaluations_per_epoch": 2,
                "score": "best",
                "accuracy": True,
            },
        )
    raise UsageError(f"unknown protocol {protocol!r}: choose from {', '.join(PROTOCOLS)}")


def _paper_recipe(model: str, demo: bool) -> dict[str, Any]:
    return {
        "batch_size": 16,
        "max_length": 128,
        "epochs": 10 if "roberta" in model.lower() and not demo else 3,
        "optimizer": "adam",
        "weight_decay": 0.0,
        "warmup": 0.0,
        "max_grad_norm": 1.0,
        "evaluations_per_epoch": 1,
        "score": "last",
        "prefix": "live",
    }


def _blog_depths(total_layers: int) -> tuple[int, ...]:
    """The blog's depths of 12 layers at the same share of another model's, each once."""
    scaled = (n if n <= 0 else max(1, round(n * total_layers / BLOG_LAYERS)) for n in BLOG_DEPTHS)
    return tuple(dict.fromkeys(scaled))
