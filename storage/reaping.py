"""Finds trials whose worker has died, fails them, and puts their cells back."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from optuna.trial import TrialState
from sqlalchemy import func, select

from storage import rows
from storage.schema import HEARTBEATS, TRIALS, USER_ATTRIBUTES
from storage.writability import Writability

if TYPE_CHECKING:
    from storage.studies import StoredStudy


WATCHED = 1.25
"""Heartbeat intervals: longer than one, so that a working process is never taken for dead, whatever the
database's clock does. One that dies has been watched for the grace period by then, and is found as soon."""
CLOCK_SECONDS = 1.0
"""What the clocks of SQLite and MariaDB resolve: two heartbeats within it look like one."""


@dataclass(frozen=True)
class Sighting:
    heartbeat: datetime
    since: float
    """Monotonic time at which this reaper first saw this heartbeat."""


@dataclass(frozen=True)
class Silent:
    """A trial without a heartbeat for so long that its worker may be dead."""

    trial_id: int
    seen: Sighting
    over: bool
    """The grace period is over."""


class Reaper:
    """A trial is dead when its heartbeat is older than the grace period, by the database's clock or because
    this reaper has seen it stand still for that long, and it has not come for more than a heartbeat interval
    in which this reaper has watched it and could itself write.

    The second half matters after an outage, when the clock is put forward, or when writes were held up: every
    heartbeat is old then, and every worker alive. The reaper's own watch matters when the clock is put back:
    no heartbeat is old then. An outage too short to make a live worker's heartbeat look old costs no time.
    """

    def __init__(self, study: StoredStudy):
        self._study = study
        self._sightings: dict[int, Sighting] = {}
        self._looked = float("-inf")
        self._writability = Writability(study)
        self._without: dict[int, float] = {}
        """Numbers of running trials without any heartbeat; monotonic time of the first look at each."""
        self._told: set[int] = set()
        self._lock = threading.Lock()

    def reap(self) -> int:
        with self._lock:
            silent = self._silent()
            writing = self._writability.since() if silent else None
            if writing is None:
                return 0
            until = time.monotonic() - WATCHED * self._study.terms.heartbeat_seconds
            dead = [found for found in silent if found.over and max(found.seen.since, writing) <= until]
            return sum(self._fail(found) for found in dead)

    def unwatched(self) -> list[int]:
        with self._lock:
            since = time.monotonic() - self._study.terms.grace_seconds
            found = [number for number, first in self._without.items() if first < since]
            new = [number for number in found if number not in self._told]
            self._told.update(new)
            return new

    def _silent(self) -> list[Silent]:
        terms = self._study.terms
        now, heartbeats = self._study.database.retry(self._read)
        looked = time.monotonic()
        blind = looked - self._looked > terms.grace_seconds - 2 * terms.heartbeat_seconds
        before = {} if blind else self._sightings
        self._looked = looked
        # Writes are watched well before the grace period is over, so that this costs no time.
        doubt = max(WATCHED * terms.heartbeat_seconds, terms.grace_seconds - 2 * terms.heartbeat_seconds)
        sightings, silent = {}, []
        for trial_id, heartbeat in heartbeats.items():
            seen = before.get(trial_id)
            if seen is None or seen.heartbeat != heartbeat:
                seen = Sighting(heartbeat, looked)
            sightings[trial_id] = seen
            age = max((now - heartbeat).total_seconds(), looked - seen.since - CLOCK_SECONDS)
            if age > doubt:
                silent.append(Silent(trial_id, seen, over=age > terms.grace_seconds))
        self._sightings = sightings
        return silent

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

    def _fail(self, found: Silent) -> bool:
        """At once or not at all: by the time that a write which was held up goes through, its worker may have
        sent a heartbeat."""
        before = time.monotonic() + self._writability.slow_seconds
        return bool(self._writability.try_once(lambda: self._fail_once(found.trial_id, found.seen, before)))

    def _fail_once(self, trial_id: int, seen: Sighting, before: float) -> bool:
        with self._study.database.write() as connection:
            rows.lock_study(connection, self._study.study_id, self._study.name)
            trial = rows.lock_trial(connection, trial_id)
            if trial is None or trial.state != TrialState.RUNNING:
                return False
            newest = connection.scalar(
                select(HEARTBEATS.c.heartbeat).where(HEARTBEATS.c.trial_id == trial_id)
            )
            if newest != seen.heartbeat or time.monotonic() > before:
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
            most = self._study.terms.max_retries
            rows.fail_and_retry(
                connection, self._study.study_id, trial_id, trial.number, reason, retry=True, most=most
            )
            return True
