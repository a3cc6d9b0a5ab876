"""How long it will take: from cells already timed, scaled by their layer units."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from objectives.contract import Cell, TrialRecord
from study.protocols.units import cell_units
from study.spec import StudySpec

if TYPE_CHECKING:
    from storage.reading import StoredTrial
    from storage.studies import StoredStudy

_OVERHEAD_UNITS = 1.5
"""What a trial costs whatever its depth (head, evaluation, bookkeeping), in units of one layer's forward."""


def units(spec: StudySpec, cell: Cell) -> float:
    """The work of a cell's layers, to scale seconds by."""
    return cell_units(cell.frozen_layers, spec.total_layers, spec.recipe.prefix) * (cell.train_size or 1)


def weight(spec: StudySpec, cell: Cell) -> float:
    """A cell's share of all work, where only one kind of cell was timed."""
    return units(spec, cell) + _overhead(cell)


def _overhead(cell: Cell) -> float:
    return _OVERHEAD_UNITS * (cell.train_size or 1)


class Timing:
    """Seconds against work by the cells timed so far: what every cell costs, and what a unit of work does."""

    def __init__(self, spec: StudySpec, timed: Iterable[tuple[Cell, float]] = ()):
        self._spec = spec
        self._count = 0
        self._units = self._seconds = self._squares = self._products = self._overhead = 0.0
        for cell, seconds in timed:
            self.add(cell, seconds)

    def __bool__(self) -> bool:
        return self._count > 0

    def add(self, cell: Cell, seconds: float) -> None:
        work = units(self._spec, cell)
        self._count += 1
        self._units += work
        self._overhead += _overhead(cell)
        self._seconds += seconds
        self._squares += work * work
        self._products += work * seconds

    @property
    def mean(self) -> float:
        return self._seconds / self._count

    def seconds(self, cell: Cell) -> float:
        """A line through what was timed, which neither falls nor begins below zero."""
        here, mean_units = units(self._spec, cell), self._units / self._count
        spread = self._squares - self._count * mean_units**2
        if spread <= 1e-9 * self._squares:
            # One kind of cell so far: how much of it any other kind costs, too, can only be guessed.
            return self._seconds * (here + _overhead(cell)) / (self._units + self._overhead)
        slope = (self._products - self._count * mean_units * self.mean) / spread
        slope = min(max(slope, 0.0), self.mean / mean_units)
        return self.mean + slope * (here - mean_units)


class Pace:
    """How fast the cells of one study go, and the cells that are left."""

    def __init__(self, spec: StudySpec, done: Iterable[tuple[Cell, float | None]], waiting: Iterable[Cell]):
        self.spec = spec
        self._waiting = set(waiting)
        self._unknown = 0
        done = list(done)
        self.done = len(done)
        self._timing = Timing(spec, [(cell, seconds) for cell, seconds in done if seconds is not None])

    @classmethod
    def of(cls, study: StoredStudy, spec: StudySpec) -> Pace:
        trials = study.trials()
        done = [(t.cell, _seconds(t, spec)) for t in trials if t.state == "COMPLETE"]
        return cls(spec, done, [t.cell for t in trials if t.state in ("WAITING", "RUNNING")])

    @property
    def in_phases(self) -> bool:
        """Whether more cells may be planned once these are done."""
        return self.spec.protocol in ("paper", "adaptive")

    @property
    def total(self) -> int:
        return self.done + len(self._waiting) + self._unknown

    def planned(self, trials: int) -> None:
        self._unknown += trials

    def finished(self, cell: Cell, record: TrialRecord, seconds: float) -> None:
        """`seconds` are all that passed, for records that say no more."""
        measured = _worked(record, self.spec)
        self.done += 1
        self._timing.add(cell, seconds if measured is None else measured)
        if cell in self._waiting:
            self._waiting.remove(cell)
        else:
            self._unknown = max(0, self._unknown - 1)

    def seconds_of(self, cell: Cell) -> float | None:
        """How long this cell will take by those that are done."""
        return self._timing.seconds(cell) if self._timing else None

    def seconds_left(self, elsewhere: Iterable[Pace] = ()) -> float | None:
        """By this study's own cells; before the first of them, by those of other studies here."""
        if not self._waiting and not self._unknown:
            return 0.0
        known = self if self._timing else next((pace for pace in elsewhere if pace._timing), None)
        if known is None:
            return None
        waiting = [known._timing.seconds(cell) for cell in self._waiting]
        mean = sum(waiting) / len(waiting) if waiting else known._timing.mean
        return sum(waiting) + self._unknown * mean


def seconds_left(paces: Iterable[Pace]) -> float | None:
    """Of several studies together, one worker's time; None before the first cell of any is done."""
    paces = list(paces)
    left = [pace.seconds_left(paces) for pace in paces]
    known = [seconds for seconds in left if seconds is not None]
    return sum(known) if len(known) == len(left) else None


def _worked(record: TrialRecord, spec: StudySpec) -> float | None:
    """The seconds that every trial like it takes: without loading a model, without filling a cache."""
    if record.train_seconds is None or spec.recorded:
        return None
    return record.train_seconds + (record.evaluation_seconds or 0.0)


def _seconds(trial: StoredTrial, spec: StudySpec) -> float | None:
    measured = _worked(trial.record, spec) if trial.record else None
    if measured is None and trial.started and trial.ended:
        return (trial.ended - trial.started).total_seconds()
    return measured


def steps(spec: StudySpec, cell: Cell, train_examples: int) -> int:
    held = round(train_examples * spec.recipe.selection_split)
    examples = cell.train_size or train_examples - held
    return max(1, math.ceil(spec.recipe.epochs * math.ceil(examples / spec.recipe.batch_size)))
