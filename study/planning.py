"""From a spec to WAITING trials: asks the study's protocol what it wants and has the storage add it."""

from __future__ import annotations

from collections.abc import Collection
from itertools import product
from typing import TYPE_CHECKING

from objectives.contract import Cell, Outcome
from study.spec import StudySpec

if TYPE_CHECKING:
    from storage.studies import StoredStudy


def search_space(spec: StudySpec) -> dict[str, list[int | float | None]]:
    """The study's grid as Optuna parameters; `train_size` is one only where the spec names sizes."""
    space: dict[str, list[int | float | None]] = {
        "frozen_layers": list(spec.frozen_layers),
        "learning_rate": list(spec.learning_rates),
        "seed": list(spec.seeds),
    }
    return space if spec.train_sizes == (None,) else {**space, "train_size": [*spec.train_sizes]}


def plan_study(
    study: StoredStudy,
    spec: StudySpec,
    *,
    max_retries: int,
    retry_failed: bool = False,
    cells: Collection[Cell] | None = None,
) -> int:
    """Add what the protocol wants now; the number of trials added.

    Where only `cells` can be answered, the protocol sees the rest of the grid as failed for good.
    """
    from study import protocols

    wanted = protocols.get(spec.protocol)
    closed = (
        [] if cells is None else [Outcome(cell, "FAIL") for cell in every_cell(spec) if cell not in cells]
    )
    return study.plan(
        lambda outcomes: wanted(spec, [*outcomes, *closed]),
        space=search_space(spec),
        max_retries=max_retries,
        retry_failed=retry_failed,
    )


def every_cell(spec: StudySpec) -> list[Cell]:
    """The whole grid, whatever the protocol wants of it."""
    return [
        Cell(*place)
        for place in product(spec.frozen_layers, spec.learning_rates, spec.seeds, spec.train_sizes)
    ]
