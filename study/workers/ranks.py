"""Inside the processes that train one trial together: rank 0 owns the study, the others follow its cells.

Rank 0 broadcasts each cell as one object, exactly; every rank then runs the same objective. What a rank
alone knows (a failure, a lost lease) is never acted upon alone.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

from objectives.contract import (
    FIRST,
    Attempt,
    Cell,
    CurvePoint,
    ElsaError,
    KeepsStates,
    Objective,
    Report,
    TrialFailed,
    TrialRecord,
)
from objectives.errors import GROUP_BROKEN, NotReady
from objectives.training.micro_batches import needs_less_next_time
from study.specs.study_spec import StudySpec
from study.workers.events import Event
from study.workers.interrupts import SIGNALS, Stopped
from study.workers.jobs import Job, make_objective
from study.workers.parent import follow_parent
from study.workers.process_group import CONTROL
from study.workers.readiness import forget_models, ready
from study.workers.worker import LeaseLost, run_worker

if TYPE_CHECKING:
    from storage.claims import Claim
    from study.workers.process import Assignment

EXCHANGE_HOURS = 6
"""One rank may build prefix states, or sit out a database restart, while the others wait for it."""
HEAR_SECONDS = 5.0
"""For the leader to say which rank is to blame for a broken exchange."""
HELD_SECONDS = 5.0
"""For the main thread to leave an exchange with a rank that is gone."""

WAIT, STOP = "wait", "stop"


class GroupBroken(BaseException):
    """Another rank is gone, and what had to be recorded is recorded."""


class _Abandoned(BaseException):
    """Rank 0 lost the trial's lease: all ranks drop the trial together."""


def take_part(assignment: Assignment, rank: int) -> int:
    """Rank 0 owns the trials; the others follow it."""
    if rank == 0:
        follow_parent()
        return _own(assignment)
    # Only rank 0 has anything to release.
    follow_parent(signal.SIGKILL)
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    return _follow(assignment)


def _join_group() -> None:
    from accelerate import PartialState

    on_cpu = os.environ.get("ACCELERATE_USE_CPU") == "true"
    state = PartialState(cpu=on_cpu, timeout=timedelta(hours=EXCHANGE_HOURS))
    assert state.num_processes == int(os.environ["WORLD_SIZE"]), "Accelerate has made no process group"


def _exchange(message: Any = None) -> Any:
    """Rank 0's message, in every rank."""
    from accelerate.utils import broadcast_object_list

    return broadcast_object_list([message])[0]


def _say_failed(out: Callable[[str], None], failure: TrialFailed) -> None:
    out(f"{CONTROL}{json.dumps({'reason': failure.reason, 'retry': failure.retry})}\n")


# --- followers ---------------------------------------------------------------------------------------------


def _follow(assignment: Assignment) -> int:
    say = _take_output()
    _join_group()
    made: tuple[str, Objective] | None = None
    while (message := _exchange()) != STOP:
        if message == WAIT:
            if made is not None and isinstance(made[1], KeepsStates):
                made[1].rest()
            continue
        study, spec, cell, number, failure, token = message
        if made is None or made[0] != study:
            made = None
            forget_models()
            make = partial(make_objective, StudySpec.from_json(spec), assignment.places, study)
            made = (study, _ready_or_end(make, say))
        try:
            made[1](cell, _follow_report, Attempt(number=number, failure=failure, token=token))
        except _Abandoned:
            continue
        except TrialFailed as failure:
            _say_failed(say, failure)
            # A leader that finds this rank alone with its failure ends it here.
            sys.stdin.readline()
    _leave_group()
    return 0


def _ready_or_end(make_objective: Callable[[], Objective], say: Callable[[str], None]) -> Objective:
    """What this process cannot make is no fault of the cell: the leader has it released, and ends us."""
    try:
        return ready(make_objective)
    except ElsaError as error:
        print(error, file=sys.stderr, flush=True)
        say(f"{CONTROL}{json.dumps({'reason': str(error), 'retry': True, 'release': True})}\n")
        sys.stdin.readline()
        raise


def _follow_report(_: CurvePoint) -> None:
    if _exchange():
        raise _Abandoned


def _take_output() -> Callable[[str], None]:
    """Standard output for the leader alone; what libraries print goes to the log."""
    out = os.dup(1)
    os.dup2(2, 1)
    return lambda text: _write(out, text)


def _write(out: int, text: str) -> None:
    os.write(out, text.encode())


def _leave_group() -> None:
    import torch.distributed

    torch.distributed.destroy_process_group()


# --- rank 0 ------------------------------------------------------------------------------------------------


def _own(assignment: Assignment) -> int:
    from study.workers.event_lines import EventWriter
    from study.workers.tracking import tracked

    write = EventWriter()
    leader = _LeaderLine()
    with assignment.jobs() as jobs:
        _join_group()

        def on_event(event: Event) -> None:
            write(event)
            leader.watch(event)
            if event.kind == "idle":
                leader.keep_alive()

        grouped = [_grouped(job, leader, write.pipe.send) for job in jobs]
        try:
            with tracked(jobs, assignment.places.keeping, on_event, assignment.worker) as tell:
                summary = run_worker(
                    grouped,
                    worker=assignment.worker,
                    on_event=tell,
                    join_only=assignment.working.join_only,
                    trial_timeout=assignment.working.trial_timeout,
                )
        except GroupBroken:
            summary = None
        except NotReady:
            if leader.broken is None:
                raise
            summary = None
    if leader.broken is not None:
        # The libraries' own clean-up would wait for the rank that is gone.
        os._exit(GROUP_BROKEN)
    assert summary is not None
    if summary.signum is None:
        _exchange(STOP)
        _leave_group()
    return summary.exit_code


def _grouped(job: Job, leader: _LeaderLine, say: Callable[[str], None]) -> Job:
    return replace(job, make_objective=lambda: GroupObjective(job, leader, say))


class GroupObjective:
    """The objective of rank 0: sends the cell to all, runs its own part, and hears of others' failures."""

    def __init__(self, job: Job, leader: _LeaderLine, say: Callable[[str], None]):
        self._job = job
        self._leader = leader
        self._say = say
        self._part: Objective | None = None
        self._lessons: dict[int, str] | None = None

    def _failure(self, cell: Cell, attempt: Attempt) -> str | None:
        """Why the attempt before failed. Of a first one, why memory ran out for others of its depth: the
        group that found it out ended with it."""
        if self._lessons is None:
            self._lessons = {
                trial.cell.frozen_layers: trial.reason
                for trial in self._job.study.trials()
                if trial.reason and needs_less_next_time(trial.reason)
            }
        return attempt.failure or self._lessons.get(cell.frozen_layers)

    def __call__(self, cell: Cell, report: Report, attempt: Attempt = FIRST) -> TrialRecord:
        leader = self._leader
        if leader.broken is not None:
            # Before it has begun: the cell is released, not failed.
            raise Stopped(signal.SIGTERM)
        attempt = replace(attempt, failure=self._failure(cell, attempt))
        try:
            with leader.breakable():
                told = (cell, attempt.number, attempt.failure, attempt.token)
                _exchange((self._job.study.name, self._job.spec.to_json(), *told))
                if self._part is None:
                    self._part = ready(self._job.make_objective)
                return self._part(cell, self._shared(report), attempt)
        except ElsaError:
            raise
        except TrialFailed as failure:
            if leader.broken is not None:
                raise
            _say_failed(self._say, failure)
            leader.wait_for_verdict()
            raise
        except Exception as error:
            if leader.hear(HEAR_SECONDS):
                raise leader.verdict() from error
            raise

    def nearest(self) -> Sequence[int]:
        return self._part.nearest() if isinstance(self._part, KeepsStates) else ()

    def rest(self) -> None:
        if isinstance(self._part, KeepsStates):
            self._part.rest()

    def _shared(self, report: Report) -> Report:
        def shared(point: CurvePoint) -> None:
            lost = False
            with self._leader.unbreakable():
                try:
                    report(point)
                except LeaseLost:
                    lost = True
            self._leader.check()
            _exchange(lost)
            if lost:
                raise LeaseLost

        return shared


class _LeaderLine:
    """What the leader says, heard by a thread of its own; a broken group breaks off the main thread's trial.

    Where the main thread cannot leave (an exchange on a GPU that nobody will answer), this thread records
    the failure and ends the process.
    """

    def __init__(self) -> None:
        self.broken: str | None = None
        self.release = False
        """Broken through no fault of the trial."""
        self._breakable = False
        self._claim: Claim | None = None
        self._heard = threading.Event()
        self._main = threading.main_thread().ident
        signal.signal(signal.SIGUSR1, self._interrupt)
        threading.Thread(target=self._listen, name="leader", daemon=True).start()

    def watch(self, event: Event) -> None:
        """Follow the worker's trial; once it is recorded, a broken group has nothing left to do."""
        if event.kind == "claimed":
            self._claim = event.claim
        elif event.kind in ("finished", "failed", "lost", "released"):
            self._claim = None
        if self.broken is not None and event.kind in ("finished", "failed", "lost", "idle"):
            raise GroupBroken

    def keep_alive(self) -> None:
        """Followers that heard nothing for hours would take rank 0 for dead."""
        try:
            _exchange(WAIT)
        except Exception:
            if self.hear(HEAR_SECONDS):
                raise GroupBroken from None
            raise

    @contextmanager
    def breakable(self) -> Iterator[None]:
        self._breakable = True
        try:
            self.check()
            yield
        finally:
            self._breakable = False

    @contextmanager
    def unbreakable(self) -> Iterator[None]:
        self._breakable = False
        try:
            yield
        finally:
            self._breakable = True

    def check(self) -> None:
        if self.broken is not None:
            raise self.verdict()

    def verdict(self) -> TrialFailed | NotReady:
        return NotReady(self.broken) if self.release else TrialFailed(str(self.broken))

    def hear(self, seconds: float) -> bool:
        """Whether the leader says, within this time, that the group is broken."""
        deadline = time.monotonic() + seconds
        while self.broken is None and time.monotonic() < deadline:
            time.sleep(0.02)
        return self.broken is not None

    def wait_for_verdict(self) -> None:
        """Until the leader knows whether all ranks failed alike; if not, it says that the group is broken."""
        self._heard.wait()
        self._heard.clear()

    def _listen(self) -> None:
        for line in sys.stdin:
            message = json.loads(line)
            if message["verdict"] == "broken":
                self.release = message.get("release", False)
                self.broken = message["reason"]
            self._heard.set()
            if self.broken is not None:
                self._break_off()
                return

    def _break_off(self) -> None:
        assert self._main is not None
        signal.pthread_kill(self._main, signal.SIGUSR1)
        claim = self._claim
        time.sleep(HELD_SECONDS)
        # Still the same trial: the main thread is held up where no signal reaches it.
        if claim is not None and self._claim is claim and self.broken is not None:
            free = needs_less_next_time(self.broken)
            claim.release() if self.release else claim.fail(self.broken, free=free)
        os._exit(GROUP_BROKEN)

    def _interrupt(self, _: int, __: FrameType | None) -> None:
        if self._breakable and self.broken is not None:
            self._breakable = False
            raise self.verdict()
