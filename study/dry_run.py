"""`launch --dry-run`: what a launch would do and how long that takes, by real steps timed on this machine.

It reads no database and writes to none; tokens may stay in the cache for the launch itself.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from objectives.contract import Cell, Recipe
from study import command, protocols
from study.command import duration
from study.estimate import steps, weight
from study.protocols.budget import Purse
from study.protocols.outcomes import grid_cells
from study.spec import StudySpec

if TYPE_CHECKING:
    from study.request import StudyRequest


def dry_run(requests: Sequence[StudyRequest], arguments: argparse.Namespace) -> str:
    """The cells, the training steps and the time they need."""
    from storage.address import Address

    Address.parse(command.storage_url(arguments.storage))
    lines: list[str] = []
    for request in requests:
        spec = request.spec
        wanted = protocols.get(spec.protocol)(spec, [])
        cells = [cell for cell in wanted if request.cells is None or cell in request.cells]
        later = _second_phase(spec)
        marks = ("  (demo)" if spec.demo else "") + ("  (recorded)" if spec.recorded else "")
        lines.append(f"{request.name}: {len(cells)} cells{_then(spec, later)}{marks}")
        lines += [f"  {cell}" for cell in cells]
        if request.train_examples is not None:
            counts = [steps(spec, cell, request.train_examples) for cell in [*cells, *later]]
            lines.append(f"  {_recipe(spec.recipe)}")
            lines.append(f"  {sum(counts):,} training steps, {min(counts):,} to {max(counts):,} per cell")
            lines.append(f"  {_time(request, [*cells, *later], arguments)}")
    return "\n".join(lines)


def _second_phase(spec: StudySpec) -> list[Cell]:
    """What the paper's protocol runs once it knows the best rate, here at any."""
    if spec.protocol != "paper" or spec.recorded:
        return []
    return grid_cells(spec, [depth for depth in spec.frozen_layers if depth != 0], spec.learning_rates[:1])


def _then(spec: StudySpec, later: Sequence[Cell]) -> str:
    if later:
        return f" now, then {len(later)} at the best learning rate"
    if spec.protocol != "adaptive":
        return ""
    purse = Purse(spec, [])
    unit = "cells" if purse.unit == "cells" else "full fine-tunings' worth of work"
    return f" now, then as many as it takes to be sure, within a budget of {purse.limit:.3g} {unit}"


def _recipe(recipe: Recipe) -> str:
    return (
        f"{recipe.epochs:g} epochs of batch {recipe.batch_size}, at most {recipe.max_length} tokens, "
        f"{recipe.optimizer}, precision {recipe.mixed_precision}, prefix {recipe.prefix}, "
        f"score {recipe.score} of {math.ceil(recipe.epochs * recipe.evaluations_per_epoch)} evaluations"
    )


def _time(request: StudyRequest, cells: Sequence[Cell], arguments: argparse.Namespace) -> str:
    """Time a few real steps of the full model here and scale them."""
    from objectives.finetune import FineTuning

    spec = request.spec
    objective = request.make_objective()
    assert isinstance(objective, FineTuning)
    probe = Cell(0, spec.learning_rates[0], spec.seeds[0], spec.train_sizes[0])
    step_seconds, evaluation_seconds = objective.time_steps(probe)
    evaluations = math.ceil(spec.recipe.epochs * spec.recipe.evaluations_per_epoch)
    assert request.train_examples is not None

    def seconds(cell: Cell) -> float:
        assert request.train_examples is not None
        work = steps(spec, cell, request.train_examples) * step_seconds + evaluations * evaluation_seconds
        share = weight(spec, cell) / (cell.train_size or 1)
        return work * share / (weight(spec, probe) / (probe.train_size or 1))

    total, most = sum(map(seconds, cells)), ""
    if spec.protocol == "adaptive":
        purse = Purse(spec, [])
        total = purse.limit * seconds(probe)
        most = "at most "
    workers = max(1, arguments.workers or 1)
    share = f", {duration(total / workers)} with {workers} workers" if workers > 1 else ""
    return f"{most or 'about '}{duration(total)} on this machine{share}, from steps timed just now"
