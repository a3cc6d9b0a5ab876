"""Sends a worker's trials to trackers, one run each: its cell, curve, costs and score.

Each tracker has a thread and a queue of its own. One that fails, hangs or is slow loses values, which is said
once; it never holds up a trial.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from study.cli.command import note
from study.cli.wording import slug
from study.workers.events import Event
from study.workers.trackers import TRACKERS, TrackedRun

if TYPE_CHECKING:
    from objectives.contract import TrialRecord
    from study.specs.study_spec import StudySpec
    from study.workers.jobs import Job
    from study.workers.options import Keeping

MOST_EVENTS = 1000
"""That wait for a tracker; what comes after them is dropped."""
LAST_SECONDS = 60.0
"""For trackers to write what they have, once the worker has no more trials."""
_ENDS = ("finished", "failed", "lost", "released")
_COSTS = (
    "train_seconds",
    "evaluation_seconds",
    "prefix_seconds",
    "examples_per_second",
    "peak_memory_bytes",
    "trainable_parameters",
    "total_parameters",
    "train_examples",
)
OnEvent = Callable[[Event], None]


@contextmanager
def tracked(jobs: Sequence[Job], keeping: Keeping, on_event: OnEvent, worker: str = "") -> Iterator[OnEvent]:
    """`on_event`, which tells the trackers that were asked for, too."""
    specs = {job.study.name: job.spec for job in jobs}

    def say(text: str) -> None:
        """In this worker's log, and to whoever displays it."""
        note(text)
        on_event(Event(kind="untracked", worker=worker, study=jobs[0].study.name, reason=text))

    senders = [Sender(name, str(keeping.track_folder()), specs, say) for name in keeping.track]

    def tell(event: Event) -> None:
        on_event(event)
        for sender in senders:
            sender.offer(event)

    try:
        yield tell if senders else on_event
    finally:
        deadline = time.monotonic() + LAST_SECONDS
        for sender in senders:
            sender.close(deadline - time.monotonic())


class Sender:
    """One tracker of one worker."""

    def __init__(self, name: str, folder: str, specs: Mapping[str, StudySpec], say: Callable[[str], None]):
        self.name, self._folder, self._specs, self._say = name, folder, specs, say
        self._events: queue.Queue[Event | None] = queue.Queue(MOST_EVENTS)
        self._said: set[str] = set()
        self._run: Any = None
        self._thread = threading.Thread(target=self._work, name=f"tracker {name}", daemon=True)
        self._thread.start()

    def offer(self, event: Event) -> None:
        """Never waits."""
        if event.kind not in ("claimed", "reported", *_ENDS):
            return
        try:
            self._events.put_nowait(event)
        except queue.Full:
            self._complain("is too slow: it misses values")

    def close(self, seconds: float) -> None:
        try:
            self._events.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(max(0.0, seconds))
        if self._thread.is_alive():
            self._complain("has not written all that it got")

    def _complain(self, what: str) -> None:
        if what not in self._said:
            self._said.add(what)
            self._say(f"tracker {self.name} {what}; trials go on")

    def _work(self) -> None:
        while (event := self._events.get()) is not None:
            try:
                self._take(event)
            except Exception as error:
                # The run is given up; the next trial has one of its own.
                self._run = None
                reason = " ".join(str(error).split())[:200]
                self._complain(f"failed ({type(error).__name__}: {reason})")

    def _take(self, event: Event) -> None:
        if event.kind == "claimed":
            self._run = self._start(event)
        if self._run is None:
            return
        if event.kind == "reported" and event.point is not None:
            point = event.point
            values = {"train_loss": point.train_loss, "epoch": point.epoch, **point.metrics}
            self._run.log(values, step=point.step)
        elif event.kind in _ENDS:
            run, self._run = self._run, None
            run.log(_last_values(event), step=None if event.record is None else _last_step(event.record))
            run.finish()

    def _start(self, event: Event) -> Any:
        from accelerate import tracking

        # Theirs fails until an Accelerator is made, which the trial at hand may do later, or never.
        tracking.logger = logging.getLogger(tracking.__name__)
        cell = event.cell
        assert cell is not None
        # W&B writes elsewhere where there is no such folder.
        Path(self._folder).mkdir(parents=True, exist_ok=True)
        named = TrackedRun(slug(event.study), f"{event.number:05}-{cell.file_name()}", self._folder)
        run = tracking.LOGGER_TYPE_TO_CLASS[self.name](**TRACKERS[self.name].options(named))
        # This is the first process of its trial, which Accelerate must not find out from this thread.
        run.main_process_only = False
        run.start()
        run.store_init_configuration(_configuration(event, self._specs[event.study]))
        return run


def _configuration(event: Event, spec: StudySpec) -> dict[str, Any]:
    """The cell, the study and the recipe as plain values."""
    assert event.cell is not None
    found: dict[str, Any] = {
        "study": event.study,
        "trial": event.number,
        "attempt": event.attempt,
        "worker": event.worker,
        "task": spec.task,
        "model": spec.model,
        "metric": spec.metric,
        "protocol": spec.protocol,
        **event.cell.parameters(),
        **asdict(spec.recipe),
    }
    return {
        key: value if isinstance(value, bool | int | float | str) else str(value)
        for key, value in found.items()
    }


def _last_values(event: Event) -> dict[str, float]:
    if event.record is None:
        return {"failed": 1.0} if event.kind == "failed" else {"given_up": 1.0}
    costs = {name: value for name in _COSTS if (value := getattr(event.record, name)) is not None}
    return {**event.record.metrics, "score": event.record.score, **costs}


def _last_step(record: TrialRecord) -> int | None:
    return record.curve[-1].step if record.curve else None
