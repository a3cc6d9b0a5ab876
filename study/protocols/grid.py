"""The plain grid: every depth at every learning rate with every seed, all wanted at once."""

from __future__ import annotations

from collections.abc import Sequence

from objectives.contract import Cell, Outcome
from study.protocols.base import Defaults, Protocol, Subject
from study.protocols.outcomes import grid_cells, not_final
from study.specs.study_spec import StudySpec


class Grid(Protocol):
    name = "grid"
    summary = "every depth at every rate with every seed"
    extendable = ("frozen_layers", "learning_rates", "seeds")

    def defaults(self, subject: Subject) -> Defaults:
        return Defaults(frozen_layers=subject.upper_half)

    def wanted(self, spec: StudySpec, outcomes: Sequence[Outcome]) -> list[Cell]:
        return not_final(self._cells(spec), outcomes)

    def explain(self, spec: StudySpec, outcomes: Sequence[Outcome]) -> str:
        cells = self._cells(spec)
        if spec.recorded:
            # A trial table need not fill its grid; what it lacks is never planned.
            known = {outcome.cell for outcome in outcomes}
            cells = [cell for cell in cells if cell in known]
        left = not_final(cells, outcomes)
        sizes = {cell.train_size for cell in left}
        unfinished = f", {len(sizes)} of {len(spec.train_sizes)} train sizes unfinished"
        told = unfinished if left and len(spec.train_sizes) > 1 else ""
        return f"{self.name}: {len(cells) - len(left)} of {len(cells)} cells finished{told}"

    def _cells(self, spec: StudySpec) -> list[Cell]:
        return grid_cells(spec, spec.frozen_layers, spec.learning_rates)
