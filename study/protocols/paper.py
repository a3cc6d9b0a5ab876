"""The paper's protocol (arXiv:1911.03090): a learning-rate search on the full model, then the depths.

Phase two starts when every cell of phase one is final, whoever finds it so; both are read from the
outcomes alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from objectives.contract import Cell, Outcome, UsageError
from study.protocols.outcomes import best_rate, grid_cells, not_final
from study.spec import StudySpec

FULL = 0


def wanted(spec: StudySpec, outcomes: Sequence[Outcome]) -> list[Cell]:
    if FULL not in spec.frozen_layers:
        raise UsageError(
            f"--protocol paper searches its rate on the full model: add 0 to --frozen-layers "
            f"{','.join(map(str, spec.frozen_layers))}"
        )
    search = not_final(_search_cells(spec), outcomes)
    if search:
        return search
    rate = best_rate(spec, _searched(spec, outcomes), FULL)
    # Every full-model run failed for good: there is no rate to go on with.
    return [] if rate is None else not_final(_freezing_cells(spec, rate), outcomes)


def explain(spec: StudySpec, outcomes: Sequence[Outcome]) -> str:
    cells = _search_cells(spec)
    left = not_final(cells, outcomes)
    if left:
        done = len(cells) - len(left)
        return f"paper, phase 1 of 2: learning-rate search at 0 frozen, {done} of {len(cells)} cells final"
    rate = best_rate(spec, _searched(spec, outcomes), FULL)
    if rate is None:
        return (
            f"paper: all {len(cells)} cells of the learning-rate search failed, so phase 2 has no rate; "
            "look at their reasons, then run again with --retry-failed"
        )
    freezing = _freezing_cells(spec, rate)
    done = len(freezing) - len(not_final(freezing, outcomes))
    return f"paper, phase 2 of 2: depths at learning rate {rate:g}, {done} of {len(freezing)} cells final"


def _search_cells(spec: StudySpec) -> list[Cell]:
    return grid_cells(spec, [FULL], spec.learning_rates)


def _freezing_cells(spec: StudySpec, rate: float) -> list[Cell]:
    return grid_cells(spec, [depth for depth in spec.frozen_layers if depth != FULL], [rate])


def _searched(spec: StudySpec, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The search's own outcomes, so that cells from outside the spec can not move its choice."""
    cells = set(_search_cells(spec))
    return [outcome for outcome in outcomes if outcome.cell in cells]
