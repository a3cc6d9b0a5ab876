"""How long cells take: seconds by the work of their layers, fitted to the cells that were timed."""

from __future__ import annotations

import math
from collections.abc import Iterable

from objectives.contract import Cell
from study.protocols.units import cell_units
from study.specs.study_spec import StudySpec

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
    """Seconds against work: a line through the cells timed so far."""

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
        """The line's value, which neither falls with more work nor starts below zero."""
        here, mean_units = units(self._spec, cell), self._units / self._count
        spread = self._squares - self._count * mean_units**2
        if spread <= 1e-9 * self._squares:
            # One kind of cell so far: how the cost splits into layers and overhead can only be guessed.
            return self._seconds * (here + _overhead(cell)) / (self._units + self._overhead)
        slope = (self._products - self._count * mean_units * self.mean) / spread
        slope = min(max(slope, 0.0), self.mean / mean_units)
        return self.mean + slope * (here - mean_units)


def steps(spec: StudySpec, cell: Cell, train_examples: int) -> int:
    """Optimiser steps of one cell."""
    held = round(train_examples * spec.recipe.selection_split)
    examples = cell.train_size or train_examples - held
    return max(1, math.ceil(spec.recipe.epochs * math.ceil(examples / spec.recipe.batch_size)))
