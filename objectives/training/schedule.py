"""A trial's steps: how many there are, the learning rate's factor at each, and which ones are evaluated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from objectives.contract import Recipe


@dataclass(frozen=True)
class Schedule:
    recipe: Recipe
    examples: int

    @property
    def epoch_steps(self) -> int:
        return math.ceil(self.examples / self.recipe.batch_size)

    @property
    def total_steps(self) -> int:
        return max(1, math.ceil(self.recipe.epochs * self.epoch_steps))

    def factor(self, step: int) -> float:
        """Linear warm-up, then linear decay to zero."""
        warmup = round(self.recipe.warmup * self.epoch_steps)
        if step < warmup:
            return step / warmup
        return max(0.0, (self.total_steps - step) / max(1, self.total_steps - warmup))

    def evaluated(self) -> set[int]:
        """The steps after which the model is evaluated, the last one always."""
        count = math.ceil(self.recipe.epochs * self.recipe.evaluations_per_epoch)
        part = self.epoch_steps / self.recipe.evaluations_per_epoch
        steps = {min(self.total_steps, max(1, round(number * part))) for number in range(1, count + 1)}
        return steps | {self.total_steps}
