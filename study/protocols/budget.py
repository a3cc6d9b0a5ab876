"""What the adaptive search may still spend: the spec's budget, or a share of what the paper did.

Every trial that was ever planned is charged, failed ones too, and in units each depth's cache once.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from objectives.contract import Cell, Outcome
from study.protocols.adaptive_settings import asked, budget_of
from study.protocols.evidence import FULL
from study.protocols.outcomes import CLOSED, grid_cells
from study.protocols.units import cell_units, prefix_units, study_units
from study.specs.study_spec import StudySpec

BUDGET_SHARE = 0.55
"""Without a budget of its own the search stops at this share of what the paper did on the same grid: every
rate at 0 frozen, every other depth at one rate."""
BUDGET_SEEDS = 5
"""Seeds per cell in that protocol, if the spec has as many."""
_ROUNDING = 1e-9


class Purse:
    """What the budget still allows; without one, a share of what the paper's protocol would cost."""

    def __init__(self, spec: StudySpec, outcomes: Iterable[Outcome]):
        self.spec = spec
        self.limit, self.unit, self.stated = _budget(spec)
        self.spent = 0.0
        self._cached: set[tuple[int, int | None]] = set()
        for outcome in outcomes:
            if outcome.reason != CLOSED:
                self._charge(outcome.cell)

    @property
    def affords_a_full_run(self) -> bool:
        """One full fine-tuning is a unit, and a cell."""
        return self.limit + _ROUNDING >= 1

    def _charge(self, cell: Cell) -> None:
        self.spent += self._price(cell)
        self._cached.add((cell.frozen_layers, cell.train_size))

    def _price(self, cell: Cell) -> float:
        if self.unit == "cells":
            return 1.0
        layers, recipe = self.spec.total_layers, self.spec.recipe
        units = cell_units(cell.frozen_layers, layers, recipe.prefix)
        if recipe.prefix == "cached" and (cell.frozen_layers, cell.train_size) not in self._cached:
            units += prefix_units(cell.frozen_layers, recipe.epochs)
        return units / cell_units(FULL, layers, recipe.prefix)

    def afford(self, cells: list[Cell]) -> list[Cell]:
        """The cells that fit, in their order, charged at once."""
        bought = []
        for cell in cells:
            if self.spent + self._price(cell) <= self.limit + _ROUNDING:
                self._charge(cell)
                bought.append(cell)
        return bought


@lru_cache(maxsize=64)
def _budget(spec: StudySpec) -> tuple[float, str, bool]:
    if (stated := asked(spec).budget) is not None:
        return *budget_of(stated), True
    seeds = min(len(spec.seeds), BUDGET_SEEDS)
    layers, prefix, epochs = spec.total_layers, spec.recipe.prefix, spec.recipe.epochs
    cells = grid_cells(spec, [FULL], spec.learning_rates)
    cells += grid_cells(spec, [n for n in spec.frozen_layers if n != FULL], spec.learning_rates[:1])
    paper = study_units([cell for cell in cells if cell.seed in spec.seeds[:seeds]], layers, prefix, epochs)
    # A small grid, too, needs a run of the full model to compare with.
    return max(1.0, BUDGET_SHARE * paper / cell_units(FULL, layers, prefix)), "units", False
