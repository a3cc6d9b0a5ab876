"""What a model's outputs are trained towards: the loss of each kind of task, and the scale of a regression.

A regression is trained on labels of mean 0 and spread 1, so that one learning rate suits any unit; what it
predicts is turned back, and in an exported model the last linear layer does that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

if TYPE_CHECKING:
    from objectives.pretrained.stack import LayerStack
    from objectives.tasks.definition import Kind, Task


@dataclass(frozen=True)
class Targets:
    kind: Kind
    mean: float = 0.0
    spread: float = 1.0

    @classmethod
    def of(cls, task: Task, labels: NDArray[Any], *, shifts: bool) -> Targets:
        """For these training labels; `shifts` where the model's last layer has a bias to shift by."""
        if not task.regression or not task.standardise:
            return cls(task.kind)
        mean = float(labels.mean()) if shifts else 0.0
        spread = float(np.sqrt(np.square(labels - mean).mean()))
        return cls(task.kind, mean, spread if spread > 0 else 1.0)

    def losses(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The sum over the examples."""
        if self.kind == "classes":
            return functional.cross_entropy(logits, labels, reduction="sum")
        if self.kind == "multi-label":
            every = functional.binary_cross_entropy_with_logits(logits, labels.float(), reduction="sum")
            return every / logits.shape[1]
        wanted = labels.float()
        if (self.mean, self.spread) != (0.0, 1.0):
            wanted = ((labels.double() - self.mean) / self.spread).float()
        return functional.mse_loss(logits.squeeze(-1), wanted, reduction="sum")

    def outputs(self, logits: NDArray[np.float32]) -> NDArray[Any]:
        """Predictions of a regression in the labels' own unit; logits as they are."""
        if (self.mean, self.spread) == (0.0, 1.0):
            return logits
        return logits.astype(np.float64) * self.spread + self.mean

    def fold(self, stack: LayerStack) -> None:
        """Let the model's last linear layer answer in the labels' own unit."""
        if (self.mean, self.spread) == (0.0, 1.0):
            return
        with torch.no_grad():
            for name, parameter in stack.classifier.items():
                parameter.mul_(self.spread)
                if name.endswith("bias"):
                    parameter.add_(self.mean)


def can_shift(stack: LayerStack) -> bool:
    return any(name.endswith("bias") for name in stack.classifier)
