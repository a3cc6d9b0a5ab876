"""Cells <-> Optuna parameters, with grid distributions and the marks of Optuna's own GridSampler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution, distribution_to_json
from optuna.samplers import GridSampler

from objectives.contract import Cell

Space = Mapping[str, Sequence[float | int | None]]
"""None, beside sizes, is the cell without `train_size`: all of the data."""

GRID_ID = "grid_id"
SEARCH_SPACE = "search_space"

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
        # GridSampler shuffles with a fixed seed: its own list is the only source of the ids.
        self._ids = {point: number for number, point in enumerate(GridSampler(self.space)._all_grids)}

    def __contains__(self, cell: Cell) -> bool:
        return self._point(cell) in self._ids

    def _point(self, cell: Cell) -> tuple[Any, ...]:
        parameters = cell.parameters()
        return tuple(parameters.get(name) for name in self.space)

    def grid_id(self, cell: Cell) -> int:
        try:
            return self._ids[self._point(cell)]
        except KeyError:
            raise ValueError(f"the cell {cell} is not in the search space {self.space}") from None

    def marks(self, cell: Cell) -> dict[str, Any]:
        return {GRID_ID: self.grid_id(cell), SEARCH_SPACE: self.space}
