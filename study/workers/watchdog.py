"""Ends a trial that runs far too long: its failure is recorded, and the process with it ends.

A hung trial (an exchange that nobody answers, a stuck file system) keeps its heartbeat for ever. Nothing in
the same process can break it off for certain, so the process is left, and its supervisor starts another.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from objectives.errors import TIMED_OUT
from study.cli.command import duration

if TYPE_CHECKING:
    from storage.claims import Claim

LEAST_SECONDS = 3600.0
TIMES_EXPECTED = 20
UNKNOWN_SECONDS = 24 * 3600.0
"""The limit where no other trial tells how long one takes."""
LOOK_SECONDS = 60.0

log = logging.getLogger(__name__)


class Watchdog:
    """Watches one trial at a time, from a thread of its own."""

    def __init__(self, limit_seconds: float | None, expected: Callable[[Claim], float | None]):
        """`expected` tells how long the trial should take, by others like it; None where there are none."""
        self._limit = limit_seconds
        self._expected = expected
        self._claim: Claim | None = None
        self._began = 0.0
        self._changed = threading.Condition()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def begin(self, claim: Claim) -> None:
        with self._changed:
            self._claim, self._began = claim, time.monotonic()
            self._changed.notify()

    def end(self) -> None:
        with self._changed:
            self._claim = None
            self._changed.notify()

    def _watch(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._claim is not None)
                claim, began = self._claim, self._began
                self._changed.wait(timeout=self._pause(began))
            if claim is not None and self._claim is claim:
                self._look(claim, time.monotonic() - began)

    def _look(self, claim: Claim, spent: float) -> None:
        limit = self._limit_of(claim, spent)
        if limit is not None and spent >= limit:
            self._give_up(claim, spent, limit)

    def _pause(self, began: float) -> float:
        return LOOK_SECONDS if self._limit is None else max(0.0, began + self._limit - time.monotonic())

    def _limit_of(self, claim: Claim, spent: float) -> float | None:
        if self._limit is not None or spent < LEAST_SECONDS:
            return self._limit
        try:
            expected = self._expected(claim)
        except Exception as error:
            log.warning("could not estimate how long %s should take: %s", claim.cell, error)
            expected = None
        return UNKNOWN_SECONDS if expected is None else max(LEAST_SECONDS, TIMES_EXPECTED * expected)

    def _give_up(self, claim: Claim, spent: float, limit: float) -> None:
        with self._changed:
            if self._claim is not claim:
                return
            log.error("trial %d is ended after %s", claim.number, duration(spent))
            try:
                claim.fail(f"timed out: it ran for {duration(spent)}, the limit is {duration(limit)}")
            finally:
                os._exit(TIMED_OUT)
