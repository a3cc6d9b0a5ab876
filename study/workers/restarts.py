"""When a worker that died is started again, and when not: back-off, and an end to it."""

from __future__ import annotations

from objectives.errors import HubError, SpecMismatch, UsageError
from study.workers.events import EventKind

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
QUICK_DEATHS = 5
"""Deaths in a row outside of any trial, after which a worker is given up."""
LONG_LIFE_SECONDS = 600.0
"""Who lived as long as this did not die of how it was started."""

DRAINED = 0
HOPELESS = (UsageError.exit_code, HubError.exit_code, SpecMismatch.exit_code)
"""Exit codes that the same command will end with again: wrong usage, no model or data, another spec."""


class Restarts:
    """Of one worker."""

    def __init__(self) -> None:
        self._deaths = 0
        self._tried = False
        """Whether it has claimed a trial since its start, and not given it back."""

    def follow(self, event: EventKind) -> None:
        """Something that the worker reported."""
        if event == "claimed":
            self._tried = True
        elif event == "released":
            self._tried = False
        elif event == "finished":
            self._deaths = 0

    def died(self, exit_code: int, lived_seconds: float) -> float | None:
        """Seconds to wait before it is started again; None where that would be in vain."""
        if exit_code in HOPELESS:
            return None
        tried, self._tried = self._tried, False
        if tried:
            # The trial's failure: it is recorded or reaped, and the retries of its cell come to an end.
            return FIRST_PAUSE_SECONDS
        if lived_seconds >= LONG_LIFE_SECONDS:
            self._deaths = 0
        self._deaths += 1
        if self._deaths >= QUICK_DEATHS:
            return None
        return min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** (self._deaths - 1))
