"""The plain grid: every depth at every learning rate with every seed, all wanted at once."""

from __future__ import annotations

from collections.abc import Sequence

from objectives.contract import Cell, Outcome
from study.protocols.outcomes import grid_cells, not_final
from study.spec import StudySpec


def wanted(spec: StudySpec, outcomes: Sequence[Outcome]) -> list[Cell]:
    return not_final(grid_cells(spec, spec.frozen_layers, spec.learning_rates), outcomes)


def explain(spec: StudySpec, outcomes: Sequence[Outcome]) -> str:
    total = len(grid_cells(spec, spec.frozen_layers, spec.learning_rates))
    return f"grid: {total - len(wanted(spec, outcomes))} of {total} cells final"
