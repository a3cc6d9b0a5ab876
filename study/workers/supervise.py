"""Supervises worker processes: starts them on their GPUs, shows them, restarts the dead, stops them all.

It takes no part in the study: the workers share the database, and nothing is lost when it dies.
"""

from __future__ import annotations

import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import IO, Protocol

from objectives.errors import GROUP_BROKEN, TIMED_OUT
from objectives.private_files import own_folder
from study.cli.command import EVENTS
from study.workers.devices import Share
from study.workers.event_lines import decode
from study.workers.events import Event
from study.workers.interrupts import handled_signals
from study.workers.parent import bind_to_parent
from study.workers.restarts import DRAINED, Restarts

STOP_SECONDS = 20.0
"""For workers to release their trials before they are killed; they need one, unless a library holds them."""
LAST_WORDS_SECONDS = 1.0
TICK_SECONDS = 0.2
LAST_LINES = 5


class Display(Protocol):
    """What a person sees of the workers."""

    def event(self, event: Event) -> None: ...
    def state(self, worker: str, text: str) -> None: ...
    def note(self, text: str) -> None: ...


class Nothing:
    """A display that shows nothing."""

    def event(self, event: Event) -> None:
        pass

    def state(self, worker: str, text: str) -> None:
        pass

    def note(self, text: str) -> None:
        pass


@dataclass
class Member:
    """One worker process after another under one name."""

    name: str
    share: Share
    log: Path
    restarts: Restarts = field(default_factory=Restarts)
    process: subprocess.Popen[str] | None = None
    reader: threading.Thread | None = None
    began: float = 0.0
    start_at: float | None = 0.0
    """Monotonic time of the next start; None where there is none to come."""
    exit_code: int | None = None


def supervise(
    command: Sequence[str],
    shares: Sequence[Share],
    display: Display,
    logs: Path,
    environment: Mapping[str, str] = os.environ,
) -> int:
    """Run `command` once per share until every worker has left; the exit code of the whole."""
    host = socket.gethostname()
    members = [
        Member(name=(name := f"{host}-{os.getpid()}-w{number}"), share=share, log=logs / f"{name}.log")
        for number, share in enumerate(shares)
    ]
    logs.mkdir(parents=True, exist_ok=True)
    return _Supervisor(list(command), members, display, environment).run()


def log_folder(cache_dir: str) -> Path:
    """A new one for each run."""
    stamp = f"{datetime.now():%Y%m%d-%H%M%S}-{socket.gethostname()}-{os.getpid()}"
    return own_folder(own_folder(cache_dir) / "logs") / stamp


class _Supervisor:
    def __init__(
        self, command: list[str], members: list[Member], display: Display, environment: Mapping[str, str]
    ):
        self._environment = environment
        self._command = command
        self._members = members
        self._display = display
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._signum: int | None = None

    def run(self) -> int:
        previous = {number: signal.signal(number, self._handle) for number in handled_signals()}
        try:
            while self._signum is None and any(self._open(member) for member in self._members):
                self._step()
            if self._signum is not None:
                self._stop()
                return 128 + self._signum
        except BaseException:
            # Whatever went wrong here, the workers can still release their trials.
            self._display = Nothing()
            self._stop()
            raise
        finally:
            self._kill()
            for number, handler in previous.items():
                signal.signal(number, handler)
        self._drain(0)
        codes = [member.exit_code for member in self._members if member.exit_code]
        # One that left because all is done is proof that all is done.
        return 0 if len(codes) < len(self._members) else _shell_code(codes[-1])

    def _handle(self, signum: int, _: FrameType | None) -> None:
        if self._signum is not None and signum == signal.SIGINT:
            for member in self._members:
                if member.process is not None and member.process.returncode is None:
                    os.kill(member.process.pid, signal.SIGKILL)
            os._exit(130)
        self._signum = self._signum or signum

    def _open(self, member: Member) -> bool:
        return member.process is not None or member.start_at is not None

    def _step(self) -> None:
        for member in self._members:
            if member.process is None and member.start_at is not None and time.monotonic() >= member.start_at:
                self._start(member)
            if member.process is not None and member.process.poll() is not None:
                self._ended(member, member.process.wait())
        self._drain(TICK_SECONDS)

    def _drain(self, wait_seconds: float) -> None:
        """Show what the workers report for this long, and no longer: signals and deaths must be noticed."""
        until = time.monotonic() + wait_seconds
        while (left := until - time.monotonic()) > 0 or not self._events.empty():
            if left < -TICK_SECONDS:
                return
            try:
                event = self._events.get(timeout=max(0.001, left))
            except queue.Empty:
                return
            for member in self._members:
                if member.name == event.worker:
                    member.restarts.follow(event.kind)
            self._display.event(event)

    def _start(self, member: Member) -> None:
        environment = {**self._environment, **member.share.environment(self._environment)}
        with member.log.open("a") as log:
            log.write(f"--- {datetime.now():%Y-%m-%d %H:%M:%S} {member.name} on {member.share}\n")
            log.flush()
            # A session of its own: Ctrl-C comes to the supervisor, which passes it on once.
            member.process = subprocess.Popen(
                [*self._command, EVENTS, member.name],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=bind_to_parent(environment),
                start_new_session=True,
            )
        self._display.state(member.name, "starting")
        member.began, member.start_at = time.monotonic(), None
        member.reader = threading.Thread(target=self._read, args=(member.process.stdout,), daemon=True)
        member.reader.start()

    def _read(self, lines: IO[str]) -> None:
        for line in lines:
            event = decode(line)
            if event is not None:
                self._events.put(event)

    def _ended(self, member: Member, code: int) -> None:
        member.process = None
        member.exit_code = code
        if member.reader is not None:
            # What it said last tells what it died of; a child of its own may keep the pipe open.
            member.reader.join(LAST_WORDS_SECONDS)
        self._drain(0)
        if code == DRAINED or self._signum is not None:
            return
        pause = member.restarts.died(code, time.monotonic() - member.began)
        last = "".join(f"\n    {line}" for line in tail(member.log))
        if pause is None:
            self._display.state(member.name, f"{how(code)}, not restarted")
            self._display.note(
                f"{member.name} {how(code)} and will not be restarted; {member.log} ends:{last}"
            )
        else:
            self._display.state(member.name, f"{how(code)}, starts again")
            self._display.note(f"{member.name} {how(code)}, starts again in {pause:g}s; {member.log}{last}")
            member.start_at = time.monotonic() + pause

    def _stop(self) -> None:
        """Pass the signal on; workers release their trials and leave."""
        running = [member.process for member in self._members if member.process is not None]
        for process in running:
            process.send_signal(self._signum or signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while any(process.poll() is None for process in running) and time.monotonic() < deadline:
            self._drain(0.05)
        self._drain(0)

    def _kill(self) -> None:
        for member in self._members:
            if member.process is not None and member.process.poll() is None:
                member.process.kill()
                member.process.wait()


def how(code: int) -> str:
    """`ended with exit code 1`, `was killed by SIGKILL`."""
    known = {GROUP_BROKEN: "lost one of its processes", TIMED_OUT: "ended a trial that ran too long"}
    if code in known:
        return known[code]
    if code >= 0:
        return f"ended with exit code {code}"
    return f"was killed by {signal.Signals(-code).name}"


def tail(log: Path, lines: int = LAST_LINES) -> list[str]:
    """The last lines of a log, however long it is."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 8192))
        text = file.read().decode(errors="replace")
    return [line[:300] for line in text.splitlines() if line.strip() and not line.startswith("---")][-lines:]


def _shell_code(code: int) -> int:
    if code == TIMED_OUT:
        # Between workers and their supervisor only.
        return 1
    return code if code > 0 else 128 - code


def worker_command(arguments: Sequence[str]) -> list[str]:
    """`elsa work` with these arguments, whatever the working folder and the PATH."""
    return [sys.executable, "-m", "study.work", *arguments]
