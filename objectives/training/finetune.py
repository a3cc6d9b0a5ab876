"""The real objective: fine-tune one cell with Accelerate, on one process or many, and measure it.

A worker makes one FineTuning per study; weights, tokens and prefix states are shared by its trials. After a
trial, and until the next one, `model` holds the weights that it trained; frozen layers that were not needed
are on the device again after `pretrained.put_back()`.
"""

from __future__ import annotations

import socket
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedDataParallelKwargs, parse_flag_from_env, set_seed
from numpy.typing import NDArray
from torch.nn.parallel import DistributedDataParallel

from objectives import machine
from objectives.capabilities import capabilities, normalised, out_of_memory
from objectives.contract import (
    FIRST,
    Attempt,
    Cell,
    CurvePoint,
    Recipe,
    Report,
    TrialFailed,
    TrialRecord,
    UsageError,
)
from objectives.data.encoding import Encoded
from objectives.data.task_data import TaskData
from objectives.fitting import Fitting
from objectives.prefix.building import Builder, weight_digests
from objectives.prefix.prefix_cache import PrefixCache
from objectives.pretrained.checkpointing import checkpointing
from objectives.pretrained.compiled import Compiled
from objectives.pretrained.dropout import RandomBits, fast_dropout
from objectives.pretrained.head_token import find_head_token
from objectives.pretrained.masks import unread_masks
from objectives.pretrained.models import Pretrained
from objectives.pretrained.readout import Readout
from objectives.pretrained.replay import Replay
from objectives.pretrained.sharding import Sharding, copied, whole
from objectives.pretrained.stack import LayerStack, find_layers
from objectives.pretrained.unused import unused_parameters
from objectives.pretrained.vocabulary import Vocabulary
from objectives.tasks import metrics, predictions
from objectives.tasks.influence import standard_error
from objectives.training import micro_batches
from objectives.training.batches import Batch, Loader
from objectives.training.checkpoints import Checkpoints
from objectives.training.evaluation import Evaluation
from objectives.training.frozen import Frozen
from objectives.training.kept import KeptModels
from objectives.training.loop import Progress, Run, Training
from objectives.training.micro_batches import MicroBatches
from objectives.training.optimiser import make_optimizer, trainable
from objectives.training.saving import Saving
from objectives.training.schedule import Schedule
from objectives.training.splits import SELECTION, TEST, Splits
from objectives.training.steps import Steps
from objectives.training.targets import Targets, can_shift

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Result = TypeVar("Result")
STORED_DTYPES = {"no": torch.float32, "bf16": torch.bfloat16, "fp16": torch.bfloat16}
"""States that pass 65,504 would be infinite in fp16."""


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
        fitting: Fitting | None = None,
        checkpoints: Checkpoints | None = None,
        kept: KeptModels | None = None,
    ):
        self.task, self.recipe, self.cache = data.task, recipe, cache
        cache.trim()
        self.metric = self.task.scored_by(recipe.accuracy)
        # One rank may build prefix states while the others wait.
        state = PartialState(parse_flag_from_env("ACCELERATE_USE_CPU"), timeout=timedelta(hours=6))
        self.device = normalised(state.device)
        self._can = capabilities(self.device)
        self._check_precision()
        # A process keeps one precision for good, but a worker may move on to a study with another.
        AcceleratorState._reset_state()
        self.accelerator = Accelerator(
            mixed_precision=recipe.mixed_precision,
            kwargs_handlers=[
                # Buffers are tables of positions, the same everywhere.
                DistributedDataParallelKwargs(broadcast_buffers=False, gradient_as_bucket_view=True),
            ],
        )
        self.fitting = fitting or Fitting()
        self._sharding = self._find_sharding()
        self._loader = Loader(
            self.device,
            self.accelerator.process_index,
            self.accelerator.num_processes,
            multiple=self._can.padding_multiple(recipe.mixed_precision),
            together=self.fitting.shard,
        )
        self._micro_batches = MicroBatches.of(
            recipe.batch_size, self.accelerator.num_processes, self.fitting.micro_batch
        )
        self._can.prepare()
        machine.prepare()
        self.pretrained = Pretrained(model_path, self.task, self.device, sharded=self.fitting.shard)
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
            self.accelerator,
            self.device,
            self.pretrained.on_device if self._sharding else nullcontext,
        )
        self._vocabulary = Vocabulary(self.model, self._splits.encoded(), self.device)
        self._unused = self._find_unused()
        self._steps = Steps(self.accelerator, self._frozen, recipe.max_grad_norm)
        evaluation = Evaluation(self.task, self._splits, self._loader, self.accelerator, self._steps.logits)
        self._training = Training(self._steps, evaluation, self._scored, self._tests)
        self._checkpoints, self._kept = checkpoints, kept
        self._trains = False
        """Whether the trial at hand has begun to train: what it needs before has nothing to do with the
        micro-batch."""
        self.targets = Targets(self.task.kind)
        """Of the trial before."""
        machine.settle()
        if kept is not None:
            self.keep_scored()

    def _check_precision(self) -> None:
        """Before Accelerate refuses it with an error that would fail the trial instead of releasing it."""
        precision, known = self.recipe.mixed_precision, self._can.precisions
        if precision not in known:
            raise UsageError(
                f"--mixed-precision {precision} does not run on {self._can.name}, and a study has one "
                f"precision: run its trials on devices that have it, or plan a study with "
                f"--mixed-precision {' or '.join(known)}"
            )

    def _find_sharding(self) -> Sharding | None:
        if not self.fitting.shard:
            return None
        processes, recipe = self.accelerator.num_processes, self.recipe
        self.fitting.check_shard(processes, compiled=recipe.compile, precision=recipe.mixed_precision)
        return Sharding(self.device, processes)

    def _builder(self) -> Callable[[Encoded], Builder]:
        weights = weight_digests(self.stack)

        def build(encoded: Encoded) -> Builder:
            return Builder(
                self.model,
                self._replay,
                encoded,
                weights,
                STORED_DTYPES[self.recipe.mixed_precision],
                self.accelerator.autocast,
                self.recipe.mixed_precision,
                find_head_token(self.model, self._replay, left=encoded.left),
            )

        return build

    def nearest(self) -> Sequence[int]:
        """The depths whose trials could begin at once, the one whose states are open first."""
        if self.recipe.prefix != "cached":
            return ()
        stored = self.cache.stored(self._splits.builder)
        opened = self._frozen.open_depth
        return stored if opened is None else [opened, *(depth for depth in stored if depth != opened)]

    def rest(self) -> None:
        """No trial is at hand: let go of what others may need room for."""
        self._frozen.release()

    def __call__(self, cell: Cell, report: Report, attempt: Attempt = FIRST) -> TrialRecord:
        """Where memory runs out before anything was reported, once more: without states in the device's
        memory where there are some, else with half the micro-batch."""
        size = self._micro_batches.first(cell.frozen_layers, attempt.failure)
        if micro_batches.held_states(attempt.failure):
            self._frozen.leave_device()
        self._frozen.wanted = attempt.wanted
        points: list[CurvePoint] = []

        def reported(point: CurvePoint) -> None:
            points.append(point)
            report(point)

        while True:
            self._trains = False
            try:
                return self._repeatably(partial(self._run, cell, reported, attempt, size))
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error):
                    raise
                reason = " ".join(str(error).split())[:200] or "the process has no memory left"
                # The trial's tensors live as long as the frames that the error remembers.
                traceback.clear_frames(error.__traceback__)
                held = self._frozen.device_bytes > 0
                self._frozen.leave_device()
            finally:
                self.accelerator.free_memory()
                machine.give_back_memory(self._can)
            if not (self._trains or held):
                raise TrialFailed(f"out of memory before the first step: {reason}")
            failure = micro_batches.failure(size, reason, held=held)
            smaller = size if held else self._micro_batches.shrink(cell.frozen_layers, size)
            # Other processes wait for this one in some exchange: only a new group can begin again.
            if smaller is None or points or self.accelerator.num_processes > 1:
                raise TrialFailed(failure)
            self.cache.warn(f"{cell}: {failure}; trying {smaller}{' without them' if held else ''}")
            size = smaller

    def _repeatably(self, work: Callable[[], Result]) -> Result:
        """With every operation in a fixed order; if the model has one that knows none, once more without."""
        try:
            return work()
        except RuntimeError as error:
            if not self._can.relax(error):
                raise
            why = str(error)
            traceback.clear_frames(error.__traceback__)
        if self.accelerator.is_main_process:
            self.cache.warn(f"this model's numbers may differ from run to run: {why}")
        return work()

    def _run(self, cell: Cell, report: Report, attempt: Attempt, micro_batch: int) -> TrialRecord:
        self._take_at_a_time(micro_batch)
        self._frozen.make_way(cell.frozen_layers)
        self.pretrained.reset(cell.seed)
        self.stack.freeze(cell.frozen_layers)
        sizes = [(p.numel(), p.requires_grad) for p in self.model.parameters()]
        prefix = self._frozen.load(cell.frozen_layers)
        cached = cell.frozen_layers if prefix == "cached" else 0
        self._put_aside(cached)
        self._trains = True
        with (
            self._copied(),
            self._fast(cell.frozen_layers) as bits,
            self._checkpointing(cell.frozen_layers, bits),
            self._frozen.skipping(),
            self._prepared(cell, bits, cached) as run,
        ):
            peak = machine.PeakMemory(self._can)
            self._training.look = peak.look
            saving = self._saving(cell, attempt, report)
            self._training.begin(run)
            self._training.train(run, self._batches(cell, run), report, attempt.stepped)
            run.take_scored()
            gathered = self._gathered()
            # The states are shared by the trials of their depth.
            peak_bytes = peak.bytes() - self._frozen.device_bytes
        self.targets = run.targets
        progress = run.progress
        scored = self._scored(progress.curve)
        packed = self._packed(progress)
        weights = self._keep(cell, attempt, scored.metrics[self.metric], gathered)
        return TrialRecord(
            metric=self.metric,
            score=scored.metrics[self.metric],
            metrics={n: v for n, v in scored.metrics.items() if not n.startswith(SELECTION)} | progress.test,
            curve=tuple(progress.curve),
            selection_score=scored.metrics.get(f"{SELECTION}_{self.metric}"),
            chance=metrics.chance(
                self.metric, self._splits[self.task.validation[0]].encoded.labels, self.task.outputs
            ),
            train_examples=run.schedule.examples,
            trainable_parameters=sum(size for size, tuned in sizes if tuned),
            total_parameters=sum(size for size, _ in sizes),
            train_seconds=round(progress.train_seconds, 4),
            evaluation_seconds=round(progress.evaluation_seconds, 4),
            prefix_seconds=self._frozen.seconds,
            examples_per_second=round(progress.examples / progress.train_seconds, 2),
            peak_memory_bytes=peak_bytes,
            prefix=prefix,
            predictions=packed,
            score_error=standard_error(packed, metrics.describe(self.metric)),
            resumed_step=None if saving is None else saving.resumed_step,
            resumed_seconds=None if saving is None else saving.resumed_seconds,
            weights=weights,
            device=self._can.name,
            host=socket.gethostname(),
            processes=self.accelerator.num_processes,
            micro_batch=micro_batch,
            versions=machine.versions(),
        )

    def _put_aside(self, depth: int) -> None:
        """Layers whose states come from the cache leave the device; the next trial's reset brings them back.

        Not this trial's end: what it trained with is freed only after its last frame.
        """
        if not self._can.is_host and self._sharding is None:
            self.pretrained.put_aside([*self.stack.layers][:depth])

    def _checkpointing(self, depth: int, bits: RandomBits | None) -> AbstractContextManager[None]:
        enabled = self.fitting.gradient_checkpointing
        return checkpointing(self.stack, depth, bits) if enabled else nullcontext()

    def _take_at_a_time(self, micro_batch: int) -> None:
        """So many examples while training, and as small a share of the usual tokens while evaluating."""
        share = micro_batch / self._micro_batches.whole
        self._loader = replace(self._loader, micro_batch=micro_batch, forward_share=share)
        self._training.evaluation.loader = self._loader

    def _saving(self, cell: Cell, attempt: Attempt, report: Report) -> Saving | None:
        """Saves the trial at hand now and then, where that was asked for."""
        if self._checkpoints is None:
            return None
        saving = Saving(self._checkpoints, self.accelerator, cell, attempt, report)
        self._training.begin, self._training.after_step = saving.begin, saving.after_step
        return saving

    def tuned(self) -> dict[str, torch.Tensor]:
        """The parameters that the trial before has trained, by name."""
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}

    def _gathered(self) -> dict[str, torch.Tensor] | None:
        """The same of the sharded trial at hand, whole in the first process, where they are to be kept."""
        if self._sharding is None or self._kept is None:
            return None
        found = {name: whole(p) for name, p in self.tuned().items()}
        if not self.accelerator.is_main_process:
            return None
        return {n: self._vocabulary.completed(self.pretrained.pretrained(n), p) for n, p in found.items()}

    def _keep(
        self, cell: Cell, attempt: Attempt, score: float, gathered: dict[str, torch.Tensor] | None
    ) -> str | None:
        """Where the weights that gave the score are kept, if that was asked for."""
        if self._kept is None or not self.accelerator.is_main_process or not attempt.mine():
            return None
        return self._kept.write(cell, attempt.token, gathered or self.tuned(), self.targets, score)

    def _packed(self, progress: Progress) -> str:
        """The answers behind the score."""
        name = self.task.validation[0]
        labels = self._splits[name].encoded.labels
        return predictions.pack(labels, progress.logits[name], metrics.describe(self.metric))

    @contextmanager
    def _fast(self, depth: int) -> Iterator[RandomBits | None]:
        """All that makes a step faster and leaves what it computes as it is."""
        # The compiler brings a dropout of its own.
        tuned = self._compiled.running(depth) if self._compiled else fast_dropout(self._can)
        with (
            self._readout.reading(),
            self._vocabulary.alone(),
            unread_masks(self._can),
            tuned as bits,
        ):
            yield bits

    def time_steps(self, cell: Cell, steps: int = 4) -> tuple[float, float]:
        """Seconds of one training step and of one evaluation of this cell here, after one to warm up."""
        return self._repeatably(lambda: self._time_steps(cell, steps))

    def _time_steps(self, cell: Cell, steps: int) -> tuple[float, float]:
        self._take_at_a_time(self._micro_batches.first(cell.frozen_layers))
        self.pretrained.reset(cell.seed)
        self.stack.freeze(cell.frozen_layers)
        self._frozen.load(0)
        depth = cell.frozen_layers
        with (
            self._copied(),
            self._fast(depth) as bits,
            self._checkpointing(depth, bits),
            self._prepared(cell, bits) as run,
        ):
            run.model.train()
            done = 0
            for batch in self._batches(cell, run, steps + 1):
                self._steps.step(run, batch)
                done += batch.ends_step
                if batch.ends_step and done == 1:
                    self._steps.settle()
                    started = time.perf_counter()
            self._steps.settle()
            step_seconds = (time.perf_counter() - started) / steps
            started = time.perf_counter()
            self._training.evaluation.predict(run.model)
            evaluation_seconds = time.perf_counter() - started
        self.accelerator.free_memory()
        return step_seconds, evaluation_seconds

    def _batches(self, cell: Cell, run: Run, steps: int | None = None) -> Iterator[Batch]:
        """This process's part of the batches from where the run stands, to the end or for so many steps."""
        last = run.schedule.total_steps if steps is None else steps
        rows = self._splits.rows(cell.train_size)
        batches = self._splits.batches(cell.seed, rows, last, run.progress.step)
        return self._loader.training(self._splits["train"], batches)

    def _scored(self, curve: list[CurvePoint]) -> CurvePoint:
        """The evaluation that gives the trial's score."""
        if self.recipe.score == "last":
            return curve[-1]
        # Where there is a selection split, the best epoch is one of the choices it is there for.
        name = f"{SELECTION}_{self.metric}" if SELECTION in self._splits else self.metric
        best = max if metrics.get(self.metric).higher_is_better else min
        return best(curve, key=lambda point: point.metrics[name])

    def keep_scored(self) -> None:
        """From now on a trial leaves `model` with the weights that gave its score, not with the last ones."""
        if self.recipe.score == "best":
            self._training.keep = Run.keep_scored

    def _tests(self, run: Run) -> bool:
        """At the last evaluation, or at each one that is the best so far: once where it gives the score."""
        if TEST not in self._splits:
            return False
        return self.recipe.score == "best" or run.progress.step == run.schedule.total_steps

    def _targets(self, rows: NDArray[np.int64]) -> Targets:
        labels = self._splits["train"].encoded.labels[rows]
        return Targets.of(self.task, labels, shifts=can_shift(self.stack))

    def _find_unused(self) -> frozenset[str]:
        if self.accelerator.num_processes == 1 or self._sharding is not None:
            return frozenset()
        padded = self._splits["train"].encoded.pad_rows(np.zeros(1, dtype=np.int64))
        inputs = {name: torch.from_numpy(block).to(self.device) for name, block in padded.items()}
        return unused_parameters(self.model, inputs)

    def _distributed(self) -> Any:
        """With gradients exchanged; what is frozen or unused is alike in all processes, and stays so."""
        kept = [name for name, parameter in self.model.named_parameters() if not parameter.requires_grad]
        kept += [*self._unused, *(name for name, _ in self.model.named_buffers())]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(self.model, kept)
        return self.accelerator.prepare_model(self.model, device_placement=False)

    @contextmanager
    def _copied(self) -> Iterator[None]:
        """Sharding changes a model for good: while it lasts, everything is done to a copy."""
        if self._sharding is None:
            yield
            return
        own = (self.model, self.stack, self._replay, self._readout, self._vocabulary)
        self._take(copied(own, self.model))
        # A pass that FSDP2 has seen begin must end.
        self._replay.runs_through = True
        # The whole embeddings are the pretrained ones.
        self._vocabulary.returns = False
        try:
            yield
        finally:
            self._take(own)

    def _take(self, parts: tuple[PreTrainedModel, LayerStack, Replay, Readout, Vocabulary]) -> None:
        self.model, self.stack, self._replay, self._readout, self._vocabulary = parts
        self._frozen.model, self._frozen.replay = self.model, self._replay

    @contextmanager
    def _prepared(self, cell: Cell, bits: RandomBits | None = None, cached: int = 0) -> Iterator[Run]:
        """Model and optimiser as Accelerate wraps them, unwrapped again at the end.

        A model alone in its process needs no wrapper: `Steps` sets the precision itself.
        """
        if self.accelerator.scaler is not None:
            # The loss scale that an earlier trial ended with, a diverged one above all, is not this one's.
            self.accelerator.scaler = self._can.new_scaler()
        if self._sharding is not None:
            self._sharding.shard(self.model, self.stack, cached)
        bare = self.accelerator.num_processes == 1 or self._sharding is not None
        optimizer = make_optimizer(self.model, self.recipe, cell.learning_rate)
        rows = self._splits.rows(cell.train_size)
        run = Run(
            model=self.model if bare else self._distributed(),
            optimizer=self.accelerator.prepare(optimizer),
            parameters=trainable(self.model),
            schedule=Schedule(self.recipe, len(rows)),
            targets=self._targets(rows),
            bits=bits,
        )
        # Dropout differs between ranks and from the draw of the head, which all ranks share.
        set_seed((cell.seed * 1000 + self.accelerator.process_index) % 2**32)
        try:
            yield run
        finally:
            self.accelerator.unwrap_model(run.model, keep_fp32_wrapper=False)
            # Unwrapping leaves a forward that holds its own model, which would never be freed.
            self.model.__dict__.pop("forward", None)
