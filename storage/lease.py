"""Keeps a claimed trial alive: a heartbeat from a thread that outlives every database error."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from storage.outage import one_line

log = logging.getLogger(__name__)


class Lease(threading.Thread):
    """Calls `beat` every `interval_seconds` until stopped, or until it answers False: the lease is lost.

    Optuna's own thread dies at the first error, and its live trial is then run twice.
    """

    def __init__(self, beat: Callable[[], bool], interval_seconds: float, name: str):
        super().__init__(name=name, daemon=True)
        self._beat = beat
        self._interval = interval_seconds
        self._stopped = threading.Event()
        self.lost = False

    def run(self) -> None:
        pause = self._interval
        while not self._stopped.wait(pause):
            try:
                alive = self._beat()
                pause = self._interval
            except Exception as error:
                # Whatever it is, the trial is still running: try again, sooner than usual.
                log.warning("%s: heartbeat failed: %s", self.name, one_line(error))
                pause = min(self._interval / 4, 2.0)
                continue
            if not alive and not self._stopped.is_set():
                self.lost = True
                return

    def stop(self) -> None:
        """Does not wait: a beat in flight may hang on a dead connection, and can do no harm."""
        self._stopped.set()
