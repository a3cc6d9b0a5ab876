"""Finds trials whose worker has died, fails them, and puts their cells back."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from optuna.trial import TrialState
from sqlalchemy import func, select

from storage import rows
from storage.schema import HEARTBEATS, TRIALS, USER_ATTRIBUTES

if TYPE_CHECKING:
    from storage.studies import StoredStudy


WATCHED = 1.25
"""Heartbeat intervals: longer than one, so that the living are never taken for dead, whatever the database's
clock does. Who dies has been watched for the whole grace period by then, and is not found any later."""


@dataclass(frozen=True)
class Sighting:
    heartbeat: datetime
    since: float
    """Monotonic time at which this reaper first saw this heartbeat."""


class Reaper:
    """A trial is dead when its heartbeat is older than the grace period by the database's clock, and this
    reaper has itself watched it stand still for more than a heartbeat interval.

    The second half matters after an outage, or when the clock is put forward: every heartbeat is old then,
    and every worker alive. An outage too short to make a live worker's heartbeat look old costs no time.
    """

    def __init__(self, study: StoredStudy):
        self._study = study
        self._sightings: dict[int, Sighting] = {}
        self._looked = float("-inf")
        self._without: dict[int, float] = {}
        """Numbers of running trials without any heartbeat; monotonic time of the first look at each."""
        self._told: set[int] = set()
        self._lock = threading.Lock()

    def reap(self, max_retries: int) -> int:
        with self._lock:
            return sum(self._fail(trial_id, seen, max_retries) for trial_id, seen in self._dead())

    def unwatched(self) -> list[int]:
        with self._lock:
            since = time.monotonic() - self._study.terms.grace_seconds
            found = [number for number, first in self._without.items() if first < since]
            new = [number for number in found if number not in self._told]
            self._told.update(new)
            return new

    def _dead(self) -> list[tuple[int, Sighting]]:
        terms = self._study.terms
        now, heartbeats = self._study.database.retry(self._read)
        looked = time.monotonic()
        blind = looked - self._looked > terms.grace_seconds - 2 * terms.heartbeat_seconds
        before = {} if blind else self._sightings
        self._looked = looked
        sightings, dead = {}, []
        for trial_id, heartbeat in heartbeats.items():
            seen = before.get(trial_id)
            if seen is None or seen.heartbeat != heartbeat:
                seen = Sighting(heartbeat, looked)
            sightings[trial_id] = seen
            old = now - heartbeat > timedelta(seconds=terms.grace_seconds)
            if old and looked - seen.since >= WATCHED * terms.heartbeat_seconds:
                dead.append((trial_id, seen))
        self._sightings = sightings
        return dead

    def _read(self) -> tuple[datetime, dict[int, datetime]]:
        with self._study.database.read() as connection:
            now: datetime = connection.execute(select(func.current_timestamp())).scalar_one()
            found = connection.execute(
                select(TRIALS.c.trial_id, TRIALS.c.number, HEARTBEATS.c.heartbeat)
                .outerjoin(HEARTBEATS, TRIALS.c.trial_id == HEARTBEATS.c.trial_id)
                .where(TRIALS.c.study_id == self._study.study_id, TRIALS.c.state == TrialState.RUNNING)
            ).all()
        looked = time.monotonic()
        without = [row.number for row in found if row.heartbeat is None]
        self._without = {number: self._without.get(number, looked) for number in without}
        beating = {row.trial_id: row.heartbeat for row in found if row.heartbeat is not None}
        return now.replace(tzinfo=None), beating

    def _fail(self, trial_id: int, seen: Sighting, max_retries: int) -> bool:
        return self._study.database.retry(lambda: self._fail_once(trial_id, seen, max_retries))

    def _fail_once(self, trial_id: int, seen: Sighting, max_retries: int) -> bool:
        with self._study.database.write() as connection:
            rows.lock_study(connection, self._study.study_id, self._study.name)
            trial = rows.lock_trial(connection, trial_id)
            newest = connection.scalar(
                select(HEARTBEATS.c.heartbeat).where(HEARTBEATS.c.trial_id == trial_id).with_for_update()
            )
            if trial is None or trial[0] != TrialState.RUNNING or newest != seen.heartbeat:
                return False
            worker = connection.scalar(
                select(USER_ATTRIBUTES.c.value_json).where(
                    USER_ATTRIBUTES.c.trial_id == trial_id, USER_ATTRIBUTES.c.key == "worker"
                )
            )
            name = worker.strip('"') if worker else "unknown"
            reason = (
                f"worker {name} stopped answering: no heartbeat since {seen.heartbeat:%Y-%m-%d %H:%M:%S} UTC"
            )
            rows.fail_and_retry(
                connection, self._study.study_id, trial_id, trial[1], reason, retry=True, most=max_retries
            )
            return True
