"""Adds WAITING trials for the cells a protocol wants: each cell once, whoever plans."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from sqlalchemy import Connection, delete, select, update

from objectives.contract import Cell, Outcome, StorageError
from storage import counting, reading, rows
from storage.parameters import GRID_ID, SEARCH_SPACE, Grid, cell_of
from storage.schema import PARAMETERS, SYSTEM_ATTRIBUTES, TRIALS

if TYPE_CHECKING:
    from storage.studies import StoredStudy

Wanted = Callable[[list[Outcome]], Sequence[Cell]]


def plan(study: StoredStudy, wanted: Wanted, grid: Grid, *, retry_failed: bool) -> int:
    """How many trials were added.

    The caller holds the study's planning lock, and still nothing depends on it: if anybody else plans a cell
    between reading and writing, it all begins again.
    """
    while True:
        added = _plan_once(study, wanted, grid, retry_failed=retry_failed)
        if added is not None:
            return added


def _plan_once(study: StoredStudy, wanted: Wanted, grid: Grid, *, retry_failed: bool) -> int | None:
    most = study.terms.max_retries
    with study.database.read() as connection:
        before = counting.watermark(connection, study.study_id)
        known = reading.newest_by_cell(reading.cell_trials(connection, study.study_id))
    again = {
        cell: trial
        for cell, trial in known.items()
        if trial.state == "FAIL" and (retry_failed or not trial.final)
    }
    spent = {cell: trial for cell, trial in again.items() if _spent(trial, most) and not retry_failed}
    again = {cell: trial for cell, trial in again.items() if cell not in spent}
    outcomes = [_outcome(trial, cell in again, cell in spent) for cell, trial in known.items()]
    new = [cell for cell in dict.fromkeys(wanted(outcomes)) if cell not in known]
    _check_new(study, new)
    trials = [_new_trial(cell, grid) for cell in new]
    if not (trials or again or spent):
        return 0
    with study.database.write() as connection:
        rows.lock_study(connection, study.study_id, study.name)
        late = _late(connection, study, before, known)
        if late is None:
            return None
        for trial in spent.values():
            rows.put_attributes(connection, SYSTEM_ATTRIBUTES, trial.trial_id, {rows.FINAL: True})
        left = [trial for cell, trial in again.items() if cell not in late]
        for trial in left:
            # Asked for anew, a failed cell gets all of its retries back.
            history = [] if trial.final else [*trial.history, trial.number]
            free = 0 if trial.final else trial.free
            rows.add_successor(connection, study.study_id, trial.trial_id, history, free)
        if trials:
            rows.insert_waiting(connection, study.study_id, trials)
    study.planned.update(new)
    return len(left) + len(trials)


def _late(
    connection: Connection, study: StoredStudy, before: tuple[int, int], known: Collection[Cell]
) -> set[Cell] | None:
    """The cells of trials that were added since `before`; None where one of them was not known then.

    Trials that fail get successors at any time, and at any rate: a plan that began again for each of them
    would never end.
    """
    count, newest = counting.watermark(connection, study.study_id)
    if (count, newest) == before:
        return set()
    added = reading.cell_trials(connection, study.study_id, after=before[1])
    if count != before[0] + len(added) or any(trial.cell not in known for trial in added):
        return None
    return {trial.cell for trial in added}


def _check_new(study: StoredStudy, cells: Iterable[Cell]) -> None:
    """Refuse a cell that would be planned again and again: the database does not give it back as it was."""
    for cell in cells:
        if cell_of({name: float(value) for name, value in cell.parameters().items()}) != cell:
            raise StorageError(f"{study.name}: the database cannot keep the cell {cell} exactly")
        if cell in study.planned:
            with study.database.read() as connection:
                rows.lock_study(connection, study.study_id, study.name)
            raise StorageError(
                f"{study.name}: the cell {cell} was planned before, but the database does not have it: "
                "somebody has removed its trial"
            )


def widen(connection: Connection, study_id: int, grid: Grid) -> None:
    """Give the trials that are there the ranges and marks of a wider grid."""
    own = select(TRIALS.c.trial_id).where(TRIALS.c.study_id == study_id)
    table = PARAMETERS
    for name, (_, text) in grid.distributions.items():
        narrow = (table.c.param_name == name, table.c.trial_id.in_(own), table.c.distribution_json != text)
        connection.execute(update(table).where(*narrow).values(distribution_json=text))
    marks = SYSTEM_ATTRIBUTES
    connection.execute(
        delete(marks).where(marks.c.trial_id.in_(own), marks.c.key.in_([GRID_ID, SEARCH_SPACE]))
    )
    marked = reading.newest_by_cell(reading.cell_trials(connection, study_id))
    rows.insert_attributes(
        connection,
        SYSTEM_ATTRIBUTES,
        [(trial.trial_id, grid.marks(cell)) for cell, trial in marked.items() if cell in grid],
    )


def _spent(trial: reading.CellTrial, max_retries: int) -> bool:
    return len(trial.history) - trial.free + 1 > max_retries


def _outcome(trial: reading.CellTrial, again: bool, spent: bool) -> Outcome:
    if again or spent:
        return Outcome(cell=trial.cell, state="WAITING" if again else "FAIL")
    return reading.outcome(trial)


def _new_trial(cell: Cell, grid: Grid) -> rows.NewTrial:
    parameters = []
    for name, value in sorted(cell.parameters().items()):
        distribution, text = grid.distributions[name]
        parameters.append((name, distribution.to_internal_repr(value), text))
    return rows.NewTrial(parameters, grid.marks(cell))
