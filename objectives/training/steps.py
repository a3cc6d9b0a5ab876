"""One training step, whole or in micro-batches: forward, loss, backward, clipping, update.

Evaluation shares its forward pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from objectives.contract import TrialFailed

if TYPE_CHECKING:
    from accelerate import Accelerator

    from objectives.training.batches import Batch
    from objectives.training.frozen import Frozen
    from objectives.training.loop import Run


@dataclass
class Steps:
    accelerator: Accelerator
    frozen: Frozen
    max_grad_norm: float

    def logits(self, model: Any, batch: Batch) -> torch.Tensor:
        """In full precision."""
        with self.accelerator.autocast():
            self.frozen.hand_over(batch)
            return model(**batch.inputs).logits.float()

    def loss(self, run: Run, batch: Batch) -> torch.Tensor:
        """This process's part of the batch's mean loss."""
        return run.targets.losses(self.logits(run.model, batch), batch.labels) * batch.weight

    def step(self, run: Run, batch: Batch, look: Callable[[], None] = lambda: None) -> torch.Tensor:
        """One micro-batch, and the update with the last one of its batch; its part of the batch's loss.

        `look` is called where most memory is held.
        """
        with nullcontext() if batch.ends_step else self.accelerator.no_sync(run.model):
            loss = self.loss(run, batch)
            look()
            # DDP averages over processes; the batch's mean is wanted.
            self.accelerator.backward(loss * self.accelerator.num_processes)
        if batch.ends_step:
            self._update(run, look)
        return loss.detach()

    def _update(self, run: Run, look: Callable[[], None]) -> None:
        self.accelerator.clip_grad_norm_(run.parameters, self.max_grad_norm)
        look()
        run.optimizer.step()
        run.optimizer.zero_grad()

    def mean_loss(self, loss_sum: torch.Tensor, steps: int, step: int) -> float:
        """Over all processes, which waits for the device; a loss that is not finite ends the trial."""
        mean = float(self.accelerator.reduce(loss_sum.clone(), reduction="sum")) / steps
        if not math.isfinite(mean):
            raise TrialFailed(f"diverged: the training loss is {mean} by step {step}", retry=False)
        return mean

    def settle(self) -> None:
        """Wait until every process's device has done what it was given."""
        self.mean_loss(torch.zeros((), device=self.accelerator.device), 1, 0)
