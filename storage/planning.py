"""Adds WAITING trials for the cells a protocol wants: each cell once, whoever plans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sqlalchemy import Connection, select, update

from objectives.contract import Cell, Outcome
from storage import counting, reading, rows
from storage.grid import Grid
from storage.schema import PARAMETERS, SYSTEM_ATTRIBUTES, TRIALS

if TYPE_CHECKING:
    from storage.studies import StoredStudy

Wanted = Callable[[list[Outcome]], Sequence[Cell]]


def plan(study: StoredStudy, wanted: Wanted, grid: Grid, *, max_retries: int, retry_failed: bool) -> int:
    """How many trials were added.

    The caller holds the study's planning lock, and still nothing depends on it: if anybody adds a trial
    between reading and writing, it all begins again.
    """
    while True:
        added = _plan_once(study, wanted, grid, max_retries=max_retries, retry_failed=retry_failed)
        if added is not None:
            return added


def _plan_once(
    study: StoredStudy, wanted: Wanted, grid: Grid, *, max_retries: int, retry_failed: bool
) -> int | None:
    with study.database.read() as connection:
        before = counting.watermark(connection, study.study_id)
        known = reading.newest_by_cell(reading.cell_trials(connection, study.study_id))
    again = {
        cell: trial
        for cell, trial in known.items()
        if trial.state == "FAIL" and (retry_failed or not trial.final)
    }
    spent = {cell: trial for cell, trial in again.items() if _spent(trial, max_retries) and not retry_failed}
    again = {cell: trial for cell, trial in again.items() if cell not in spent}
    outcomes = [_outcome(trial, cell in again, cell in spent) for cell, trial in known.items()]
    new = [cell for cell in dict.fromkeys(wanted(outcomes)) if cell not in known]
    trials = [_new_trial(cell, grid) for cell in new]
    if not (trials or again or spent):
        return 0
    with study.database.write() as connection:
        rows.lock_study(connection, study.study_id, study.name)
        if counting.watermark(connection, study.study_id) != before:
            return None
        for trial in spent.values():
            rows.put_attributes(connection, SYSTEM_ATTRIBUTES, trial.trial_id, {rows.FINAL: True})
        for trial in again.values():
            # Asked for anew, a failed cell gets all of its retries back.
            history = [] if trial.final else [*trial.history, trial.number]
            rows.add_successor(connection, study.study_id, trial.trial_id, history)
        if trials:
            rows.insert_waiting(connection, study.study_id, trials)
    return len(again) + len(trials)


def widen(connection: Connection, study_id: int, grid: Grid) -> None:
    """Give the trials that are there the ranges and marks of a wider grid."""
    own = select(TRIALS.c.trial_id).where(TRIALS.c.study_id == study_id)
    for name, (_, text) in grid.distributions.items():
        of_name = (PARAMETERS.c.param_name == name, PARAMETERS.c.trial_id.in_(own))
        connection.execute(update(PARAMETERS).where(*of_name).values(distribution_json=text))
    for trial in reading.cell_trials(connection, study_id):
        if trial.cell in grid:
            rows.put_attributes(connection, SYSTEM_ATTRIBUTES, trial.trial_id, grid.marks(trial.cell))


def _spent(trial: reading.CellTrial, max_retries: int) -> bool:
    return len(trial.history) + 1 > max_retries


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
