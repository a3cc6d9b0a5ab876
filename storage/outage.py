"""What a database error means: an outage to sit out with back-off, or a fault to report in one line."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

import sqlalchemy.exc

from objectives.contract import StorageError

T = TypeVar("T")

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0

PERMANENT = (
    "readonly database",
    "no such table",
    "is not a database",
    "malformed",
    "authentication failed",
    "access denied",
    "unknown database",
    "does not exist",
    "permission denied",
    "data too long",
)
"""Said by errors of the passing kind (OperationalError) that no waiting cures."""


def is_passing(error: BaseException) -> bool:
    """Whether the same operation may succeed later: connection lost, server away, deadlock, file busy."""
    if isinstance(error, sqlalchemy.exc.TimeoutError):
        return True
    if not isinstance(error, sqlalchemy.exc.DBAPIError):
        return False
    if error.connection_invalidated:
        return True
    passing = (sqlalchemy.exc.OperationalError, sqlalchemy.exc.InterfaceError, sqlalchemy.exc.InternalError)
    return isinstance(error, passing) and not any(words in str(error.orig).lower() for words in PERMANENT)


def is_lock_timeout(error: BaseException) -> bool:
    """Whether somebody else held a lock for longer than one waits."""
    words = str(getattr(error, "orig", None) or "").lower()
    return "lock timeout" in words or "lock wait timeout" in words


def one_line(error: BaseException) -> str:
    """The driver's own words, without SQL, parameters or line breaks."""
    words = str(getattr(error, "orig", None) or error).strip()
    return " ".join(words.split())[:300]


class Patience:
    """How long the operations of one database wait for it to come back."""

    def __init__(self, name: str, seconds: float, longest_pause: float = LONGEST_PAUSE_SECONDS):
        self.name = name
        self.seconds = seconds
        self.longest_pause = longest_pause

    def hurry(self, allowed_seconds: float = 0.25) -> None:
        """The process is being stopped: whoever waits gives up, and nobody waits long any more.

        Plain assignment, because signal handlers call it: an event could be locked at that moment.
        """
        self.seconds = min(self.seconds, allowed_seconds)

    def retry(self, operation: Callable[[], T], *, seconds: float | None = None) -> T:
        """`operation`, repeated with back-off while the database is away.

        It must be safe to repeat after a commit whose answer was lost.
        """
        began = time.monotonic()
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                return operation()
            except sqlalchemy.exc.SQLAlchemyError as error:
                # Jitter, so that a hundred workers do not return in the same instant.
                waited = is_passing(error) and self._wait(began, seconds, pause * random.uniform(0.5, 1.0))
                if not waited:
                    raise StorageError(f"{self.name}: {one_line(error)}") from error
                pause = min(self.longest_pause, pause * 2)

    def _wait(self, began: float, seconds: float | None, pause: float) -> bool:
        """False when the time is up, which `hurry` may make sooner than it was."""
        until = time.monotonic() + pause
        while True:
            now = time.monotonic()
            allowed = self.seconds if seconds is None else min(seconds, self.seconds)
            left = began + allowed - now
            if left <= 0:
                return False
            if now >= until:
                return True
            time.sleep(min(left, until - now, 0.1))
