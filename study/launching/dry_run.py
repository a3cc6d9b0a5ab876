"""`launch --dry-run`: what a launch would do and how long that takes, by real steps timed on this machine.

It writes to no database; tokens may stay in the cache for the launch itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from objectives.contract import Cell, Recipe
from study import protocols
from study.cli.command import duration
from study.cli.wording import counted, size_text
from study.progress.pace import steps, weight
from study.workers.jobs import make_objective
from study.workers.options import Places

if TYPE_CHECKING:
    from objectives.training.finetune import FineTuning
    from study.launching.memory import Memory
    from study.launching.request import StudyRequest


def dry_run(requests: Sequence[StudyRequest], places: Places, workers: int, memory: Memory) -> str:
    """The cells, the training steps, and the memory and the time they need."""
    return "\n".join(line for request in requests for line in _lines(request, places, workers, memory))


def _lines(request: StudyRequest, places: Places, workers: int, memory: Memory) -> list[str]:
    spec = request.spec
    protocol = protocols.get(spec.protocol)
    wanted = protocol.wanted(spec, [])
    cells = [cell for cell in wanted if request.cells is None or cell in request.cells]
    outlook = protocol.outlook(spec)
    then = f" now, {outlook}" if outlook else ""
    marks = "".join(f"  ({mark})" for mark in spec.marks)
    lines = [f"{request.name}: {counted(len(cells), 'cell')}{then}{marks}"]
    lines += [f"  {told}" for told in (request.told, *spec.remarks) if told]
    lines += [f"  {cell}" for cell in cells]
    if request.train_examples is not None:
        from objectives.training.finetune import FineTuning

        every = [*cells, *protocol.later(spec)]
        counts = [steps(spec, cell, request.train_examples) for cell in every]
        each = f"{min(counts):,}" if min(counts) == max(counts) else f"{min(counts):,} to {max(counts):,}"
        lines.append(f"  {_recipe(spec.recipe)}")
        lines.append(f"  {counted(sum(counts), 'training step')}, {each} per cell")
        lines += [f"  {line}" for line in memory.lines(request)]
        memory.check(request)
        if places.fitting.shard:
            lines.append("  no time is estimated with --shard: this process alone might not hold the model")
            return lines
        objective = make_objective(spec, places)
        assert isinstance(objective, FineTuning)
        lines.append(f"  {_time(request, every, objective, workers)}")
        if places.keeping.keep == "models":
            lines.append(f"  {_kept(every, objective)}")
    return lines


def _recipe(recipe: Recipe) -> str:
    evaluations = math.ceil(recipe.epochs * recipe.evaluations_per_epoch)
    score = f"{recipe.score} of {evaluations} evaluations" if evaluations > 1 else "of one evaluation"
    return (
        f"{counted(recipe.epochs, 'epoch')} of batch {recipe.batch_size}, "
        f"at most {recipe.max_length} tokens, {recipe.optimizer}, "
        f"precision {recipe.mixed_precision}, prefix {recipe.prefix}, score {score}"
    )


def _kept(cells: Sequence[Cell], objective: FineTuning) -> str:
    """The disk space of --keep models."""
    sizes = 0
    for cell in cells:
        objective.stack.freeze(cell.frozen_layers)
        sizes += sum(p.numel() * p.element_size() for p in objective.tuned().values())
    return f"{size_text(sizes)} of tuned weights are kept with --keep models"


def _time(request: StudyRequest, cells: Sequence[Cell], objective: FineTuning, workers: int) -> str:
    """Time a few real steps of the full model here and scale them."""
    spec, examples = request.spec, request.train_examples or 0
    probe = Cell(0, spec.learning_rates[0], spec.seeds[0], spec.train_sizes[0])
    step_seconds, evaluation_seconds = objective.time_steps(probe)
    evaluations = math.ceil(spec.recipe.epochs * spec.recipe.evaluations_per_epoch)

    def seconds(cell: Cell) -> float:
        work = steps(spec, cell, examples) * step_seconds + evaluations * evaluation_seconds
        share = weight(spec, cell) / (cell.train_size or 1)
        return work * share / (weight(spec, probe) / (probe.train_size or 1))

    most = protocols.get(spec.protocol).most_work(spec)
    total = sum(map(seconds, cells)) if most is None else most * seconds(probe)
    share = f", {duration(total / workers)} with {workers} workers" if workers > 1 else ""
    return (
        f"{'about' if most is None else 'at most'} {duration(total)} on this machine{share}, "
        "from steps timed just now"
    )
