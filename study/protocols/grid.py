"""The plain grid: every depth at every learning rate with every seed, all wanted at once."""

from __future__ import annotations

from collections.abc import Sequence

from objectives.contract import Cell, Outcome
from study.protocols.outcomes import grid_cells, not_final
from study.spec import StudySpec


def wanted(spec: StudySpec, outcomes: Sequence[Outcome]) -> list[Cell]:
    return not_final(grid_cells(spec, spec.frozen_layers, spec.learning_rates), outcomes)


def explain(spec: StudySpec, outcomes: Sequence[Outcome]) -> str:
    cells = grid_cells(spec, spec.frozen_layers, spec.learning_rates)
    if spec.recorded:  # A trial table need not fill its grid; what it lacks is never planned.
        known = {outcome.cell for outcome in outcomes}
        cells = [cell for cell in cells if cell in known]
    return f"grid: {len(cells) - len(not_final(cells, outcomes))} of {len(cells)} cells final"
