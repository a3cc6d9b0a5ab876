"""`launch --settle`: the cells that would settle a study's answer, and no others, added to its spec."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from objectives.contract import Cell, UsageError
from study.cli.command import note
from study.cli.wording import counted
from study.launching.request import StudyRequest
from study.specs.study_spec import StudySpec

if TYPE_CHECKING:
    from storage.database import Database
    from study.analysis.analyse import Analysis
    from study.analysis.planner import SettlePlan
    from study.analysis.points import OperatingPoint
    from study.trials.sources import Reading


@dataclass(frozen=True)
class Settling:
    """What is added to one study, and why, in words."""

    before: StudySpec
    cells: tuple[Cell, ...]
    told: tuple[str, ...]

    @property
    def spec(self) -> StudySpec:
        return self.before.with_extra(self.cells)


def settling(database: Database, request: StudyRequest) -> Settling:
    """What would settle the answers of a study that has been run."""
    from study.reporting.content import analyse_studies
    from study.trials.sources import read_studies

    if request.name not in database.study_names():
        raise UsageError(f"--settle adds to a study that has been run: there is no {request.name} yet")
    reading = read_studies([database.study(request.name)])
    spec = reading.spec(request.name)
    if not (reading.table["state"] == "COMPLETE").any():
        raise UsageError(f"--settle: {request.name} has no complete trial yet")
    return _cells(reading, analyse_studies(reading), spec, request)


def tell(found: Settling) -> None:
    for line in found.told:
        note(line)


def tell_all(storage: str, requests: Sequence[StudyRequest]) -> None:
    """What would be added, without adding it."""
    from storage.database import Database

    with Database.open(storage) as database:
        for request in requests:
            found = settling(database, request)
            for line in (*found.told, *(f"  {cell}" for cell in found.cells)):
                print(line)


def _cells(reading: Reading, analysis: Analysis, spec: StudySpec, request: StudyRequest) -> Settling:
    used = {outcome.cell.seed for outcome in reading.outcomes[request.name]} | set(spec.every_seed)
    cells: list[Cell] = []
    told = []
    threshold = min(analysis.thresholds)
    for point in (p for p in analysis.points if p.threshold == threshold):
        plan = analysis.settle_plan(point)
        where = f"{request.name}" + ("" if point.train_size is None else f" at {point.train_size:,} examples")
        new = [] if plan is None else _of_plan(plan, point, analysis, max(used) + 1)
        new = [cell for cell in new if request.cells is None or cell in request.cells]
        cells += new
        told.append(f"{where}: {_said(plan, point, new)}")
    return Settling(spec, tuple(cells), tuple(told))


def _of_plan(plan: SettlePlan, point: OperatingPoint, analysis: Analysis, first: int) -> list[Cell]:
    curve = next(
        c
        for c in analysis.curves
        if (c.study, c.train_size, c.metric) == (point.study, point.train_size, point.metric)
    )
    full = curve.at(0)
    if full is None or full.learning_rate is None or not plan.worthwhile or plan.seeds is None:
        return []
    if plan.unmeasured:
        # With the full model's seeds, so that runs can be compared pair by pair.
        return [
            Cell(depth, full.learning_rate, seed, point.train_size)
            for depth in plan.unmeasured
            for seed in full.seeds[: plan.seeds]
        ]
    depths = [found for n in plan.frozen_layers if (found := curve.at(n)) is not None]
    return [
        Cell(depth.frozen_layers, depth.learning_rate, seed, point.train_size)
        for seed in range(first, first + plan.seeds)
        for depth in (full, *depths)
        if depth.learning_rate is not None
    ]


def _said(plan: SettlePlan | None, point: OperatingPoint, cells: Sequence[Cell]) -> str:
    from study.reporting.sureness import sentence_of

    if point.status != "ok":
        return f"no answer, so nothing to settle: {point.reason}"
    if plan is None:
        return "settled already"
    return f"{counted(len(cells), 'cell') if cells else 'nothing'} added: {sentence_of(plan, point)}"
