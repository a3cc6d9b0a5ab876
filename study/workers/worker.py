"""One worker: claims trials, runs them, plans what a protocol wants next, and leaves when all is done.

It owns no state worth keeping: whatever kills it, the database knows what to do.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from objectives.contract import (
    Attempt,
    CurvePoint,
    ElsaError,
    KeepsStates,
    Objective,
    StorageError,
    TrialFailed,
    printable,
)
from objectives.training.micro_batches import needs_less_next_time
from study.protocols.plan import plan_study
from study.workers.events import Event, EventKind
from study.workers.interrupts import Interrupts, Stopped
from study.workers.jobs import Job, stored_spec
from study.workers.readiness import forget_models, ready
from study.workers.watchdog import Watchdog

if TYPE_CHECKING:
    from storage.claims import Claim
    from storage.reading import Counts

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0
PLANNING_PAUSE = 10
"""Times as long as the last plan took (waiting for the lock included), while others still run cells."""
STEPPED_SECONDS = 1.0
"""Between two events that tell of training steps."""


@dataclass(kw_only=True)
class WorkerSummary:
    finished: int = 0
    failed: int = 0
    """Trials that failed here, those that are retried included."""
    lost: int = 0
    """Trials that were declared dead while they ran here."""
    seconds: float = 0.0
    signum: int | None = None
    """The signal that ended this worker."""

    @property
    def exit_code(self) -> int:
        return 0 if self.signum is None else 128 + self.signum


class LeaseLost(BaseException):
    """Raised through the objective: whatever it still measures would not be accepted."""


def run_worker(
    jobs: Sequence[Job],
    *,
    worker: str,
    on_event: Callable[[Event], None],
    join_only: bool = False,
    trial_timeout: float | None = None,
    poll_seconds: float = POLL_SECONDS,
) -> WorkerSummary:
    """Work until nothing waits or runs in any of the studies, or until SIGINT, SIGTERM or SIGHUP.

    TrialFailed is recorded and the worker goes on; any other exception of an objective is a programming
    error: its trial is recorded as failed, and the exception ends the worker. A worker whose objective cannot
    even be made releases its trial and ends.
    """
    databases = {id(job.study.database): job.study.database for job in jobs}

    def hurry() -> None:
        for database in databases.values():
            database.hurry()

    with Interrupts(hurry) as interrupts:
        watchdog = Watchdog(trial_timeout, expected_seconds)
        run = _Run(list(jobs), worker, on_event, join_only, poll_seconds, interrupts, watchdog)
        began = time.monotonic()
        try:
            run.work()
        except Stopped as stopped:
            run.summary.signum = stopped.signum
        finally:
            run.stop_reaping()
            run.summary.seconds = time.monotonic() - began
        return run.summary


@dataclass
class _Run:
    jobs: list[Job]
    worker: str
    on_event: Callable[[Event], None]
    join_only: bool
    poll_seconds: float
    interrupts: Interrupts
    watchdog: Watchdog
    summary: WorkerSummary = field(default_factory=WorkerSummary)
    _made: tuple[Job, Objective] | None = None
    _planned: dict[int, Counts] = field(default_factory=dict)
    _plan_after: dict[int, float] = field(default_factory=dict)
    _empty_polls: int = 0
    _stopped: threading.Event = field(default_factory=threading.Event)

    def work(self) -> None:
        threading.Thread(target=self._reap, name="reaper", daemon=True).start()
        while self.jobs:
            self.interrupts.check()
            found = self._next()
            if found is not None:
                self._empty_polls = 0
                self._execute(*found)
            elif self.jobs:
                self._idle()

    def stop_reaping(self) -> None:
        self._stopped.set()

    def _reap(self) -> None:
        """In the background, because staleness must be noticed while every worker is busy."""
        pause = min(job.study.terms.heartbeat_seconds for job in self.jobs) / 4
        while not self._stopped.wait(pause):
            for job in list(self.jobs):
                try:
                    reaped = job.study.reap()
                except Exception as error:
                    log.warning("could not look for dead trials of %s: %s", job.study.name, error)
                    continue
                if reaped:
                    self._emit("reaped", job, trials=reaped)
                for number in job.study.unwatched():
                    self._emit("unwatched", job, number=number, reason=_unwatched(job, number))

    def _next(self) -> tuple[Job, Claim] | None:
        """A claim, in the study this worker is busy with if it has one. Finished studies leave the list."""
        for job in sorted(self.jobs, key=lambda job: self._made is None or self._made[0] is not job):
            claim = self._claim(job)
            while claim is None and self._plan(job):
                claim = self._claim(job)
            if claim is not None:
                return job, claim
        return None

    def _claim(self, job: Job) -> Claim | None:
        """Of a depth whose states are at hand, if there is one."""
        kept = self._keeps_states()
        nearest = kept.nearest() if kept is not None and self._made and self._made[0] is job else ()
        return job.study.claim(self.worker, nearest)

    def _keeps_states(self) -> KeepsStates | None:
        made = None if self._made is None else self._made[1]
        return made if isinstance(made, KeepsStates) else None

    def _plan(self, job: Job) -> bool:
        """Whether there is something new to claim. Plans only if anything has changed since the last time."""
        if self.join_only:
            return False
        counts = job.study.counts()
        key, began = job.study.study_id, time.monotonic()
        if self._planned.get(key) == counts or (counts.open and began < self._plan_after.get(key, began)):
            return False
        added = plan_study(job.study, stored_spec(job.study), cells=job.cells)
        if added:
            self._emit("planned", job, trials=added)
            return True
        self._planned[key] = counts
        # A hundred idle workers must not spend the tail of a large study on planning it.
        now = time.monotonic()
        self._plan_after[key] = now + PLANNING_PAUSE * (now - began)
        # Nothing waited or ran before this plan, which wanted nothing, nor after it: the study is complete.
        if counts.open == 0 and job.study.counts().open == 0:
            self.jobs.remove(job)
            job.forget()
            self._rest()
            job.finished()
            self._emit("left", job, counts=counts)
        return False

    def _rest(self) -> None:
        if (kept := self._keeps_states()) is not None:
            kept.rest()

    def _idle(self) -> None:
        self._rest()
        counts = [job.study.counts() for job in self.jobs]
        for job, found in zip(self.jobs, counts, strict=True):
            self._emit("idle", job, counts=found)
        # One that never plans must not leave between the last trial of a phase and the plan of the next.
        self._empty_polls = 0 if any(found.open for found in counts) else self._empty_polls + 1
        if self.join_only and self._empty_polls >= 3:
            self.jobs.clear()
            return
        with self.interrupts.allowed():
            time.sleep(self.poll_seconds * random.uniform(0.75, 1.25))

    def _execute(self, job: Job, claim: Claim) -> None:
        began = time.monotonic()
        self._emit("claimed", job, claim)
        self.watchdog.begin(claim)
        try:
            self._train(job, claim, began)
        finally:
            self.watchdog.end()

    def _train(self, job: Job, claim: Claim, began: float) -> None:
        try:
            with self.interrupts.allowed():
                objective = self._objective(job)
                attempt = Attempt(
                    number=claim.attempt,
                    failure=claim.failure,
                    stepped=self._stepper(job, claim),
                    token=claim.token,
                    mine=claim.confirm,
                    wanted=self._wanted(job),
                )
                record = objective(claim.cell, self._reporter(job, claim), attempt)
        except Stopped:
            self._release(job, claim)
            raise
        except LeaseLost:
            claim.abandon()
            self._lost(job, claim)
        except TrialFailed as failure:
            self._fail(job, claim, failure.reason, began, retry=failure.retry)
        except ElsaError:
            # This worker cannot run any cell (no model, no data, no memory): others may.
            self._release(job, claim)
            raise
        except Exception as error:
            self._fail(job, claim, printable(f"{type(error).__name__}: {error}"), began, retry=True)
            raise
        else:
            if claim.finish(record):
                self.summary.finished += 1
                job.forget(claim.cell)
                self._emit("finished", job, claim, record=record, seconds=time.monotonic() - began)
            else:
                if record.weights is not None:
                    Path(record.weights).unlink(missing_ok=True)
                self._lost(job, claim)

    def _objective(self, job: Job) -> Objective:
        if self._made is None or self._made[0] is not job:
            self._made = None
            forget_models()
            self._made = (job, ready(job.make_objective))
        return self._made[1]

    def _reporter(self, job: Job, claim: Claim) -> Callable[[CurvePoint], None]:
        index = 0

        def report(point: CurvePoint) -> None:
            nonlocal index
            with self.interrupts.held():
                if job.spec.metric in point.metrics:
                    claim.report(index, point.metrics[job.spec.metric])
                self._emit("reported", job, claim, index=index, point=point)
                index += 1
            if claim.lost:
                raise LeaseLost

        return report

    def _stepper(self, job: Job, claim: Claim) -> Callable[[int, int, float | None], None]:
        """Tells of steps at most once a second: the loss that was known last is kept for the next time."""
        told, known = time.monotonic(), None

        def stepped(step: int, steps: int, loss: float | None) -> None:
            nonlocal told, known
            known = loss if loss is not None else known
            if (now := time.monotonic()) - told >= STEPPED_SECONDS:
                told = now
                self._emit("stepped", job, claim, step=step, steps=steps, loss=known)

        return stepped

    def _wanted(self, job: Job) -> Callable[[], Collection[int]]:
        def wanted() -> Collection[int]:
            with self.interrupts.held():
                try:
                    return job.study.waiting_depths()
                except StorageError:
                    # The trial at hand knows its own depth; what else is built can wait.
                    return ()

        return wanted

    def _fail(self, job: Job, claim: Claim, reason: str, began: float, *, retry: bool) -> None:
        if claim.fail(reason, retry=retry, free=needs_less_next_time(reason)):
            self.summary.failed += 1
            self._emit("failed", job, claim, reason=reason, seconds=time.monotonic() - began)
        else:
            self._lost(job, claim)

    def _lost(self, job: Job, claim: Claim) -> None:
        self.summary.lost += 1
        self._emit("lost", job, claim)

    def _release(self, job: Job, claim: Claim) -> None:
        # A database that is away now will see the heartbeat end: the trial is reaped instead.
        with contextlib.suppress(StorageError):
            claim.release()
        self._emit("released", job, claim)

    def _emit(self, kind: EventKind, job: Job, claim: Claim | None = None, **details: object) -> None:
        trial = (
            {} if claim is None else {"cell": claim.cell, "number": claim.number, "attempt": claim.attempt}
        )
        shared = {"kind": kind, "worker": self.worker, "study": job.study.name, "claim": claim}
        self.on_event(Event(**shared, **trial, **details))  # type: ignore[arg-type]


def expected_seconds(claim: Claim) -> float | None:
    """How long the claimed trial should take, by the study's other trials; None where there are none."""
    from study.progress.standing import read_standing

    timing = read_standing(claim.study).timing
    return None if timing is None else timing.seconds(claim.cell)


def _unwatched(job: Job, number: int) -> str:
    return (
        f"trial {number} has run for over {job.study.terms.grace_seconds:g} s without a heartbeat: "
        f"another tool began it; if that is dead, end it with Optuna: "
        f"study.tell({number}, state=TrialState.FAIL)"
    )
