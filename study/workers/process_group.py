"""Leads the processes that train one trial together: starts them, judges their failures, ends them together.

It runs beside them, without torch. A process that fails or dies alone leaves the others waiting for it in
some exchange for ever; from here rank 0, which owns the trial, is told, and the rest is ended.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from study.workers import devices
from study.workers.event_lines import Pipe
from study.workers.interrupts import handled_signals
from study.workers.parent import bind_to_parent
from study.workers.supervise import how, worker_command

RANK = "ELSA_RANK"
"""Environment variable of a process in a group: its rank."""
CONTROL = "@rank "
"""Begins a line that a rank says to its leader; the other lines of rank 0 are events, and passed on."""
AGREE_SECONDS = 10.0
"""For all ranks to report a failure that they all must have."""
LEAVE_SECONDS = 20.0
"""For rank 0 to record the failure and leave."""
TICK_SECONDS = 0.05


def lead(argv: Sequence[str], processes: int) -> int:
    """Run a worker as `processes` ranks; the exit code is that of rank 0."""
    return _Leader(worker_command(argv), group_environments(os.environ, processes)).run()


def group_environments(current: Mapping[str, str], processes: int) -> list[dict[str, str]]:
    """What Accelerate reads in each rank."""
    shared = {
        **current,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
    }
    if not devices.find(current):
        shared["ACCELERATE_USE_CPU"] = "true"
    return [
        {**shared, RANK: str(rank), "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(processes)
    ]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Rank:
    number: int
    process: subprocess.Popen[str]
    failure: dict[str, Any] | None = None
    """The failure of the trial at hand that this rank has reported."""

    def tell(self, message: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(message) + "\n")
            self.process.stdin.flush()
        except OSError:
            # It is gone, which the next look at it will show.
            pass


@dataclass
class _Leader:
    command: list[str]
    environments: list[dict[str, str]]
    ranks: list[Rank] = field(default_factory=list)
    _lines: queue.SimpleQueue[tuple[Rank, str]] = field(default_factory=queue.SimpleQueue)
    _out: Pipe = field(default_factory=lambda: Pipe(os.dup(1)))
    _signum: int | None = None
    _judge_at: float | None = None
    _leave_by: float | None = None

    def run(self) -> int:
        for signum in handled_signals():
            signal.signal(signum, self._handle)
        try:
            for number, environment in enumerate(self.environments):
                if self._signum is not None:
                    # It came before there was a rank 0 to pass it on to, which has claimed nothing yet.
                    return 128 + self._signum
                self._start(number, environment)
            while self.ranks[0].process.poll() is None:
                self._listen()
                self._look()
            self._listen()
            code = self.ranks[0].process.returncode
            return code if code >= 0 else 128 - code
        finally:
            self._end(self.ranks)

    def _start(self, number: int, environment: Mapping[str, str]) -> None:
        process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=bind_to_parent(environment),
            # Signals come to the leader, and through it to rank 0 alone.
            start_new_session=True,
        )
        rank = Rank(number, process)
        self.ranks.append(rank)
        threading.Thread(target=self._read, args=(rank,), daemon=True).start()

    def _read(self, rank: Rank) -> None:
        assert rank.process.stdout is not None
        for line in rank.process.stdout:
            self._lines.put((rank, line))

    def _handle(self, signum: int, _: FrameType | None) -> None:
        self._signum = signum
        for rank in self.ranks[:1]:
            if rank.process.returncode is None:
                os.kill(rank.process.pid, signum)

    def _listen(self) -> None:
        while True:
            try:
                rank, line = self._lines.get(timeout=TICK_SECONDS)
            except queue.Empty:
                return
            if line.startswith(CONTROL):
                rank.failure = json.loads(line.removeprefix(CONTROL))
                # One that might come out otherwise next time came from this rank alone.
                patience = 0.0 if rank.failure["retry"] else AGREE_SECONDS
                self._judge_at = min(self._judge_at or float("inf"), time.monotonic() + patience)
            elif rank.number == 0:
                self._out.offer(line)

    def _look(self) -> None:
        """Find out whether all ranks still can go on together."""
        if self._leave_by is not None:
            if time.monotonic() > self._leave_by:
                self.ranks[0].process.kill()
            return
        for rank in self.ranks[1:]:
            code = rank.process.poll()
            if code and self._signum is None:
                said = rank.failure["reason"] if rank.failure else f"{how(code)}"
                self._break(f"rank {rank.number} {'failed: ' if rank.failure else ''}{said}")
                return
        if self._judge_at is not None:
            self._judge()

    def _judge(self) -> None:
        failures = [rank.failure for rank in self.ranks if rank.failure is not None]
        alike = all(failure == failures[0] for failure in failures) and not failures[0]["retry"]
        if alike and len(failures) == len(self.ranks):
            self._judge_at = None
            for rank in self.ranks:
                rank.failure = None
                rank.tell({"verdict": "go on"})
        elif not alike or time.monotonic() >= (self._judge_at or 0.0):
            first = next(rank for rank in self.ranks if rank.failure is not None)
            assert first.failure is not None
            self._break(
                f"rank {first.number} failed: {first.failure['reason']}",
                release=first.failure.get("release", False),
            )

    def _break(self, reason: str, *, release: bool = False) -> None:
        """The group is beyond repair: rank 0 records why, and whoever started this starts another group.

        With `release` the trial is not to blame, and is given back.
        """
        self._leave_by = time.monotonic() + LEAVE_SECONDS
        self.ranks[0].tell({"verdict": "broken", "reason": reason, "release": release})
        self._end(self.ranks[1:])

    def _end(self, ranks: Sequence[Rank]) -> None:
        for rank in ranks:
            if rank.process.poll() is None:
                rank.process.kill()
        for rank in ranks:
            rank.process.wait()
