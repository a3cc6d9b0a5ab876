"""Events of a worker process as JSON lines on its standard output, for the process that supervises it."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from dataclasses import asdict
from typing import Any

from objectives.contract import Cell, CurvePoint, TrialRecord
from storage.reading import Counts
from study.workers.events import Event


def encode(event: Event) -> str:
    """One line. Of a record only the score and the time: the rest is in the database."""
    line: dict[str, Any] = {"kind": event.kind, "worker": event.worker, "study": event.study}
    plain = ("number", "attempt", "index", "reason", "seconds", "trials")
    line |= {name: value for name in plain if (value := getattr(event, name)) is not None}
    nested = {"cell": event.cell, "point": event.point, "counts": event.counts}
    line |= {name: asdict(value) for name, value in nested.items() if value is not None}
    if event.record is not None:
        shown = ("metric", "score", "train_seconds", "evaluation_seconds")
        line["record"] = {name: getattr(event.record, name) for name in shown}
    return json.dumps(line)


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


class EventWriter:
    """Takes standard output for itself: what libraries print goes to standard error, and so to the log."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self._out = os.dup(1)
        os.dup2(2, 1)

    def __call__(self, event: Event) -> None:
        self.text(f"{encode(event)}\n")

    def text(self, text: str) -> None:
        # A supervisor that was killed reads no more; the trial at hand is released all the same.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._out, text.encode())
