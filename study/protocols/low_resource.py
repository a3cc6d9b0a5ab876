"""The blog's protocol: every train size at every depth with every replicate, all wanted at once.

It names sizes only; which examples a size means (nested, stratified) is the data code's to draw.
"""

from __future__ import annotations

from collections.abc import Sequence

from objectives.contract import Cell, Outcome
from study.protocols.outcomes import grid_cells, not_final
from study.spec import StudySpec


def wanted(spec: StudySpec, outcomes: Sequence[Outcome]) -> list[Cell]:
    return not_final(grid_cells(spec, spec.frozen_layers, spec.learning_rates), outcomes)


def explain(spec: StudySpec, outcomes: Sequence[Outcome]) -> str:
    left = wanted(spec, outcomes)
    total = len(grid_cells(spec, spec.frozen_layers, spec.learning_rates))
    sizes = {cell.train_size for cell in left}
    open_sizes = f", {len(sizes)} of {len(spec.train_sizes)} train sizes open" if left else ""
    return f"low-resource: {total - len(left)} of {total} cells final{open_sizes}"
