"""Reading outcomes: which cells are finished, and which learning rate the full model likes best.

Shared by the protocols; it decides nothing about what to run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import product

from objectives.contract import Cell, Outcome
from study.specs.study_spec import StudySpec

CLOSED = "this cell cannot be run here"
"""The reason of a cell that a recorded table has no run of: it fails for good and costs nothing."""


def closed_cells(spec: StudySpec, cells: Collection[Cell]) -> list[Outcome]:
    """The rest of the grid, where only `cells` can be answered."""
    return [Outcome(cell, "FAIL", reason=CLOSED) for cell in spec.every_cell() if cell not in cells]


def grid_cells(
    spec: StudySpec, depths: Iterable[int], rates: Iterable[float], *, seeds: Sequence[int] | None = None
) -> list[Cell]:
    """Every cell of these depths and rates, with all of the spec's sizes and seeds, seeds outermost.

    Seeds come first so that an interrupted study holds one whole grid before it holds a second one.
    """
    return [
        Cell(frozen_layers=depth, learning_rate=rate, seed=seed, train_size=size)
        for seed, size, depth, rate in product(seeds or spec.seeds, spec.train_sizes, depths, rates)
    ]


def final_cells(outcomes: Iterable[Outcome]) -> set[Cell]:
    """Cells that need no further trial: measured, or failed with the retries spent."""
    return {outcome.cell for outcome in outcomes if outcome.state in ("COMPLETE", "FAIL")}


def not_final(cells: Sequence[Cell], outcomes: Iterable[Outcome]) -> list[Cell]:
    final = final_cells(outcomes)
    return [cell for cell in cells if cell not in final]


def selection_value(spec: StudySpec, outcome: Outcome) -> float | None:
    """The quality learning rates are chosen by: the selection split's where the spec has one."""
    score = outcome.score if outcome.selection_score is None else outcome.selection_score
    return None if score is None else spec.quality(score)


def best_rate(spec: StudySpec, outcomes: Iterable[Outcome], depth: int) -> float | None:
    """The rate with the best mean over the complete cells at `depth`; ties go to the smaller rate.

    None where no cell at that depth is complete.
    """
    values: dict[float, list[float]] = {}
    for outcome in outcomes:
        value = selection_value(spec, outcome)
        if outcome.state == "COMPLETE" and outcome.cell.frozen_layers == depth and value is not None:
            values.setdefault(outcome.cell.learning_rate, []).append(value)
    # Sorted before summing: the same outcomes in any order must give the same rate to the last bit.
    means = {rate: sum(sorted(scores)) / len(scores) for rate, scores in values.items()}
    known = [rate for rate in sorted(spec.learning_rates) if rate in means]
    return max(known, key=lambda rate: means[rate]) if known else None
