"""`launch --quick`: the defaults of a first look; whatever is asked for beside it is kept."""

from __future__ import annotations

from dataclasses import replace

from study.protocols import Defaults, Paper, Subject

PROTOCOL = Paper.name
"""Finds one rate with nothing frozen, and runs the depths at it."""
RATES = (2e-5, 5e-5, 1e-4)
SEEDS = (1, 2)
EXAMPLES = 1000


def quick_defaults(usual: Defaults, subject: Subject, train_examples: int) -> Defaults:
    """Of a protocol's defaults what a first look changes."""
    layers = subject.total_layers
    depths = (0, layers // 2, 3 * layers // 4, layers)
    return replace(
        usual,
        frozen_layers=tuple(dict.fromkeys(depths)),
        learning_rates=RATES,
        seeds=SEEDS,
        train_sizes=(EXAMPLES,) if train_examples > EXAMPLES else (None,),
        recipe={**usual.recipe, "prefix": "cached", "group_by_length": True},
    )
