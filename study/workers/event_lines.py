"""Events of a worker process as JSON lines on its standard output, for the process that supervises it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import stat
import sys
from dataclasses import asdict
from typing import Any

from objectives.contract import Cell, CurvePoint, TrialRecord
from storage.reading import Counts
from study.workers.events import Event

LONGEST_REASON = 1000
MOST_BYTES = select.PIPE_BUF
"""A line of at most this size is written to a pipe whole or not at all."""


def encode(event: Event) -> str:
    """One line. Of a record only the score and the time: the rest is in the database."""
    line: dict[str, Any] = {"kind": event.kind, "worker": event.worker, "study": event.study}
    plain = ("number", "attempt", "index", "seconds", "trials", "step", "steps", "loss")
    line |= {name: value for name in plain if (value := getattr(event, name)) is not None}
    nested = {"cell": event.cell, "point": event.point, "counts": event.counts}
    line |= {name: asdict(value) for name, value in nested.items() if value is not None}
    if event.reason is not None:
        line["reason"] = event.reason[:LONGEST_REASON]
    if event.record is not None:
        shown = ("metric", "score", "train_seconds", "evaluation_seconds", "resumed_seconds")
        line["record"] = {name: getattr(event.record, name) for name in shown}
    excess = len(json.dumps(line)) + len("\n") - MOST_BYTES
    if excess > 0 and "reason" in line:
        line["reason"] = _cut(line["reason"], excess)
    return json.dumps(line)


def _cut(text: str, excess: int) -> str:
    """Without as many of its last characters as take `excess` bytes in JSON."""
    end = len(text)
    while excess > 0 and end > 0:
        end -= 1
        excess -= len(json.dumps(text[end])) - 2
    return text[:end]


def decode(line: str) -> Event | None:
    """None for a line that is no event: something that a library printed."""
    try:
        fields = json.loads(line)
        made = {"cell": Cell, "point": CurvePoint, "record": TrialRecord, "counts": Counts}
        return Event(
            **{name: made[name](**value) if name in made else value for name, value in fields.items()}
        )
    except (ValueError, TypeError, AttributeError):
        return None


class Pipe:
    """A pipe to a process that may be stopped, slow or gone: none of that may hold this one up."""

    def __init__(self, descriptor: int):
        self._descriptor = descriptor
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            os.set_blocking(descriptor, False)

    def offer(self, text: str) -> bool:
        """Write it whole, or drop it where nobody reads: the database has all that matters."""
        data = text.encode()
        if len(data) > MOST_BYTES:
            return False
        try:
            return os.write(self._descriptor, data) == len(data)
        except (BlockingIOError, BrokenPipeError):
            return False

    def send(self, text: str) -> None:
        """Write it, and wait for the reader as long as that takes."""
        data = text.encode()
        with contextlib.suppress(BrokenPipeError):
            while data:
                select.select([], [self._descriptor], [])
                with contextlib.suppress(BlockingIOError):
                    data = data[os.write(self._descriptor, data) :]


class EventWriter:
    """Takes standard output for itself: what libraries print goes to standard error, and so to the log."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self.pipe = Pipe(os.dup(1))
        os.dup2(2, 1)

    def __call__(self, event: Event) -> None:
        self.pipe.offer(f"{encode(event)}\n")
