"""SIGINT, SIGTERM and SIGHUP as an exception, raised only where the worker says that it may be."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STOPPED = tuple(128 + number for number in SIGNALS)
"""Exit codes of who was stopped by one of them."""
INSIST_SECONDS = 0.1


def handled_signals() -> list[signal.Signals]:
    """The signals to handle here: `nohup` has its command ignore SIGHUP, and so it stays."""
    ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [number for number in SIGNALS if not (ignored and number == signal.SIGHUP)]


class Stopped(BaseException):
    """The process was asked to end. Not an Exception, so that no objective takes it for a failed trial."""

    def __init__(self, signum: int):
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


class Interrupts:
    """Installs the handlers while its block runs; in another thread than the main one it does nothing.

    The first signal raises Stopped inside `allowed()` and is remembered elsewhere (a database transaction
    is never torn). After it SIGINT has its default effect again: a second one ends the process at once.

    Python drops an exception that is raised inside a destructor or a weak reference's callback, wherever the
    signal happens to arrive; so it is raised again until the block has ended.
    """

    def __init__(self, on_signal: Callable[[], None] = lambda: None):
        self.signum: int | None = None
        self._on_signal = on_signal
        self._allowed = False
        self._previous: dict[int, Any] = {}
        self._over = threading.Event()

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._handle) for number in handled_signals()}
            threading.Thread(target=self._insist, name="interrupts", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, signum: int, _: FrameType | None) -> None:
        if self.signum is None:
            self.signum = signum
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            self._on_signal()
        if self._allowed:
            raise Stopped(self.signum)

    def _insist(self) -> None:
        """A thread, made beforehand: a signal handler can start none safely."""
        main = threading.main_thread().ident
        assert main is not None
        while not self._over.wait(INSIST_SECONDS):
            if self.signum is not None and self._allowed:
                signal.pthread_kill(main, signal.SIGTERM)

    def check(self) -> None:
        """Raise what came while it was not allowed to."""
        if self.signum is not None:
            raise Stopped(self.signum)

    def allowed(self) -> _Section:
        """A block that a signal may break off at any point."""
        return _Section(self, True)

    def held(self) -> _Section:
        """A block inside an allowed one that is finished first."""
        return _Section(self, False)


class _Section:
    def __init__(self, interrupts: Interrupts, allowed: bool):
        self._interrupts = interrupts
        self._allowed = allowed
        self._before = False

    def __enter__(self) -> None:
        self._before = self._interrupts._allowed
        if self._allowed:
            self._interrupts.check()
        self._interrupts._allowed = self._allowed

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._interrupts._allowed = self._before
        if self._before and error is None:
            self._interrupts.check()
