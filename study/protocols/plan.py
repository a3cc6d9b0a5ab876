"""From a spec to WAITING trials: asks the study's protocol what it wants and has the storage add it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from objectives.contract import Cell, Outcome
from study import protocols
from study.protocols.outcomes import closed_cells, not_final
from study.specs.study_spec import StudySpec

if TYPE_CHECKING:
    from storage.studies import StoredStudy


def plan_study(
    study: StoredStudy,
    spec: StudySpec,
    *,
    retry_failed: bool = False,
    cells: Collection[Cell] | None = None,
) -> int:
    """Add what the protocol wants now; the number of trials added.

    Where only `cells` can be answered, the protocol sees the rest of the grid as failed for good.
    """
    protocol = protocols.get(spec.protocol)
    closed = [] if cells is None else closed_cells(spec, cells)

    def wanted(outcomes: list[Outcome]) -> list[Cell]:
        own = protocol.wanted(spec, [*outcomes, *closed])
        return [*own, *not_final(spec.extra_cells, outcomes)]

    return study.plan(wanted, space=spec.space(), retry_failed=retry_failed)
