"""The real objective: fine-tune one cell with Accelerate, on one process or many, and measure it.

A worker makes one FineTuning per study; weights, tokens and prefix states are shared by its trials.
"""

from __future__ import annotations

import math
import socket
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedDataParallelKwargs, InitProcessGroupKwargs, gather_object, set_seed
from numpy.typing import NDArray
from torch.nn import functional

from objectives import machine, metrics
from objectives.batches import Batch, Loader, Split
from objectives.compiled import Compiled
from objectives.contract import Cell, CurvePoint, Recipe, Report, TrialFailed, TrialRecord, UsageError
from objectives.data import TaskData
from objectives.dropout import fast_dropout
from objectives.encoding import Encoded
from objectives.frozen import Frozen
from objectives.layers import find_layers
from objectives.masks import unread_masks
from objectives.models import Pretrained
from objectives.prefix import Builder, PrefixCache, weight_digests
from objectives.readout import Readout
from objectives.replay import Replay
from objectives.schedule import Schedule
from objectives.splits import SELECTION, Splits
from objectives.vocabulary import Vocabulary

Result = TypeVar("Result")
_CHECK_STEPS = 100
"""Steps between looks at the loss for divergence: each look waits for the device."""
_DTYPES = {"no": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass
class _Progress:
    """What a trial has seen so far."""

    curve: list[CurvePoint] = field(default_factory=list)
    train_seconds: float = 0.0
    evaluation_seconds: float = 0.0
    examples: int = 0


class FineTuning:
    """`objective(cell, report)`: one fine-tuning run from the pretrained weights."""

    def __init__(
        self,
        *,
        data: TaskData,
        model_path: str,
        model_fingerprint: str,
        recipe: Recipe,
        cache: PrefixCache,
        largest_train_size: int | None = None,
    ):
        from datetime import timedelta

        self.task, self.recipe, self.cache = data.task, recipe, cache
        self.metric = "accuracy" if recipe.accuracy else self.task.metric
        # A process keeps one precision for good, but a worker may move on to a study with another.
        AcceleratorState._reset_state()
        self.accelerator = Accelerator(
            mixed_precision=recipe.mixed_precision,
            kwargs_handlers=[
                # Some models own parameters that no forward uses (XLNet's mask embedding).
                # Buffers are tables of positions, the same everywhere.
                DistributedDataParallelKwargs(
                    find_unused_parameters=True, broadcast_buffers=False, gradient_as_bucket_view=True
                ),
                # One rank may build prefix states while the others wait.
                InitProcessGroupKwargs(timeout=timedelta(hours=6)),
            ],
        )
        self.device = self.accelerator.device
        self._loader = Loader(self.device, self.accelerator.process_index, self.accelerator.num_processes)
        if recipe.mixed_precision == "fp16" and self.device.type == "cpu":
            raise UsageError("--mixed-precision fp16 needs a GPU: use bf16 or no on a CPU")
        machine.prepare(self.device)
        self.pretrained = Pretrained(model_path, self.task, self.device)
        self.model = self.pretrained.model
        self.stack = find_layers(self.model)
        self._replay = Replay(self.model, self.stack)
        self._readout = Readout(self.model, self.stack)
        self._compiled = Compiled(self.stack, self.device) if recipe.compile else None
        self._splits = Splits(
            data,
            recipe,
            self.pretrained,
            model_fingerprint=model_fingerprint,
            largest_train_size=largest_train_size,
            folder=cache.folder,
            builder=self._builder(),
        )
        self._frozen = Frozen(
            self.model,
            self._replay,
            self._splits,
            cache,
            recipe.prefix,
            _DTYPES[recipe.mixed_precision],
            self.accelerator.is_main_process,
        )
        self._vocabulary = Vocabulary(self.model, self._splits.encoded())
        machine.settle()

    def _builder(self) -> Callable[[Encoded], Builder]:
        weights = weight_digests(self.stack)
        dtype = _DTYPES[self.recipe.mixed_precision]

        def build(encoded: Encoded) -> Builder:
            return Builder(self.model, self._replay, encoded, weights, dtype, self.accelerator.autocast)

        return build

    def __call__(self, cell: Cell, report: Report) -> TrialRecord:
        try:
            return self._repeatably(lambda: self._run(cell, report))
        except (torch.OutOfMemoryError, MemoryError) as error:
            reason = " ".join(str(error).split())[:200] or "the process has no memory left"
            # The trial's tensors live as long as the frames that the error remembers.
            traceback.clear_frames(error.__traceback__)
            raise TrialFailed(f"out of memory: {reason}") from None
        finally:
            self.accelerator.free_memory()
            machine.give_back_memory()

    def _repeatably(self, work: Callable[[], Result]) -> Result:
        """With every operation in a fixed order; if the model has one that knows none, once more without."""
        try:
            return work()
        except RuntimeError as error:
            if not machine.relax(self.device, error):
                raise
            why = str(error)
            traceback.clear_frames(error.__traceback__)
        if self.accelerator.is_main_process:
            self.cache.warn(f"this model's numbers may differ from run to run: {why}")
        return work()

    def _run(self, cell: Cell, report: Report) -> TrialRecord:
        self.pretrained.reset(cell.seed)
        self.stack.freeze(cell.frozen_layers)
        sizes = [(p.numel(), p.requires_grad) for p in self.model.parameters()]
        prefix = self._frozen.load(cell.frozen_layers)
        peak = machine.PeakMemory(self.device)
        with (
            self._fast(cell.frozen_layers),
            self._frozen.skipping(),
            self._prepared(cell) as (model, optimizer, parameters),
        ):
            progress = self._train(cell, model, optimizer, parameters, peak, report)
        scored = self._scored(progress.curve)
        return TrialRecord(
            metric=self.metric,
            score=scored.metrics[self.metric],
            metrics={n: v for n, v in scored.metrics.items() if not n.startswith(SELECTION)},
            curve=tuple(progress.curve),
            selection_score=scored.metrics.get(f"{SELECTION}_{self.metric}"),
            chance=metrics.chance(self.metric, self._splits[self.task.validation[0]].encoded.labels),
            train_examples=len(self._splits.rows(cell.train_size)),
            trainable_parameters=sum(size for size, tuned in sizes if tuned),
            total_parameters=sum(size for size, _ in sizes),
            train_seconds=round(progress.train_seconds, 4),
            evaluation_seconds=round(progress.evaluation_seconds, 4),
            prefix_seconds=self._frozen.seconds,
            examples_per_second=round(progress.examples / progress.train_seconds, 2),
            peak_memory_bytes=peak.bytes(),
            prefix=prefix,
            device=machine.device_name(self.device),
            host=socket.gethostname(),
            processes=self.accelerator.num_processes,
            versions=machine.versions(),
        )

    @contextmanager
    def _fast(self, depth: int) -> Iterator[None]:
        """All that makes a step faster and leaves what it computes as it is."""
        # The compiler brings a dropout of its own.
        tuned = self._compiled.running(depth) if self._compiled else fast_dropout(self.device)
        with self._readout.reading(), self._vocabulary.alone(), unread_masks(self.device), tuned:
            yield

    def time_steps(self, cell: Cell, steps: int = 4) -> tuple[float, float]:
        """Seconds of one training step and of one evaluation of this cell here, after one to warm up."""
        return self._repeatably(lambda: self._time_steps(cell, steps))

    def _time_steps(self, cell: Cell, steps: int) -> tuple[float, float]:
        self.pretrained.reset(cell.seed)
        self.stack.freeze(cell.frozen_layers)
        self._frozen.load(0)
        train = self._splits["train"]
        rows = self._splits.rows(cell.train_size)
        with (
            self._fast(cell.frozen_layers),
            self._prepared(cell) as (model, optimizer, parameters),
        ):
            model.train()
            batches = self._splits.batches(cell.seed, rows, steps + 1)
            for step, batch in enumerate(self._loader.training(train, batches)):
                if step == 1:
                    self._settled()
                    started = time.perf_counter()
                self._step(model, optimizer, parameters, batch)
            self._settled()
            step_seconds = (time.perf_counter() - started) / steps
            started = time.perf_counter()
            self._evaluate(model)
            evaluation_seconds = time.perf_counter() - started
        self.accelerator.free_memory()
        return step_seconds, evaluation_seconds

    def _scored(self, curve: list[CurvePoint]) -> CurvePoint:
        if self.recipe.score == "last":
            return curve[-1]
        # Where there is a selection split, the best epoch is one of the choices it is there for.
        name = f"{SELECTION}_{self.metric}" if SELECTION in self._splits else self.metric
        return max(curve, key=lambda point: point.metrics[name])

    @contextmanager
    def _prepared(self, cell: Cell) -> Iterator[tuple[Any, Any, list[torch.nn.Parameter]]]:
        """Model and optimiser as Accelerate wraps them, unwrapped again at the end.

        A model alone in its process needs no wrapper: `_loss` and `_predict` set the precision themselves.
        """
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        make = torch.optim.AdamW if self.recipe.optimizer == "adamw" else torch.optim.Adam
        optimizer = make(parameters, lr=cell.learning_rate, weight_decay=self.recipe.weight_decay, fused=True)
        if self.accelerator.scaler is not None:
            # The loss scale that an earlier trial ended with, a diverged one above all, is not this one's.
            self.accelerator.scaler = torch.amp.GradScaler(self.device.type)
        alone = self.accelerator.num_processes == 1
        model = self.model if alone else self.accelerator.prepare(self.model)
        prepared = self.accelerator.prepare(optimizer)
        # Dropout differs between ranks and from the draw of the head, which all ranks share.
        set_seed((cell.seed * 1000 + self.accelerator.process_index) % 2**32)
        try:
            yield model, prepared, parameters
        finally:
            self.accelerator.unwrap_model(model, keep_fp32_wrapper=False)
            # Unwrapping leaves a forward that holds its own model, which would never be freed.
            self.model.__dict__.pop("forward", None)

    def _train(
        self,
        cell: Cell,
        model: Any,
        optimizer: Any,
        parameters: list[torch.nn.Parameter],
        peak: machine.PeakMemory,
        report: Report,
    ) -> _Progress:
        train = self._splits["train"]
        rows = self._splits.rows(cell.train_size)
        schedule = Schedule(self.recipe, len(rows))
        learning_rate = torch.optim.lr_scheduler.LambdaLR(optimizer.optimizer, schedule.factor)
        marks = schedule.evaluated()
        progress = _Progress()
        loss_sum = torch.zeros((), device=self.device)
        since = 0
        model.train()
        clock = time.perf_counter()
        batches = self._splits.batches(cell.seed, rows, schedule.total_steps)
        for step, batch in enumerate(self._loader.training(train, batches), 1):
            loss_sum += self._step(model, optimizer, parameters, batch, peak.look)
            learning_rate.step()
            since += 1
            progress.examples += batch.examples
            if step % _CHECK_STEPS == 0 or step in marks:
                mean = self._mean_loss(loss_sum, since, step)
            if step in marks:
                progress.train_seconds += time.perf_counter() - clock
                clock = time.perf_counter()
                scores = self._evaluate(model)
                progress.evaluation_seconds += time.perf_counter() - clock
                point = CurvePoint(
                    epoch=round(step / schedule.epoch_steps, 4), step=step, train_loss=mean, metrics=scores
                )
                progress.curve.append(point)
                report(point)
                loss_sum.zero_()
                since = 0
                model.train()
                clock = time.perf_counter()
        return progress

    def _step(
        self,
        model: Any,
        optimizer: Any,
        parameters: list[torch.nn.Parameter],
        batch: Batch,
        look: Callable[[], None] = lambda: None,
    ) -> torch.Tensor:
        """One optimiser step; the loss before it. `look` is called where most memory is held."""
        loss = self._loss(model, batch)
        look()
        # DDP averages over processes; the batch's mean is wanted.
        self.accelerator.backward(loss * self.accelerator.num_processes)
        self.accelerator.clip_grad_norm_(parameters, self.recipe.max_grad_norm)
        look()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    def _logits(self, model: Any, batch: Batch) -> torch.Tensor:
        """In full precision."""
        with self.accelerator.autocast():
            self._frozen.hand_over(batch)
            return model(**batch.inputs).logits.float()

    def _loss(self, model: Any, batch: Batch) -> torch.Tensor:
        """This process's part of the batch's mean loss."""
        logits = self._logits(model, batch)
        if self.task.regression:
            losses = functional.mse_loss(logits.squeeze(-1), batch.labels.float(), reduction="sum")
        else:
            losses = functional.cross_entropy(logits, batch.labels, reduction="sum")
        return losses * batch.weight

    def _settled(self) -> None:
        """Wait until every process's device has done what it was given."""
        self._mean_loss(torch.zeros((), device=self.device), 1, 0)

    def _mean_loss(self, loss_sum: torch.Tensor, steps: int, step: int) -> float:
        mean = float(self.accelerator.reduce(loss_sum.clone(), reduction="sum")) / steps
        if not math.isfinite(mean):
            raise TrialFailed(f"diverged: the training loss is {mean} by step {step}", retry=False)
        return mean

    def _evaluate(self, model: Any) -> dict[str, float]:
        """All metrics on all splits; those of the selection split carry its name."""
        model.eval()
        names = self._splits.evaluated()
        labels = {name: self._splits[name].encoded.labels for name in names}
        logits = {name: self._predict(model, self._splits[name]) for name in names}
        broken = [name for name in names if not np.isfinite(logits[name]).all()]
        if broken:
            raise TrialFailed(f"diverged: predictions on {broken[0]} are not finite", retry=False)
        scores = metrics.evaluate(
            self.task,
            {name: logits[name] for name in self.task.validation},
            {name: labels[name] for name in self.task.validation},
        )
        if SELECTION in logits:
            held = metrics.evaluate(self.task, {SELECTION: logits[SELECTION]}, {SELECTION: labels[SELECTION]})
            scores |= {f"{SELECTION}_{name}": value for name, value in held.items()}
        return scores

    def _predict(self, model: Any, split: Split) -> NDArray[np.float32]:
        accelerator = self.accelerator
        # The unwrapped model: evaluation needs no gradient exchange, and ranks may differ in batches.
        bare = accelerator.unwrap_model(model)
        with torch.inference_mode():
            outputs = [(batch.rows, self._logits(bare, batch)) for batch in self._loader.evaluation(split)]
        pairs = [(rows, output.cpu().numpy()) for rows, output in outputs]
        if accelerator.num_processes > 1:
            pairs = gather_object(pairs)
        logits = np.empty((len(split.encoded), pairs[0][1].shape[1]), dtype=np.float32)
        for rows, block in pairs:
            logits[rows] = block
        return logits
