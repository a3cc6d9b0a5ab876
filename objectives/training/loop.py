"""The training loop of one trial. All that it changes is in one Run, which can be saved and gone on from."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from objectives.capabilities import capabilities
from objectives.contract import CurvePoint
from objectives.pretrained.sharding import like, whole
from objectives.training.splits import TEST

if TYPE_CHECKING:
    from objectives.contract import Report
    from objectives.pretrained.dropout import RandomBits
    from objectives.training.batches import Batch
    from objectives.training.evaluation import Evaluation, Logits
    from objectives.training.schedule import Schedule
    from objectives.training.steps import Steps
    from objectives.training.targets import Targets

CHECK_STEPS = 100
"""Steps between looks at the loss for divergence: each look waits for the device."""


@dataclass
class Progress:
    """What a trial has seen so far."""

    step: int = 0
    """Optimiser steps done."""
    curve: list[CurvePoint] = field(default_factory=list)
    train_seconds: float = 0.0
    evaluation_seconds: float = 0.0
    examples: int = 0
    loss_steps: int = 0
    """Steps since the evaluation before."""
    logits: Logits = field(default_factory=dict)
    """Of the evaluation that counts so far; of a regression its numbers, in the labels' unit."""
    test: dict[str, float] = field(default_factory=dict)
    """Metrics on the test split at that evaluation, where there is one."""


@dataclass
class Run:
    """One trial in training."""

    model: Any
    """As Accelerate wraps it."""
    optimizer: Any
    parameters: list[torch.nn.Parameter]
    """Those that are trained."""
    schedule: Schedule
    targets: Targets
    bits: RandomBits | None
    """The stream that dropout draws from, where it is not PyTorch's own."""
    progress: Progress = field(default_factory=Progress)
    scored: list[torch.Tensor] = field(default_factory=list)
    """The trained parameters at the evaluation that counts so far, where they are kept."""

    def __post_init__(self) -> None:
        self.learning_rate = torch.optim.lr_scheduler.LambdaLR(self.optimizer.optimizer, self.schedule.factor)
        self.loss_sum = torch.zeros((), device=self.parameters[0].device)
        """Of the steps since the evaluation before; on the device, so that no step waits for it."""

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Everything that the rest of the training depends on, until the next step: what all processes of the
        trial have alike (its tensors in the first process alone, where they are sharded), and what this one
        has for itself."""
        alike = {
            "parameters": whole([parameter.detach() for parameter in self.parameters]),
            "scored": whole(self.scored),
            "optimizer": whole(self.optimizer.state_dict()),
            "scaler": None if self.optimizer.scaler is None else self.optimizer.scaler.state_dict(),
            "learning_rate": self.learning_rate.state_dict(),
            "progress": {**vars(self.progress), "curve": [asdict(point) for point in self.progress.curve]},
        }
        own = {
            "loss_sum": self.loss_sum.cpu(),
            "random": random_state(self.loss_sum.device),
            "bits": None if self.bits is None else self.bits.state,
        }
        return alike, own

    def keep_scored(self) -> None:
        self.scored = [parameter.detach().clone() for parameter in self.parameters]

    def take_scored(self) -> None:
        """Put the weights back that gave the score, where they were kept."""
        with torch.no_grad():
            for parameter, value in zip(self.parameters, self.scored, strict=False):
                parameter.copy_(value)

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from such a state of the same trial, both parts of it."""
        with torch.no_grad():
            for parameter, value in zip(self.parameters, state["parameters"], strict=True):
                parameter.copy_(like(value, parameter))
        device = self.loss_sum.device
        self.scored = [like(v, p) for v, p in zip(state["scored"], self.parameters, strict=False)]
        self.optimizer.load_state_dict(self._shared_out(state["optimizer"]))
        if state["scaler"] is not None:
            self.optimizer.scaler.load_state_dict(state["scaler"])
        self.learning_rate.load_state_dict(state["learning_rate"])
        self.loss_sum.copy_(state["loss_sum"])
        curve = [CurvePoint(**point) for point in state["progress"]["curve"]]
        self.progress = Progress(**{**state["progress"], "curve": curve})
        set_random_state(state["random"], device)
        if self.bits is not None:
            self.bits.state = state["bits"]

    def _shared_out(self, optimizer: dict[str, Any]) -> dict[str, Any]:
        """The optimiser's state, each tensor kept as the parameter that it belongs to."""
        ordered = [p for group in self.optimizer.param_groups for p in group["params"]]
        state = {
            number: {name: like(value, ordered[number]) for name, value in values.items()}
            for number, values in optimizer["state"].items()
        }
        return {**optimizer, "state": state}


def random_state(device: torch.device) -> dict[str, Any]:
    found = {"python": random.getstate(), "numpy": np.random.get_state(), "torch": torch.get_rng_state()}
    return found | {"device": capabilities(device).random_state()}


def set_random_state(state: dict[str, Any], device: torch.device) -> None:
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if state["device"] is not None:
        capabilities(device).set_random_state(state["device"])


@dataclass
class Training:
    steps: Steps
    evaluation: Evaluation
    counts: Callable[[list[CurvePoint]], CurvePoint]
    """Of the evaluations so far, the one that gives the score."""
    tests: Callable[[Run], bool] = lambda run: False
    """Whether the test split is scored at the evaluation that counts so far."""
    keep: Callable[[Run], None] = lambda run: None
    """Called at each evaluation that gives the score so far, where the weights may be kept."""
    look: Callable[[], None] = lambda: None
    """Called where a step holds most memory."""
    begin: Callable[[Run], None] = lambda run: None
    """Called before the first step, where the run may be restored."""
    after_step: Callable[[Run], None] = lambda run: None
    """Called between two steps, where the run may be saved."""

    def train(
        self,
        run: Run,
        batches: Iterable[Batch],
        report: Report,
        stepped: Callable[[int, int, float | None], None] = lambda step, steps, loss: None,
    ) -> None:
        """From where the run stands to the end; `batches` begin with that of the next step."""
        progress, marks = run.progress, run.schedule.evaluated()
        run.model.train()
        clock = time.perf_counter()
        for batch in batches:
            run.loss_sum += self.steps.step(run, batch, self.look)
            if not batch.ends_step:
                continue
            run.learning_rate.step()
            progress.step += 1
            progress.loss_steps += 1
            progress.examples += batch.examples
            looked = progress.step % CHECK_STEPS == 0 or progress.step in marks
            if looked:
                mean = self.steps.mean_loss(run.loss_sum, progress.loss_steps, progress.step)
            progress.train_seconds += time.perf_counter() - clock
            stepped(progress.step, run.schedule.total_steps, mean if looked else None)
            if progress.step in marks:
                self._evaluate(run, mean, report)
            self.after_step(run)
            clock = time.perf_counter()

    def _evaluate(self, run: Run, mean_loss: float, report: Report) -> None:
        progress = run.progress
        clock = time.perf_counter()
        logits = self._outputs(run)
        scores = self.evaluation.scores(logits)
        progress.evaluation_seconds += time.perf_counter() - clock
        point = CurvePoint(
            epoch=round(progress.step / run.schedule.epoch_steps, 4),
            step=progress.step,
            train_loss=mean_loss,
            metrics=scores,
        )
        progress.curve.append(point)
        if self.counts(progress.curve) is point:
            progress.logits = logits
            self.keep(run)
            if self.tests(run):
                progress.test = self.evaluation.scores(self._outputs(run, TEST))
        report(point)
        run.loss_sum.zero_()
        progress.loss_steps = 0
        run.model.train()

    def _outputs(self, run: Run, *splits: str) -> Logits:
        found = self.evaluation.predict(run.model, *splits)
        return {name: run.targets.outputs(values) for name, values in found.items()}
