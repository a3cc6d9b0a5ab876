"""A trial in the hands of one worker: it may report, finish, fail or release it until it loses its lease."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from optuna.storages._rdb.models import TrialIntermediateValueModel, TrialValueModel
from optuna.trial import TrialState
from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.engine import Connection

from objectives.contract import Cell, StorageError, TrialRecord
from storage import rows
from storage.grid import cell_of
from storage.lease import Lease
from storage.outage import is_passing
from storage.records import to_attributes
from storage.schema import CURVE_VALUES, HEARTBEATS, SYSTEM_ATTRIBUTES, TRIALS, USER_ATTRIBUTES, VALUES

if TYPE_CHECKING:
    from storage.studies import StoredStudy


def take(connection: Connection, trial_id: int, worker: str, token: str) -> bool:
    """Compare and set: WAITING -> RUNNING for one worker only.

    Heartbeat and claim are one transaction, so a worker that dies in between leaves nothing behind
    that no reaper would ever look at.
    """
    taken = connection.execute(
        update(TRIALS)
        .where(TRIALS.c.trial_id == trial_id, TRIALS.c.state == TrialState.WAITING)
        .values(state=TrialState.RUNNING, datetime_start=rows.utc_now())
    )
    if taken.rowcount != 1:
        return False
    connection.execute(delete(HEARTBEATS).where(HEARTBEATS.c.trial_id == trial_id))
    connection.execute(insert(HEARTBEATS).values(trial_id=trial_id))
    rows.put_attributes(connection, USER_ATTRIBUTES, trial_id, {"worker": worker})
    rows.put_attributes(connection, SYSTEM_ATTRIBUTES, trial_id, {rows.CLAIM: token})
    return True


def holder(connection: Connection, trial_id: int) -> str | None:
    """The token of the claim that may write to this trial."""
    text = connection.scalar(
        select(SYSTEM_ATTRIBUTES.c.value_json).where(
            SYSTEM_ATTRIBUTES.c.trial_id == trial_id, SYSTEM_ATTRIBUTES.c.key == rows.CLAIM
        )
    )
    return None if text is None else json.loads(text)


class Claim:
    """Made by `StoredStudy.claim`. After finish, fail or release it is over."""

    def __init__(self, study: StoredStudy, trial_id: int, token: str, max_retries: int, started: Connection):
        self.study = study
        self.trial_id = trial_id
        self.max_retries = max_retries
        self._token = token
        self.number: int = started.execute(
            select(TRIALS.c.number).where(TRIALS.c.trial_id == trial_id)
        ).scalar_one()
        cell = cell_of({name: value for name, value, _ in rows.parameters(started, trial_id)})
        if cell is None:
            raise StorageError(f"trial {self.number} of {study.name} carries no cell: who added it?")
        self.cell: Cell = cell
        history = rows.system_attributes(started, trial_id).get(rows.RETRY_HISTORY, [])
        self.attempt = len(history) + 1
        """1 for the first trial of a cell."""
        self._curve: dict[int, float] = {}
        self._unwritten: dict[int, float] = {}
        self._lease = Lease(self._beat, study.database.heartbeat_seconds, f"lease of trial {self.number}")

    def start_lease(self) -> None:
        self._lease.start()

    @property
    def lost(self) -> bool:
        """Somebody declared this trial dead: nothing that it measures will be accepted."""
        return self._lease.lost

    def report(self, index: int, value: float) -> None:
        """One point of the learning curve; while the database is away it is kept for later."""
        self._curve[index] = self._unwritten[index] = value
        try:
            self.study.database.retry(self._write_curve, seconds=1.0)
        except StorageError as error:
            if error.__cause__ is None or not is_passing(error.__cause__):
                raise

    def finish(self, record: TrialRecord) -> bool:
        """The whole record and COMPLETE, at once. False: the lease was lost, and nothing is written."""
        for index, point in enumerate(record.curve):
            if record.metric in point.metrics:
                self._curve[index] = point.metrics[record.metric]
        attributes = to_attributes(record)
        done = self.study.database.retry(lambda: self._complete(record.score, attributes))
        self._over(lost=not done)
        return done

    def fail(self, reason: str, retry: bool = True) -> bool:
        """FAIL with its reason, and the cell again WAITING while retries are left."""
        done = self.study.database.retry(lambda: self._fail(reason, retry))
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
        state, _ = rows.lock_trial(connection, self.trial_id)
        return state == TrialState.RUNNING and holder(connection, self.trial_id) == self._token

    def _beat(self) -> bool:
        with self.study.database.write() as connection:
            updated = connection.execute(
                update(HEARTBEATS)
                .where(HEARTBEATS.c.trial_id == self.trial_id)
                .values(heartbeat=func.current_timestamp())
            )
            # A reaper deletes the heartbeat; whoever claims the same trial next writes another token.
            return updated.rowcount == 1 and holder(connection, self.trial_id) == self._token

    def _write_curve(self) -> None:
        with self.study.database.write() as connection:
            if not self._mine(connection):
                self._lease.lost = True
                return
            self._put_curve(connection, self._unwritten)
        self._unwritten = {}

    def _put_curve(self, connection: Connection, points: dict[int, float]) -> None:
        if not points:
            return
        connection.execute(
            delete(CURVE_VALUES).where(
                CURVE_VALUES.c.trial_id == self.trial_id, CURVE_VALUES.c.step.in_(list(points))
            )
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

    def _complete(self, score: float, attributes: dict[str, object]) -> bool:
        with self.study.database.write() as connection:
            if not self._mine(connection):
                return self._already(connection, TrialState.COMPLETE)
            self._put_curve(connection, self._curve)
            rows.put_attributes(connection, USER_ATTRIBUTES, self.trial_id, attributes)
            value, kind = TrialValueModel.value_to_stored_repr(score)
            connection.execute(
                insert(VALUES).values(trial_id=self.trial_id, objective=0, value=value, value_type=kind)
            )
            rows.set_state(connection, self.trial_id, TrialState.COMPLETE)
        return True

    def _already(self, connection: Connection, state: TrialState) -> bool:
        """Whether an earlier try of the same write arrived, and only its answer was lost."""
        found, _ = rows.lock_trial(connection, self.trial_id)
        return found == state and holder(connection, self.trial_id) == self._token

    def _fail(self, reason: str, retry: bool) -> bool:
        with self.study.database.write() as connection:
            rows.lock_study(connection, self.study.study_id)
            if not self._mine(connection):
                return False
            rows.fail_and_retry(
                connection,
                self.study.study_id,
                self.trial_id,
                self.number,
                reason,
                retry=retry,
                most=self.max_retries,
            )
        return True

    def _release(self) -> bool:
        with self.study.database.write() as connection:
            if not self._mine(connection):
                return False
            rows.drop_attributes(connection, USER_ATTRIBUTES, self.trial_id, ["worker"])
            rows.drop_attributes(connection, SYSTEM_ATTRIBUTES, self.trial_id, [rows.CLAIM])
            connection.execute(delete(CURVE_VALUES).where(CURVE_VALUES.c.trial_id == self.trial_id))
            rows.set_state(connection, self.trial_id, TrialState.WAITING, datetime_start=None)
        return True
