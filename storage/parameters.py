"""Cells <-> Optuna parameters, with grid distributions and the marks of Optuna's own GridSampler."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution, distribution_to_json
from optuna.samplers import GridSampler

from objectives.contract import Cell

Space = Mapping[str, Sequence[float | int | None]]
"""None, beside sizes, is the cell without `train_size`: all of the data."""

GRID_ID = "grid_id"
SEARCH_SPACE = "search_space"

MOST_MARKS_BYTES = 2**24
"""That the marks of all trials of a study may take."""

CELL_PARAMETERS = ("frozen_layers", "learning_rate", "seed")
"""What every cell has."""


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Numbers, never categories: those sort as text and can never be extended."""
    found: dict[str, BaseDistribution] = {}
    for name, values in space.items():
        numbers = [value for value in values if value is not None]
        low, high = min(numbers), max(numbers)
        logarithmic = name == "learning_rate"
        found[name] = (
            FloatDistribution(low, high, log=True) if logarithmic else IntDistribution(int(low), int(high))
        )
    return found


def cell_of(parameters: Mapping[str, Any]) -> Cell | None:
    """None for a trial that is not of this study's making."""
    try:
        size = parameters.get("train_size")
        return Cell(
            frozen_layers=int(parameters["frozen_layers"]),
            learning_rate=float(parameters["learning_rate"]),
            seed=int(parameters["seed"]),
            train_size=None if size is None else int(size),
        )
    except KeyError:
        return None


class Grid:
    """The search space of one study: which parameters and marks the trial of a cell carries."""

    def __init__(self, space: Space):
        self.space = {name: list(values) for name, values in sorted(space.items())}
        self.distributions = {
            name: (value, distribution_to_json(value)) for name, value in distributions(space).items()
        }
        self._values = {name: frozenset(values) for name, values in self.space.items()}
        points = math.prod(map(len, self.space.values()))
        self.marked = points * len(json.dumps(self.space)) <= MOST_MARKS_BYTES

    @cached_property
    def _ids(self) -> dict[tuple[Any, ...], int]:
        # GridSampler shuffles with a fixed seed: its own list is the only source of the ids.
        return {point: number for number, point in enumerate(GridSampler(self.space)._all_grids)}

    def __contains__(self, cell: Cell) -> bool:
        parameters = cell.parameters()
        return all(parameters.get(name) in values for name, values in self._values.items())

    def grid_id(self, cell: Cell) -> int:
        parameters = cell.parameters()
        return self._ids[tuple(parameters.get(name) for name in self.space)]

    def marks(self, cell: Cell) -> dict[str, Any]:
        """Those of Optuna's GridSampler, which then knows that the cell is taken.

        None on a grid so large that repeating it with every trial would fill the database.
        """
        if cell not in self:
            raise ValueError(f"the cell {cell} is not in the search space")
        return {GRID_ID: self.grid_id(cell), SEARCH_SPACE: self.space} if self.marked else {}
