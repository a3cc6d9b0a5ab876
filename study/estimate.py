"""How long it will take: from cells already timed, scaled by their layer units, and the dry run."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from objectives.contract import Cell
from study import protocols
from study.command import duration
from study.planning import every_cell
from study.protocols.units import cell_units
from study.spec import StudySpec

if TYPE_CHECKING:
    from storage.studies import StoredStudy
    from study.request import StudyRequest

_OVERHEAD_UNITS = 1.5
"""What a trial costs whatever its depth (head, evaluation, bookkeeping), in units of one layer's forward."""


def weight(spec: StudySpec, cell: Cell) -> float:
    """A cell's share of the work, to scale seconds by."""
    units = cell_units(cell.frozen_layers, spec.total_layers, spec.recipe.prefix) + _OVERHEAD_UNITS
    return units * (cell.train_size or 1)


class Pace:
    """Seconds per unit of work of one study, and the work that is left."""

    def __init__(self, spec: StudySpec, done: Iterable[tuple[Cell, float | None]], waiting: Iterable[Cell]):
        self._spec = spec
        self._waiting = {cell: weight(spec, cell) for cell in waiting}
        self._mean = sum(self._waiting.values()) / max(1, len(self._waiting))
        self._unknown = 0
        self._seconds = self._units = 0.0
        self.done = 0
        for cell, seconds in done:
            self.done += 1
            if seconds is not None:
                self._seconds += seconds
                self._units += weight(spec, cell)

    @classmethod
    def of(cls, study: StoredStudy, spec: StudySpec) -> Pace:
        trials = study.trials()
        done = [(t.cell, _seconds(t)) for t in trials if t.state == "COMPLETE"]
        return cls(spec, done, [t.cell for t in trials if t.state in ("WAITING", "RUNNING")])

    @property
    def total(self) -> int:
        return self.done + len(self._waiting) + self._unknown

    def planned(self, trials: int) -> None:
        self._unknown += trials

    def finished(self, cell: Cell, seconds: float) -> None:
        self.done += 1
        self._seconds += seconds
        self._units += weight(self._spec, cell)
        if self._waiting.pop(cell, None) is None:
            self._unknown = max(0, self._unknown - 1)

    def seconds_of(self, cell: Cell) -> float | None:
        """How long this cell will take by those that are done."""
        return self._seconds / self._units * weight(self._spec, cell) if self._units else None

    def seconds_left(self, elsewhere: Iterable[Pace] = ()) -> float | None:
        """By this study's own cells; before the first of them, by those of other studies here."""
        if not self._waiting and not self._unknown:
            return 0.0
        known = self if self._units else next((pace for pace in elsewhere if pace._units), None)
        if known is None:
            return None
        mean = self._mean or self._units / max(1, self.done)
        return known._seconds / known._units * (sum(self._waiting.values()) + self._unknown * mean)


def seconds_left(paces: Iterable[Pace]) -> float | None:
    """Of several studies together, one worker's time; None before the first cell of any is done."""
    paces = list(paces)
    left = [pace.seconds_left(paces) for pace in paces]
    known = [seconds for seconds in left if seconds is not None]
    return sum(known) if len(known) == len(left) else None


def _seconds(trial: object) -> float | None:
    started, ended = getattr(trial, "started", None), getattr(trial, "ended", None)
    return (ended - started).total_seconds() if started and ended else None


def steps(spec: StudySpec, cell: Cell, train_examples: int) -> int:
    held = round(train_examples * spec.recipe.selection_split)
    examples = cell.train_size or train_examples - held
    return max(1, math.ceil(spec.recipe.epochs * math.ceil(examples / spec.recipe.batch_size)))


def dry_run(requests: Sequence[StudyRequest], arguments: argparse.Namespace) -> str:
    """The cells, the training steps and the time they need; nothing is written to any database."""
    lines: list[str] = []
    for request in requests:
        spec = request.spec
        cells = [
            c for c in protocols.get(spec.protocol)(spec, []) if request.cells is None or c in request.cells
        ]
        grid = len(every_cell(spec))
        title = f"{request.name}: {len(cells)} cells" + (
            f" now, at most {grid} in all" if len(cells) < grid and not spec.recorded else ""
        )
        lines.append(title + ("  (demo)" if spec.demo else "") + ("  (recorded)" if spec.recorded else ""))
        lines += [f"  {cell}" for cell in cells]
        if request.train_examples is not None:
            counts = [steps(spec, cell, request.train_examples) for cell in cells]
            lines.append(f"  {sum(counts):,} training steps, {min(counts):,} to {max(counts):,} per cell")
            lines.append(f"  {_time(request, cells, arguments)}")
    return "\n".join(lines)


def _time(request: StudyRequest, cells: Sequence[Cell], arguments: argparse.Namespace) -> str:
    """Time a few real steps of the full model here and scale them."""
    from objectives.finetune import FineTuning

    objective = request.make_objective()
    assert isinstance(objective, FineTuning)
    probe = Cell(0, request.spec.learning_rates[0], request.spec.seeds[0], request.spec.train_sizes[0])
    step_seconds, evaluation_seconds = objective.time_steps(probe)
    full = weight(request.spec, probe)
    evaluations = math.ceil(request.spec.recipe.epochs * request.spec.recipe.evaluations_per_epoch)
    assert request.train_examples is not None
    seconds = sum(
        (steps(request.spec, cell, request.train_examples) * step_seconds + evaluations * evaluation_seconds)
        * weight(request.spec, cell)
        / full
        * ((probe.train_size or 1) / (cell.train_size or 1))
        for cell in cells
    )
    workers = max(1, arguments.workers or 1)
    share = f", {duration(seconds / workers)} with {workers} workers" if workers > 1 else ""
    return f"about {duration(seconds)} on this machine{share}, from steps timed just now"
