"""One study in the database: plan, claim, reap and read it. Everything it knows is in Optuna's tables."""

from __future__ import annotations

import json
import logging
import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import optuna
from optuna.trial import TrialState
from sqlalchemy import Connection, delete, insert, select
from sqlalchemy.exc import IntegrityError, OperationalError

from objectives.contract import Cell, Outcome
from storage import counting, reading, rows
from storage.attributes import loaded
from storage.claims import Claim, Foreign, clean, lock, take
from storage.outage import is_lock_timeout
from storage.parameters import Grid, Space
from storage.planning import Wanted, plan, widen
from storage.reading import Counts, StoredTrial
from storage.reaping import Reaper
from storage.schema import STUDY_ATTRIBUTES
from storage.terms import Terms
from storage.waiting import Waiting

if TYPE_CHECKING:
    from storage.database import Database

log = logging.getLogger(__name__)


class StoredStudy:
    """Made by `Database.study` and `Database.create_study`."""

    def __init__(self, database: Database, study_id: int, name: str, terms: Terms):
        self.database = database
        self.study_id = study_id
        self.name = name
        self.terms = terms
        self._waiting = Waiting()
        self._foreign: set[int] = set()
        """Trials that wait, but not for us."""
        self.planned: set[Cell] = set()
        """Cells that this object has added: none of them is ever added again."""
        self._reaper = Reaper(self)
        self._random = random.Random()

    @cached_property
    def optuna_study(self) -> optuna.Study:
        return optuna.load_study(study_name=self.name, storage=self.database.optuna_storage)

    def attributes(self) -> dict[str, Any]:
        def read() -> dict[str, Any]:
            with self.database.read() as connection:
                found = self._attributes(connection)
                if not found:
                    # One that was deleted has none.
                    rows.lock_study(connection, self.study_id, self.name)
                return found

        return self.database.retry(read)

    def _attributes(self, connection: Connection) -> dict[str, Any]:
        found = connection.execute(
            select(STUDY_ATTRIBUTES.c.key, STUDY_ATTRIBUTES.c.value_json).where(
                STUDY_ATTRIBUTES.c.study_id == self.study_id
            )
        )
        return {row.key: loaded(row.value_json) for row in found}

    def set_attribute(self, key: str, value: Any) -> None:
        def write() -> None:
            with self.database.write() as connection:
                rows.lock_study(connection, self.study_id, self.name)
                self._put(connection, {key: value})

        self.database.retry(write)

    def extend(
        self, attributes: Mapping[str, Any], space: Space, check: Callable[[Mapping[str, Any]], None]
    ) -> None:
        """Take over a wider search space with the attributes that tell of it, if `check` does not object to
        those that are there; all at once, for others may extend the study, too.

        The trials that are there get its ranges and marks: Optuna compares only those of one range.
        """
        grid = Grid(space)

        def write() -> None:
            with self.database.write() as connection:
                rows.lock_study(connection, self.study_id, self.name)
                check(self._attributes(connection))
                self._put(connection, attributes)
                widen(connection, self.study_id, grid)

        self.database.retry(write)

    def _put(self, connection: Connection, attributes: Mapping[str, Any]) -> None:
        table = STUDY_ATTRIBUTES
        for key, value in attributes.items():
            connection.execute(delete(table).where(table.c.study_id == self.study_id, table.c.key == key))
            connection.execute(
                insert(table).values(study_id=self.study_id, key=key, value_json=json.dumps(value))
            )

    def plan(self, wanted: Wanted, *, space: Space, retry_failed: bool = False) -> int:
        """Add a WAITING trial for each wanted cell that has none, and the successors that a crash lost.

        With `retry_failed`, cells that were given up are begun again. Returns the number of trials added.
        """
        grid = Grid(space)

        def locked() -> int:
            with self.database.lock(f"plan {self.name}"):
                return plan(self, wanted, grid, retry_failed=retry_failed)

        return self.database.retry(locked)

    def claim(self, worker: str, preferred: Sequence[int] = ()) -> Claim | None:
        """A WAITING trial for this worker alone, or None where there is none.

        Of the preferred depths first, in their order; then of the others, from the shallowest on. Constant
        cost: the ids are listed once and walked in an order of this worker's own, so that workers seldom
        meet; where they do, the ids that are gone are dropped many at a time.
        """
        while True:
            if not self._waiting:
                self._waiting = self._list()
                if not self._waiting:
                    return None
            claim = self._try(self._waiting.pop(preferred), worker)
            if claim is not None:
                claim.start_lease()
                return claim
            self._drop_taken()

    def _list(self) -> Waiting:
        def read() -> list[tuple[int, int | None]]:
            with self.database.read() as connection:
                return counting.waiting_trials(connection, self.study_id)

        found = self.database.retry(read)
        return Waiting([trial for trial in found if trial[0] not in self._foreign], self._random)

    def waiting_depths(self) -> set[int]:
        """Of all cells that wait now."""

        def read() -> set[int]:
            with self.database.read() as connection:
                return counting.waiting_depths(connection, self.study_id)

        return self.database.retry(read)

    def _drop_taken(self) -> None:
        ahead = self._waiting.ahead()
        if not ahead:
            return

        def read() -> set[int]:
            with self.database.read() as connection:
                return counting.still_waiting(connection, ahead)

        self._waiting.drop(set(ahead) - self.database.retry(read))

    def _try(self, trial_id: int, worker: str) -> Claim | None:
        token = uuid.uuid4().hex
        tries = 0

        def write() -> Claim | None:
            nonlocal tries
            tries += 1
            with self.database.write() as connection:
                taken = take(connection, trial_id, worker, token)
                # Perhaps an earlier try arrived, and only its answer was lost.
                if taken or (tries > 1 and lock(connection, trial_id) == (TrialState.RUNNING, token)):
                    return Claim(self, trial_id, token, connection)
                return None

        def write_over() -> Claim | None:
            try:
                return write()
            except OperationalError as error:
                if tries == 1 and is_lock_timeout(error):
                    # Somebody is about to claim it, or stopped in the middle of that: there are others.
                    return None
                raise
            except IntegrityError:
                # Somebody else's tool put the trial back without cleaning up.
                with self.database.write() as connection:
                    if lock(connection, trial_id)[0] == TrialState.WAITING:
                        clean(connection, trial_id)
                return write()

        try:
            return self.database.retry(write_over)
        except Foreign:
            self._foreign.add(trial_id)
            log.warning(
                "%s has a waiting trial that is no cell of it (trial_id %d), added by other means: it is "
                "left alone; run or end it with plain Optuna (study.ask, study.tell)",
                self.name,
                trial_id,
            )
            return None

    def reap(self) -> int:
        """Fail the trials of workers that died, and put their cells back; call it every heartbeat or so."""
        return self._reaper.reap()

    def unwatched(self) -> list[int]:
        """Numbers of trials that some other tool runs, or ran, without a heartbeat: for longer than the grace
        period, as far as `reap` has seen. Whether they are dead nobody can know; each is told once."""
        return self._reaper.unwatched()

    def counts(self) -> Counts:
        def read() -> Counts:
            with self.database.read() as connection:
                return counting.counts(connection, self.study_id)

        return self.database.retry(read)

    def outcomes(self) -> list[Outcome]:
        """What is known of each cell that has a trial."""

        def read() -> Sequence[reading.CellTrial]:
            with self.database.read() as connection:
                return reading.cell_trials(connection, self.study_id)

        return [
            reading.outcome(trial) for trial in reading.newest_by_cell(self.database.retry(read)).values()
        ]

    def trials(self) -> list[StoredTrial]:
        """Every trial, failures and retries included."""

        def read() -> list[StoredTrial]:
            with self.database.read() as connection:
                return reading.stored_trials(connection, self.study_id)

        return self.database.retry(read)

    def predictions(self) -> dict[int, str]:
        """The packed predictions of complete trials, by number."""

        def read() -> dict[int, str]:
            with self.database.read() as connection:
                return reading.packed_predictions(connection, self.study_id)

        return self.database.retry(read)
