"""Reads a whole study in a handful of plain selects: every trial, or what is known of every cell."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from optuna.storages._rdb.models import TrialValueModel
from optuna.trial import TrialState
from sqlalchemy import Table, select
from sqlalchemy.engine import Connection, Row
from sqlalchemy.sql import ColumnElement

from objectives.contract import Cell, Outcome, State, TrialRecord, printable
from storage import rows
from storage.attributes import PREDICTIONS, from_attributes, joined_predictions, loaded
from storage.parameters import cell_of
from storage.schema import PARAMETERS, SYSTEM_ATTRIBUTES, TRIALS, USER_ATTRIBUTES, VALUES

STATES: dict[TrialState, State] = {
    TrialState.WAITING: "WAITING",
    TrialState.RUNNING: "RUNNING",
    TrialState.COMPLETE: "COMPLETE",
    TrialState.FAIL: "FAIL",
    TrialState.PRUNED: "FAIL",
}


@dataclass(frozen=True)
class Counts:
    """Cells by state; `failed` are those whose retries are spent."""

    waiting: int
    running: int
    complete: int
    failed: int

    @property
    def open(self) -> int:
        return self.waiting + self.running


@dataclass(frozen=True, kw_only=True)
class StoredTrial:
    number: int
    state: State
    cell: Cell
    record: TrialRecord | None
    """None unless COMPLETE."""
    reason: str | None
    worker: str | None
    attempt: int
    """1 for the first trial of a cell."""
    started: datetime | None
    ended: datetime | None


@dataclass(frozen=True)
class CellTrial:
    """As much of a trial as planning needs."""

    trial_id: int
    number: int
    state: State
    cell: Cell
    score: float | None
    selection_score: float | None
    score_error: float | None
    reason: str | None
    final: bool
    history: tuple[int, ...]
    free: int
    """How many of `history` spent no retry."""


def cell_trials(connection: Connection, study_id: int, *, after: int = 0) -> list[CellTrial]:
    """All of them, or those with a higher id than `after`."""
    newer = TRIALS.c.trial_id > after
    trials = _trials(connection, study_id, newer)
    parameters = _parameters(connection, study_id, newer)
    values = _values(connection, study_id, newer)
    keys = ["selection_score", "score_error", "reason"]
    scores = _attributes(connection, USER_ATTRIBUTES, study_id, keys, newer)
    system = _attributes(
        connection, SYSTEM_ATTRIBUTES, study_id, [rows.FINAL, rows.RETRY_HISTORY, rows.FREE], newer
    )
    found = []
    for row in trials:
        cell = cell_of(parameters[row.trial_id])
        if cell is None:
            continue
        own = system[row.trial_id]
        found.append(
            CellTrial(
                trial_id=row.trial_id,
                number=row.number,
                state=STATES[row.state],
                cell=cell,
                score=values.get(row.trial_id),
                selection_score=scores[row.trial_id].get("selection_score"),
                score_error=scores[row.trial_id].get("score_error"),
                reason=_printable(scores[row.trial_id].get("reason")),
                final=bool(own.get(rows.FINAL)),
                history=tuple(own.get(rows.RETRY_HISTORY, ())),
                free=int(own.get(rows.FREE, 0)),
            )
        )
    return found


def newest_by_cell(trials: Iterable[CellTrial]) -> dict[Cell, CellTrial]:
    """The trial that speaks for its cell: complete before live before failed, of failures the newest."""
    rank = {"COMPLETE": 3, "RUNNING": 2, "WAITING": 1, "FAIL": 0}
    found: dict[Cell, CellTrial] = {}
    for trial in trials:
        other = found.get(trial.cell)
        if other is None or rank[trial.state] > rank[other.state] or trial.state == other.state == "FAIL":
            found[trial.cell] = trial
    return found


def outcome(trial: CellTrial) -> Outcome:
    """A failure that nobody has given up on is WAITING: the next plan adds its successor."""
    state: State = "WAITING" if trial.state == "FAIL" and not trial.final else trial.state
    complete = state == "COMPLETE"
    return Outcome(
        cell=trial.cell,
        state=state,
        score=trial.score if complete else None,
        selection_score=trial.selection_score if complete else None,
        score_error=trial.score_error if complete else None,
        reason=trial.reason if state == "FAIL" else None,
    )


def stored_trials(connection: Connection, study_id: int) -> list[StoredTrial]:
    trials = _trials(connection, study_id)
    parameters = _parameters(connection, study_id)
    values = _values(connection, study_id)
    user = _attributes(connection, USER_ATTRIBUTES, study_id)
    system = _attributes(connection, SYSTEM_ATTRIBUTES, study_id, [rows.RETRY_HISTORY])
    found = []
    for row in trials:
        cell = cell_of(parameters[row.trial_id])
        if cell is None:
            continue
        attributes = user[row.trial_id]
        score = values.get(row.trial_id)
        complete = row.state == TrialState.COMPLETE and score is not None
        found.append(
            StoredTrial(
                number=row.number,
                state=STATES[row.state],
                cell=cell,
                record=from_attributes(attributes, score) if complete and score is not None else None,
                reason=_printable(attributes.get("reason")),
                worker=_printable(attributes.get("worker")),
                attempt=len(system[row.trial_id].get(rows.RETRY_HISTORY, ())) + 1,
                started=_aware(row.datetime_start),
                ended=_aware(row.datetime_complete),
            )
        )
    return found


def packed_predictions(connection: Connection, study_id: int) -> dict[int, str]:
    """By the trial's number; read by nobody but the analysis, for they are many."""
    table = SYSTEM_ATTRIBUTES
    query = (
        select(TRIALS.c.number, table.c.key, table.c.value_json)
        .join(TRIALS, TRIALS.c.trial_id == table.c.trial_id)
        .where(TRIALS.c.study_id == study_id, table.c.key.startswith(PREDICTIONS, autoescape=True))
    )
    pieces: defaultdict[int, dict[str, str]] = defaultdict(dict)
    for row in connection.execute(query):
        pieces[row.number][row.key] = loaded(row.value_json)
    return {number: text for number, found in pieces.items() if (text := joined_predictions(found))}


def _trials(connection: Connection, study_id: int, *conditions: ColumnElement[bool]) -> Sequence[Row[Any]]:
    """To be read before what hangs on them: each select sees what is committed by then, so that a trial that
    reads as ended has all that its end wrote."""
    return connection.execute(
        select(TRIALS).where(TRIALS.c.study_id == study_id, *conditions).order_by(TRIALS.c.trial_id)
    ).all()


def _of_study(
    connection: Connection, table: Table, study_id: int, *conditions: ColumnElement[bool]
) -> Sequence[Row[Any]]:
    return connection.execute(
        select(table)
        .join(TRIALS, TRIALS.c.trial_id == table.c.trial_id)
        .where(TRIALS.c.study_id == study_id, *conditions)
    ).all()


def _parameters(
    connection: Connection, study_id: int, *conditions: ColumnElement[bool]
) -> defaultdict[int, dict[str, float]]:
    found: defaultdict[int, dict[str, float]] = defaultdict(dict)
    for row in _of_study(connection, PARAMETERS, study_id, *conditions):
        found[row.trial_id][row.param_name] = row.param_value
    return found


def _values(connection: Connection, study_id: int, *conditions: ColumnElement[bool]) -> dict[int, float]:
    return {
        row.trial_id: TrialValueModel.stored_repr_to_value(row.value, row.value_type)
        for row in _of_study(connection, VALUES, study_id, *conditions)
    }


def _attributes(
    connection: Connection,
    table: Table,
    study_id: int,
    keys: Sequence[str] | None = None,
    *conditions: ColumnElement[bool],
) -> defaultdict[int, dict[str, Any]]:
    named = [] if keys is None else [table.c.key.in_(keys)]
    found: defaultdict[int, dict[str, Any]] = defaultdict(dict)
    for row in _of_study(connection, table, study_id, *named, *conditions):
        found[row.trial_id][row.key] = loaded(row.value_json)
    return found


def _printable(text: str | None) -> str | None:
    return None if text is None else printable(str(text))


def _aware(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.replace(tzinfo=UTC)
