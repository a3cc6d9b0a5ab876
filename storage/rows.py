"""Writes rows of Optuna's tables the way Optuna would, many at once; callers own the transaction.

Locks are taken in one order everywhere: study, trial, then what hangs on the trial.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from optuna.trial import TrialState
from sqlalchemy import Table, delete, func, insert, select, update
from sqlalchemy.engine import Connection, Row

from objectives.contract import StorageError, printable
from storage.parameters import GRID_ID, SEARCH_SPACE
from storage.schema import HEARTBEATS, PARAMETERS, STUDIES, SYSTEM_ATTRIBUTES, TRIALS, USER_ATTRIBUTES

CLAIM = "elsa:claim"
"""System attribute: the token of the claim that may write to this trial."""
FINAL = "elsa:final"
"""System attribute of a FAIL that will not be retried."""
FREE = "elsa:free"
"""System attribute: how many of the trials before this one do not count against its cell's retries."""
FAILED_TRIAL = "failed_trial"
RETRY_HISTORY = "retry_history"
"""Optuna's own names for the first trial of a chain of retries, and for all before this one."""

CHUNK = 1000
FEW = 50
"""Rows that plain statements insert as fast."""
LONGEST_REASON = 4000


@dataclass(frozen=True)
class NewTrial:
    parameters: Sequence[tuple[str, float, str]]
    """Name, Optuna's internal value, distribution as JSON."""
    system_attributes: Mapping[str, Any]


def utc_now() -> datetime:
    """Naive UTC, as Optuna stores it."""
    return datetime.now(UTC).replace(tzinfo=None)


def lock_study(connection: Connection, study_id: int, name: str) -> None:
    """Optuna takes the same lock to number its trials. Refuses a study that was deleted meanwhile.

    The name too: SQLite gives the id of a deleted study to the next one.
    """
    studies = select(STUDIES.c.study_name).where(STUDIES.c.study_id == study_id)
    check_name(connection.scalar(studies.with_for_update()), name)


def check_name(found: str | None, name: str) -> None:
    if found != name:
        raise StorageError(
            f"the study {name!r} is not in the database any more, somebody has deleted it: "
            "launch it again to begin anew"
        )


def lock_trial(connection: Connection, trial_id: int) -> Row[Any] | None:
    """State and number, which nobody else changes until the transaction ends.

    None where it was deleted, or where somebody else has it locked at this moment: nobody may wait for a
    worker with the study's lock in hand.
    """
    return connection.execute(
        select(TRIALS.c.state, TRIALS.c.number)
        .where(TRIALS.c.trial_id == trial_id)
        .with_for_update(skip_locked=True)
    ).one_or_none()


def insert_waiting(connection: Connection, study_id: int, new: Sequence[NewTrial]) -> None:
    """WAITING trials that already carry parameters; the caller holds the study's lock."""
    first = connection.scalar(select(func.count()).select_from(TRIALS).where(TRIALS.c.study_id == study_id))
    assert first is not None
    rows = [
        {"study_id": study_id, "number": first + offset, "state": TrialState.WAITING}
        for offset in range(len(new))
    ]
    insert_many(connection, TRIALS, rows)
    found = select(TRIALS.c.number, TRIALS.c.trial_id).where(
        TRIALS.c.study_id == study_id, TRIALS.c.number >= first
    )
    ids = {row.number: row.trial_id for row in connection.execute(found)}
    parameters = [
        {
            "trial_id": ids[first + offset],
            "param_name": name,
            "param_value": value,
            "distribution_json": distribution,
        }
        for offset, trial in enumerate(new)
        for name, value, distribution in trial.parameters
    ]
    insert_many(connection, PARAMETERS, parameters)
    attributes = [(ids[first + offset], trial.system_attributes) for offset, trial in enumerate(new)]
    insert_attributes(connection, SYSTEM_ATTRIBUTES, attributes)


def insert_attributes(
    connection: Connection, table: Table, attributes: Sequence[tuple[int, Mapping[str, Any]]]
) -> None:
    """Of many trials, where none of them is yet."""
    texts: dict[int, str] = {}
    rows = []
    for trial_id, own in attributes:
        for key, value in own.items():
            # The search space is one object, shared by all: its text is made once.
            if id(value) not in texts:
                texts[id(value)] = json.dumps(value)
            rows.append({"trial_id": trial_id, "key": key, "value_json": texts[id(value)]})
    insert_many(connection, table, rows)


def insert_many(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    if len(rows) > FEW and connection.dialect.driver == "psycopg":
        _copy(connection, table, rows)
        return
    for start in range(0, len(rows), CHUNK):
        chunk = list(rows[start : start + CHUNK])
        # A batch of one costs more than a plain statement.
        connection.execute(insert(table).inline(), chunk if len(chunk) > 1 else chunk[0])


def _copy(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """PostgreSQL parses every row of a batch of inserts anew; this takes a tenth of the time."""
    names = list(rows[0])
    as_stored = [
        table.c[name].type.dialect_impl(connection.dialect).bind_processor(connection.dialect)
        for name in names
    ]
    driver = connection.connection.driver_connection
    assert driver is not None
    with driver.cursor() as cursor, cursor.copy(f"COPY {table.name} ({', '.join(names)}) FROM STDIN") as copy:
        for row in rows:
            values = zip(as_stored, row.values(), strict=True)
            copy.write_row([value if change is None else change(value) for change, value in values])


def put_attributes(
    connection: Connection, table: Table, trial_id: int, attributes: Mapping[str, Any]
) -> None:
    """Set them, whatever was there before."""
    if attributes:
        drop_attributes(connection, table, trial_id, attributes)
        add_attributes(connection, table, trial_id, attributes)


def add_attributes(
    connection: Connection, table: Table, trial_id: int, attributes: Mapping[str, Any]
) -> None:
    """Set them where none of them is yet."""
    rows = [
        {"trial_id": trial_id, "key": key, "value_json": json.dumps(value)}
        for key, value in attributes.items()
    ]
    insert_many(connection, table, rows)


def drop_attributes(connection: Connection, table: Table, trial_id: int, keys: Iterable[str]) -> None:
    connection.execute(delete(table).where(table.c.trial_id == trial_id, table.c.key.in_(list(keys))))


def system_attributes(connection: Connection, trial_id: int) -> dict[str, Any]:
    rows = connection.execute(
        select(SYSTEM_ATTRIBUTES.c.key, SYSTEM_ATTRIBUTES.c.value_json).where(
            SYSTEM_ATTRIBUTES.c.trial_id == trial_id
        )
    )
    return {row.key: json.loads(row.value_json) for row in rows}


def parameters(connection: Connection, trial_id: int) -> list[tuple[str, float, str]]:
    rows = connection.execute(
        select(PARAMETERS.c.param_name, PARAMETERS.c.param_value, PARAMETERS.c.distribution_json)
        .where(PARAMETERS.c.trial_id == trial_id)
        .order_by(PARAMETERS.c.param_id)
    )
    return [(row.param_name, row.param_value, row.distribution_json) for row in rows]


def set_state(connection: Connection, trial_id: int, state: TrialState, **columns: Any) -> None:
    if state.is_finished():
        columns["datetime_complete"] = utc_now()
    connection.execute(update(TRIALS).where(TRIALS.c.trial_id == trial_id).values(state=state, **columns))
    connection.execute(delete(HEARTBEATS).where(HEARTBEATS.c.trial_id == trial_id))


def shortened(reason: str) -> str:
    return printable(reason)[:LONGEST_REASON]


def reason_of(connection: Connection, trial_id: int) -> str | None:
    table = USER_ATTRIBUTES
    text = connection.scalar(
        select(table.c.value_json).where(table.c.trial_id == trial_id, table.c.key == "reason")
    )
    return None if text is None else json.loads(text)


def fail_and_retry(
    connection: Connection,
    study_id: int,
    trial_id: int,
    number: int,
    reason: str,
    *,
    retry: bool,
    most: int,
    free: bool = False,
) -> bool:
    """RUNNING -> FAIL with its reason, and its cell WAITING again unless `most` retries are spent.

    A failure that is `free` spends none. One transaction, so that no crash can lose the successor. The caller
    holds both locks.
    """
    put_attributes(connection, USER_ATTRIBUTES, trial_id, {"reason": shortened(reason)})
    set_state(connection, trial_id, TrialState.FAIL)
    attributes = system_attributes(connection, trial_id)
    history = [*attributes.get(RETRY_HISTORY, []), number]
    uncounted = attributes.get(FREE, 0) + free
    if not retry or len(history) - uncounted > most:
        put_attributes(connection, SYSTEM_ATTRIBUTES, trial_id, {FINAL: True})
        return False
    add_successor(connection, study_id, trial_id, history, uncounted)
    return True


def add_successor(
    connection: Connection, study_id: int, trial_id: int, history: Sequence[int], free: int = 0
) -> None:
    """Another trial of the same cell, which takes over the grid marks: a plain GridSampler
    counts every marked and finished trial as a cell that is done."""
    attributes = system_attributes(connection, trial_id)
    marks = {key: attributes[key] for key in (GRID_ID, SEARCH_SPACE) if key in attributes}
    chain: dict[str, Any] = {FAILED_TRIAL: history[0], RETRY_HISTORY: list(history)} if history else {}
    chain |= {FREE: free} if free else {}
    drop_attributes(connection, SYSTEM_ATTRIBUTES, trial_id, [*marks, FINAL])
    successor = NewTrial(parameters(connection, trial_id), {**marks, **chain})
    insert_waiting(connection, study_id, [successor])
