"""A trial in the hands of one worker: it may report, finish, fail or release it until it loses its lease."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

from optuna.storages._rdb.models import TrialIntermediateValueModel, TrialValueModel
from optuna.trial import TrialState
from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.engine import Connection
from sqlalchemy.sql.selectable import ScalarSelect

from objectives.contract import Cell, StorageError, TrialRecord
from storage import rows
from storage.attributes import to_attributes, to_system_attributes
from storage.lease import Lease
from storage.outage import is_passing
from storage.parameters import cell_of
from storage.schema import (
    CURVE_VALUES,
    HEARTBEATS,
    PARAMETERS,
    STUDIES,
    SYSTEM_ATTRIBUTES,
    TRIALS,
    USER_ATTRIBUTES,
    VALUES,
)

if TYPE_CHECKING:
    from storage.studies import StoredStudy


def take(connection: Connection, trial_id: int, worker: str, token: str) -> bool:
    """Compare and set: WAITING -> RUNNING for one worker only.

    Heartbeat and claim are one transaction: no worker can die in between and leave a trial RUNNING
    that no reaper looks at.
    """
    taken = connection.execute(
        update(TRIALS)
        .where(TRIALS.c.trial_id == trial_id, TRIALS.c.state == TrialState.WAITING)
        .values(state=TrialState.RUNNING, datetime_start=rows.utc_now())
    )
    if taken.rowcount != 1:
        return False
    connection.execute(insert(HEARTBEATS).values(trial_id=trial_id))
    rows.add_attributes(connection, USER_ATTRIBUTES, trial_id, {"worker": worker})
    rows.add_attributes(connection, SYSTEM_ATTRIBUTES, trial_id, {rows.CLAIM: token})
    return True


def clean(connection: Connection, trial_id: int) -> None:
    """Drop what an earlier holder wrote."""
    rows.drop_attributes(connection, USER_ATTRIBUTES, trial_id, ["worker"])
    rows.drop_attributes(connection, SYSTEM_ATTRIBUTES, trial_id, [rows.CLAIM])
    connection.execute(delete(CURVE_VALUES).where(CURVE_VALUES.c.trial_id == trial_id))
    connection.execute(delete(HEARTBEATS).where(HEARTBEATS.c.trial_id == trial_id))


def system_attribute(key: str) -> ScalarSelect[Any]:
    """As a column of a select from trials."""
    table = SYSTEM_ATTRIBUTES
    own = select(table.c.value_json).where(table.c.trial_id == TRIALS.c.trial_id, table.c.key == key)
    return own.correlate(TRIALS).scalar_subquery()


def lock(connection: Connection, trial_id: int) -> tuple[TrialState | None, str | None]:
    """The trial's state, which stays until the transaction ends, and the token of who may write to it.

    None and None for a trial that was deleted with its study."""
    row = connection.execute(
        select(TRIALS.c.state, system_attribute(rows.CLAIM))
        .where(TRIALS.c.trial_id == trial_id)
        .with_for_update()
    ).one_or_none()
    if row is None:
        return None, None
    return row[0], None if row[1] is None else json.loads(row[1])


class Foreign(Exception):
    """A trial that is no cell of this study: somebody added it by other means."""


class Claim:
    """Made by `StoredStudy.claim`. After finish, fail or release it is over."""

    def __init__(self, study: StoredStudy, trial_id: int, token: str, started: Connection):
        self.study = study
        self.trial_id = trial_id
        self._token = token
        found = started.execute(
            select(TRIALS.c.number, system_attribute(rows.RETRY_HISTORY), STUDIES.c.study_name, PARAMETERS)
            .select_from(TRIALS.join(STUDIES).join(PARAMETERS))
            .where(TRIALS.c.trial_id == trial_id)
        ).all()
        self.number: int = found[0][0] if found else -1
        history = found[0][1] if found else None
        if found:
            # SQLite gives the ids of deleted trials to the next ones, of whatever study.
            rows.check_name(found[0].study_name, study.name)
        cell = cell_of({row.param_name: row.param_value for row in found})
        if cell is None:
            raise Foreign(trial_id)
        self.cell: Cell = cell
        self.attempt = 1 if history is None else 1 + len(json.loads(history))
        """1 for the first trial of a cell."""
        self.failure = None if history is None else self._failure_of(json.loads(history)[-1], started)
        """Why the trial before this one failed."""
        self._unwritten: dict[int, float] = {}
        self._written: dict[int, float] = {}
        self._tried: set[int] = set()
        """Steps that may be in the database, because their answer may have been lost."""
        self._lease = Lease(self._beat, study.terms.heartbeat_seconds, f"lease of trial {self.number}")

    def _failure_of(self, number: int, connection: Connection) -> str | None:
        before = select(TRIALS.c.trial_id).where(
            TRIALS.c.study_id == self.study.study_id, TRIALS.c.number == number
        )
        trial_id = connection.scalar(before)
        return None if trial_id is None else rows.reason_of(connection, trial_id)

    @property
    def token(self) -> str:
        """Unlike that of any other claim."""
        return self._token

    def confirm(self) -> bool:
        """Ask the database whether this trial is still ours; False, too, where it does not answer."""
        try:
            held = self.study.database.retry(self._beat, seconds=1.0)
        except StorageError:
            return False
        self._lease.lost = self._lease.lost or not held
        return held

    def start_lease(self) -> None:
        self.study.database.leases.add(self._lease)
        self._lease.start()

    @property
    def lost(self) -> bool:
        """Somebody declared this trial dead: nothing that it measures will be accepted."""
        return self._lease.lost

    def report(self, index: int, value: float) -> None:
        """One point of the learning curve; while the database is away it is kept for later."""
        self._unwritten[index] = value
        try:
            self.study.database.retry(self._write_curve, seconds=1.0)
        except StorageError as error:
            if error.__cause__ is None or not is_passing(error.__cause__):
                raise

    def finish(self, record: TrialRecord) -> bool:
        """The whole record and COMPLETE, at once. False: the lease was lost, and nothing is written."""
        for index, point in enumerate(record.curve):
            if record.metric in point.metrics:
                self._unwritten[index] = point.metrics[record.metric]
        attributes, packed = to_attributes(record), to_system_attributes(record)
        tries = itertools.count()
        done = self.study.database.retry(
            lambda: self._complete(record.score, attributes, packed, again=next(tries) > 0)
        )
        self._over(lost=not done)
        return done

    def fail(self, reason: str, retry: bool = True, *, free: bool = False) -> bool:
        """FAIL with its reason, and the cell again WAITING while retries are left; `free` spends none."""
        done = self.study.database.retry(lambda: self._fail(reason, retry, free))
        self._over(lost=not done)
        return done

    def release(self) -> bool:
        """Back to WAITING for anybody, as if it had never been claimed."""
        done = self.study.database.retry(self._release)
        self._over(lost=not done)
        return done

    def abandon(self) -> None:
        """Stop the heartbeat and write nothing: for a claim that is lost already."""
        self._over(lost=True)

    def _over(self, lost: bool) -> None:
        self._lease.stop()
        self._lease.lost = self._lease.lost or lost

    def _mine(self, connection: Connection) -> bool:
        return lock(connection, self.trial_id) == (TrialState.RUNNING, self._token)

    def _beat(self) -> bool:
        with self.study.database.write() as connection:
            if not self._mine(connection):
                return False
            connection.execute(
                update(HEARTBEATS)
                .where(HEARTBEATS.c.trial_id == self.trial_id)
                .values(heartbeat=func.current_timestamp())
            )
            return True

    def _write_curve(self) -> None:
        with self.study.database.write() as connection:
            if not self._mine(connection):
                self._lease.lost = True
                return
            points = self._put_curve(connection)
        self._written |= points
        self._unwritten = {}

    def _put_curve(self, connection: Connection) -> dict[int, float]:
        """The points that are new or have changed; which these were."""
        points = {step: value for step, value in self._unwritten.items() if self._written.get(step) != value}
        again = self._tried & set(points)
        self._tried |= set(points)
        if again:
            table = CURVE_VALUES
            connection.execute(
                delete(table).where(table.c.trial_id == self.trial_id, table.c.step.in_(again))
            )
        stored = []
        for step, value in points.items():
            number, kind = TrialIntermediateValueModel.intermediate_value_to_stored_repr(value)
            stored.append(
                {
                    "trial_id": self.trial_id,
                    "step": step,
                    "intermediate_value": number,
                    "intermediate_value_type": kind,
                }
            )
        rows.insert_many(connection, CURVE_VALUES, stored)
        return points

    def _complete(
        self, score: float, attributes: dict[str, object], packed: dict[str, str], *, again: bool
    ) -> bool:
        with self.study.database.write() as connection:
            state, token = lock(connection, self.trial_id)
            if token != self._token or state != TrialState.RUNNING:
                # An earlier try arrived, and only its answer was lost; at the first try it is another's end.
                return again and token == self._token and state == TrialState.COMPLETE
            self._put_curve(connection)
            rows.add_attributes(connection, USER_ATTRIBUTES, self.trial_id, attributes)
            if packed:
                rows.add_attributes(connection, SYSTEM_ATTRIBUTES, self.trial_id, packed)
            value, kind = TrialValueModel.value_to_stored_repr(score)
            connection.execute(
                insert(VALUES).values(trial_id=self.trial_id, objective=0, value=value, value_type=kind)
            )
            rows.set_state(connection, self.trial_id, TrialState.COMPLETE)
        return True

    def _fail(self, reason: str, retry: bool, free: bool) -> bool:
        with self.study.database.write() as connection:
            rows.lock_study(connection, self.study.study_id, self.study.name)
            state, token = lock(connection, self.trial_id)
            if token != self._token or state != TrialState.RUNNING:
                # As in _complete; but a reaper fails it too, in other words.
                failed = token == self._token and state == TrialState.FAIL
                return failed and rows.reason_of(connection, self.trial_id) == rows.shortened(reason)
            rows.fail_and_retry(
                connection,
                self.study.study_id,
                self.trial_id,
                self.number,
                reason,
                retry=retry,
                most=self.study.terms.max_retries,
                free=free,
            )
        return True

    def _release(self) -> bool:
        with self.study.database.write() as connection:
            if not self._mine(connection):
                return False
            clean(connection, self.trial_id)
            rows.set_state(connection, self.trial_id, TrialState.WAITING, datetime_start=None)
        return True
