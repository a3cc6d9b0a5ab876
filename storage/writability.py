"""Whether this process can write to the database, and since when without a break: by writing to it.

Where nobody can write (a lock that somebody holds, a full disk, a server turned read-only) every heartbeat
grows old, and every worker is alive.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from sqlalchemy import delete, insert

from objectives.contract import StorageError
from storage.outage import is_passing
from storage.schema import STUDY_SYSTEM_ATTRIBUTES

if TYPE_CHECKING:
    from storage.studies import StoredStudy


class Writability:
    """Of one study's database, as one process knows it."""

    def __init__(self, study: StoredStudy):
        self._study = study
        self._key = f"elsa:write-probe:{uuid.uuid4().hex}"
        self._since: float | None = None
        self._last = float("-inf")
        self.slow_seconds = max(1.0, study.terms.heartbeat_seconds / 2)
        """A write that takes longer was held up, and those of others may have been, too."""

    def since(self) -> float | None:
        """Write now; the monotonic time since which every write has gone through.

        None where this one has not.
        """
        if time.monotonic() - self._last > self._study.terms.heartbeat_seconds + self.slow_seconds:
            self._since = None
        if self.try_once(self._write) is None:
            return None
        self._last = time.monotonic()
        self._since = self._since or self._last
        return self._since

    def try_once(self, write: Callable[[], bool]) -> bool | None:
        """What `write` answers; None where the database does not take it now."""
        began, before = time.monotonic(), self._since
        self._since = None
        try:
            answer = self._study.database.retry(write, seconds=0)
        except StorageError as error:
            if error.__cause__ is None or not is_passing(error.__cause__):
                raise
            return None
        if time.monotonic() - began <= self.slow_seconds:
            self._since = before
        return answer

    def _write(self) -> bool:
        table, study_id = STUDY_SYSTEM_ATTRIBUTES, self._study.study_id
        with self._study.database.write() as connection:
            connection.execute(insert(table).values(study_id=study_id, key=self._key, value_json="null"))
            connection.execute(delete(table).where(table.c.study_id == study_id, table.c.key == self._key))
        return True
