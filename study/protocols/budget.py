"""What the adaptive search may still spend: the spec's budget, or a share of the paper's protocol.

Every trial that was ever planned is charged, failed ones too.
"""

from __future__ import annotations

from collections.abc import Iterable

from objectives.contract import Cell, Outcome
from study.protocols.evidence import FULL
from study.protocols.units import cell_units
from study.spec import StudySpec

BUDGET_SHARE = 0.46
"""Without a budget of its own the search stops at this share of the paper's protocol on the same grid."""
BUDGET_SEEDS = 5
"""Seeds per cell in that protocol, if the spec has as many."""


class Purse:
    """What the budget still allows; without one, a share of what the paper's protocol would cost."""

    def __init__(self, spec: StudySpec, outcomes: Iterable[Outcome]):
        self.spec = spec
        self.limit, self.unit, self.stated = _budget(spec)
        self.spent = sum(self._price(outcome.cell) for outcome in outcomes)

    def _price(self, cell: Cell) -> float:
        if self.unit == "cells":
            return 1.0
        full = cell_units(FULL, self.spec.total_layers, self.spec.recipe.prefix)
        return cell_units(cell.frozen_layers, self.spec.total_layers, self.spec.recipe.prefix) / full

    def afford(self, cells: list[Cell]) -> list[Cell]:
        """The cells that fit, in their order, charged at once."""
        bought = []
        for cell in cells:
            if self.spent + self._price(cell) <= self.limit + 1e-9:
                self.spent += self._price(cell)
                bought.append(cell)
        return bought


def _budget(spec: StudySpec) -> tuple[float, str, bool]:
    if spec.budget is not None:
        return float(spec.budget), spec.budget_unit, True
    seeds = min(len(spec.seeds), BUDGET_SEEDS)
    units = [cell_units(depth, spec.total_layers, spec.recipe.prefix) for depth in spec.frozen_layers]
    paper = len(spec.learning_rates) * max(units) + sum(units) - max(units)
    return BUDGET_SHARE * seeds * len(spec.train_sizes) * paper / max(units), "units", False
