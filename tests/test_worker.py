"""A worker's life: it runs what it claims, plans what is wanted next, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
import time
import uuid
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.process import BaseProcess
from typing import Any

import optuna
import pytest
from launches import wait_until
from processes import CLEAN

from objectives.contract import (
    FIRST,
    Attempt,
    Cell,
    CurvePoint,
    HubError,
    Recipe,
    Report,
    StorageError,
    TrialFailed,
    TrialRecord,
    UsageError,
)
from objectives.errors import NotReady
from storage.claims import Claim
from storage.database import Database
from storage.overview import read_overview
from study.protocols.plan import plan_study
from study.specs.study_spec import StudySpec
from study.workers.events import Event
from study.workers.jobs import Job
from study.workers.worker import WorkerSummary, run_worker

FAIL = optuna.trial.TrialState.FAIL


def make_spec(**changes: object) -> StudySpec:
    fields: dict[str, object] = {
        "task": "mrpc",
        "metric": "f1",
        "model": "tiny",
        "model_fingerprint": "m",
        "data": "d",
        "data_fingerprint": "d",
        "total_layers": 4,
        "protocol": "grid",
        "frozen_layers": (0, 2, 3, 4),
        "learning_rates": (1e-5, 2e-5),
        "seeds": (1, 2),
        "recipe": Recipe(),
    }
    return StudySpec(**{**fields, **changes})  # type: ignore[arg-type]


def quick(cell: Cell, report: Report, attempt: Attempt = FIRST) -> TrialRecord:
    score = 0.9 - cell.frozen_layers / 100 + cell.learning_rate
    report(CurvePoint(epoch=1, step=1, train_loss=0.5, metrics={"f1": score}))
    return TrialRecord(metric="f1", score=score)


@pytest.fixture
def database(sqlite_url: str) -> Iterator[Database]:
    opened = Database.open(sqlite_url, create=True, heartbeat_seconds=0.5, grace_seconds=1.5, max_retries=1)
    yield opened
    opened.close()


def make_job(
    database: Database, objective: Callable[[Cell, Report], TrialRecord] = quick, **changes: object
) -> Job:
    spec = make_spec(**changes)
    study = database.create_study(f"{spec.task}-{spec.protocol}", {"spec": spec.to_json()})
    return Job(study=study, spec=spec, make_objective=lambda: objective)


def work(*jobs: Job, **options: object) -> tuple[WorkerSummary, list[Event]]:
    events: list[Event] = []
    settings: dict[str, object] = {"poll_seconds": 0.1, **options}
    return run_worker(jobs, worker="w", on_event=events.append, **settings), events  # type: ignore[arg-type]


def test_plans_runs_and_leaves(database: Database) -> None:
    job = make_job(database)
    summary, events = work(job)
    assert (summary.finished, summary.failed, summary.exit_code) == (16, 0, 0)
    assert job.study.counts().complete == 16
    kinds = Counter(event.kind for event in events)
    assert kinds == {"planned": 1, "claimed": 16, "reported": 16, "finished": 16, "left": 1}
    finished = [event for event in events if event.kind == "finished"]
    assert all(event.cell and event.record and event.seconds is not None for event in finished)
    assert all(trial.intermediate_values for trial in job.study.optuna_study.trials)
    again, events = work(job)
    assert again.finished == 0
    assert [event.kind for event in events] == ["left"]


class Keeping:
    """An objective that has the states of the trial before open, and those of depth 3 at hand."""

    def __init__(self) -> None:
        self.open = 0
        self.wanted: list[tuple[int, set[int]]] = []
        self.rested = 0

    def nearest(self) -> list[int]:
        return [self.open, 3]

    def rest(self) -> None:
        self.rested += 1

    def __call__(self, cell: Cell, report: Report, attempt: Attempt = FIRST) -> TrialRecord:
        self.open = cell.frozen_layers
        self.wanted.append((cell.frozen_layers, set(attempt.wanted())))
        return quick(cell, report, attempt)


def test_a_worker_stays_with_the_states_that_are_at_hand_and_says_which_are_still_wanted(
    database: Database,
) -> None:
    ended: list[str] = []
    keeping, job = Keeping(), make_job(database)
    held: list[Claim] = []

    def make() -> Any:
        claim = database.study(job.study.name).claim("somebody else", [4])
        assert claim is not None
        held.append(claim)
        return keeping

    def let_go(event: Event) -> None:
        if event.kind == "idle" and keeping.rested and held:
            held.pop().release()

    kept = replace(job, make_objective=make, finished=lambda: ended.append("once"))
    run_worker([kept], worker="w", on_event=let_go, poll_seconds=0.1)
    assert [depth for depth, _ in keeping.wanted] == [0] * 4 + [3] * 4 + [2] * 4 + [4] * 4
    assert [wanted for _, wanted in keeping.wanted][-6:] == [{2, 4}, {4}, {4}, {4}, set(), set()]
    assert keeping.rested == 2, "while it waited for the other's trial, and at the end"
    assert ended == ["once"]


def test_phases_follow_each_other_by_themselves(database: Database) -> None:
    job = make_job(database, protocol="paper")
    _, events = work(job)
    assert [event.trials for event in events if event.kind == "planned"] == [4, 6]
    best = {trial.cell.learning_rate for trial in job.study.trials() if trial.cell.frozen_layers}
    assert best == {2e-5}


def test_phase_that_ends_while_a_worker_plans_is_not_the_end(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job(database, protocol="paper")
    plan_study(job.study, job.spec)
    held = job.study.claim("somebody else")
    assert held is not None
    planned = []

    def plan_and_meanwhile(*arguments: Any, **options: Any) -> int:
        added = plan_study(*arguments, **options)
        if not planned:
            # The other worker finishes the last trial of the phase and is killed before it plans.
            held.finish(quick(held.cell, lambda point: None))
        planned.append(added)
        return added

    monkeypatch.setattr("study.workers.worker.plan_study", plan_and_meanwhile)
    summary, _ = work(job)
    assert planned[0] == 0
    assert summary.finished == 3 + 6


def test_moves_on_to_the_next_study_with_a_new_objective(database: Database) -> None:
    made: list[str] = []

    def job(task: str) -> Job:
        plain = make_job(database, task=task)

        def make() -> Callable[[Cell, Report], TrialRecord]:
            made.append(task)
            return quick

        return Job(study=plain.study, spec=plain.spec, make_objective=make)

    jobs = [job("mrpc"), job("rte"), job("cola")]
    summary, events = work(*jobs)
    assert summary.finished == 48
    assert made == ["mrpc", "rte", "cola"]
    assert [event.study for event in events if event.kind == "left"] == [one.study.name for one in jobs]


def test_train_size_is_a_parameter_where_the_protocol_has_it(database: Database) -> None:
    job = make_job(database, protocol="low-resource", train_sizes=(50, 100), learning_rates=(5e-5,))
    work(job)
    assert job.spec.space()["train_size"] == [50, 100]
    assert {trial.cell.train_size for trial in job.study.trials()} == {50, 100}
    assert "train_size" not in make_spec().space()


def test_all_of_the_data_beside_train_sizes(database: Database) -> None:
    job = make_job(database, train_sizes=(None, 50), frozen_layers=(0,), learning_rates=(1e-5,))
    work(job)
    assert sorted((trial.cell.train_size or 0, trial.cell.seed) for trial in job.study.trials()) == [
        *((0, 1), (0, 2), (50, 1), (50, 2))
    ]
    sampler = optuna.samplers.GridSampler(job.spec.space())
    assert sampler.is_exhausted(job.study.optuna_study)


def test_failed_trials_are_retried_and_the_study_goes_on(database: Database) -> None:
    tries: Counter[Cell] = Counter()

    def shaky(cell: Cell, report: Report, attempt: Attempt = FIRST) -> TrialRecord:
        tries[cell] += 1
        if cell.seed == 1 and tries[cell] == 1:
            raise TrialFailed("out of memory")
        if cell.frozen_layers == 4:
            raise TrialFailed("f1 is nan", retry=False)
        return quick(cell, report)

    job = make_job(database, shaky)
    summary, events = work(job)
    assert summary.finished == 12
    assert job.study.counts().failed == 4
    assert {event.reason for event in events if event.kind == "failed"} == {"out of memory", "f1 is nan"}
    assert max(tries.values()) == 2


def test_programming_error_stops_the_worker(database: Database) -> None:
    def broken(cell: Cell, report: Report, attempt: Attempt = FIRST) -> TrialRecord:
        raise IndexError("list index\nout of range")

    job = make_job(database, broken)
    with pytest.raises(IndexError):
        work(job)
    [trial] = [trial for trial in job.study.trials() if trial.state == "FAIL"]
    assert trial.reason == "IndexError: list index out of range"
    assert job.study.counts().running == 0


def test_worker_that_cannot_run_any_cell_gives_its_claim_back(database: Database) -> None:
    plain = make_job(database)

    def make() -> Callable[[Cell, Report], TrialRecord]:
        raise HubError("no network")

    with pytest.raises(HubError):
        work(Job(study=plain.study, spec=plain.spec, make_objective=make))
    assert plain.study.counts().waiting == 16
    assert {trial.state for trial in plain.study.trials()} == {"WAITING"}


def test_an_objective_that_cannot_be_made_burns_no_cell(database: Database) -> None:
    plain = make_job(database)

    def make() -> Callable[[Cell, Report], TrialRecord]:
        raise RuntimeError("CUDA error: out of memory\n  on device 0")

    with pytest.raises(NotReady, match="RuntimeError: CUDA error: out of memory on device 0"):
        work(Job(study=plain.study, spec=plain.spec, make_objective=make))
    assert {(trial.state, trial.attempt) for trial in plain.study.trials()} == {("WAITING", 1)}
    assert len(plain.study.trials()) == 16


@pytest.mark.parametrize("device", ["cpu", "cuda:0", None])
def test_a_worker_with_a_gpu_that_would_train_on_the_cpu_ends(
    database: Database, monkeypatch: pytest.MonkeyPatch, device: str | None
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")

    class Placed:
        def __call__(self, cell: Cell, report: Report, attempt: Attempt = FIRST) -> TrialRecord:
            return quick(cell, report)

    if device is not None:
        Placed.device = device  # type: ignore[attr-defined]
    job = make_job(database, Placed())
    if device != "cpu":
        assert work(job)[0].finished == 16
        return
    with pytest.raises(
        UsageError, match=r"CUDA_VISIBLE_DEVICES=3 gives this worker a GPU.*set CUDA_VISIBLE_D"
    ):
        work(job)
    assert job.study.counts().waiting == 16


def test_a_model_is_let_go_before_the_next_is_made_although_it_was_frozen(database: Database) -> None:
    living: list[weakref.ref[object]] = []

    class Model:
        def __init__(self) -> None:
            assert [one for one in living if one() is not None] == [], "two models at once may not fit"
            living.append(weakref.ref(self))
            self.itself = self
            gc.freeze()

        def __call__(self, cell: Cell, report: Report, attempt: Attempt = FIRST) -> TrialRecord:
            return quick(cell, report)

    jobs = [make_job(database, task=task) for task in ("mrpc", "rte")]
    try:
        summary, _ = work(*[Job(study=job.study, spec=job.spec, make_objective=Model) for job in jobs])
    finally:
        gc.unfreeze()
    assert (summary.finished, len(living)) == (32, 2)


def test_join_only_never_plans_and_still_leaves(database: Database) -> None:
    job = make_job(database)
    summary, _ = work(job, join_only=True)
    assert (summary.finished, len(job.study.trials())) == (0, 0)
    plan_study(job.study, job.spec)
    summary, _ = work(job, join_only=True)
    assert summary.finished == 16


def test_last_worker_waits_for_the_dead_and_runs_their_cells(database: Database) -> None:
    job = make_job(database)
    plan_study(job.study, job.spec)
    dead, *others = iter(lambda: job.study.claim("dead"), None)
    for claim in others:
        claim.finish(quick(claim.cell, lambda point: None))
    dead._lease.stop()
    summary, events = work(job)
    assert summary.finished == 1
    assert {"idle", "reaped"} <= {event.kind for event in events}
    [retried] = [trial for trial in job.study.trials() if trial.attempt == 2]
    assert retried.cell == dead.cell


def test_last_worker_repairs_a_lost_successor(database: Database) -> None:
    job = make_job(database)
    plan_study(job.study, job.spec)
    database.optuna_storage.set_trial_state_values(
        job.study.optuna_study.trials[3]._trial_id, optuna.trial.TrialState.FAIL
    )
    summary, _ = work(job)
    assert summary.finished == 16
    assert {outcome.state for outcome in job.study.outcomes()} == {"COMPLETE"}


def test_a_study_deleted_under_its_worker_ends_it_and_leaks_into_no_other(shared_url: str) -> None:
    """SQLite gives the ids of what was deleted to whatever comes next."""
    database = Database.open(shared_url, create=True, heartbeat_seconds=0.5, grace_seconds=1.5)
    name = f"deleted-{uuid.uuid4().hex[:8]}"
    trained: list[Cell] = []

    def delete(cell: Cell, report: Report, attempt: Attempt = FIRST) -> TrialRecord:
        trained.append(cell)
        optuna.delete_study(study_name=name, storage=database.optuna_storage)
        return quick(cell, report)

    spec = make_spec()
    study = database.create_study(name, {"spec": spec.to_json()})
    job = Job(study=study, spec=spec, make_objective=lambda: delete)
    with pytest.raises(StorageError, match=f"the study '{name}' is not in the database any more"):
        work(job)
    assert len(trained) == 1
    other = database.create_study(f"{name}-other", {"spec": spec.to_json()})
    with pytest.raises(StorageError, match="somebody has deleted it"):
        work(job)
    with pytest.raises(StorageError, match="somebody has deleted it"):
        study.set_attribute("note", "for a study that is gone")
    assert other.trials() == []
    assert "note" not in other.attributes()
    plan_study(other, spec)
    if other.study_id == study.study_id:
        with pytest.raises(StorageError, match="somebody has deleted it"):
            study.claim("w")
    assert other.counts().waiting == 16
    database.close()


def test_a_trial_that_others_enqueued_is_left_alone(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    job = make_job(database)
    plan_study(job.study, job.spec)
    job.study.optuna_study.enqueue_trial({"frozen_layers": 0})
    assert job.study.counts().waiting == 16
    summary, _ = work(job)
    assert summary.finished == 16
    assert job.study.counts().open == 0
    [said] = [record.getMessage() for record in caplog.records if "added by other means" in record.message]
    assert job.study.name in said
    assert [trial.state.name for trial in job.study.optuna_study.trials][-1] == "WAITING"


def test_a_trial_that_another_tool_left_running_is_told_of_once(database: Database) -> None:
    """It may be alive, so nobody takes it away; who ends it has the cell tried again."""
    job = make_job(database, frozen_layers=(0,), learning_rates=(1e-5,))
    plan_study(job.study, job.spec)
    asked = job.study.optuna_study.ask()
    events: list[Event] = []

    def on_event(event: Event) -> None:
        events.append(event)
        if event.kind == "unwatched":
            threading.Timer(0.5, job.study.optuna_study.tell, (asked.number,), {"state": FAIL}).start()

    run_worker([job], worker="w", on_event=on_event, poll_seconds=0.1)
    [told] = [event for event in events if event.kind == "unwatched"]
    assert told.number == asked.number
    assert f"study.tell({asked.number}, state=TrialState.FAIL)" in (told.reason or "")
    assert job.study.counts().complete == 2


def test_lost_lease_stops_the_training(database: Database) -> None:
    evaluations = []

    def slow(cell: Cell, report: Report, attempt: Attempt = FIRST) -> TrialRecord:
        running = [trial for trial in job.study.optuna_study.trials if trial.state.name == "RUNNING"]
        if not evaluations:
            database.optuna_storage.set_trial_state_values(running[0]._trial_id, optuna.trial.TrialState.FAIL)
            for step in range(1000):
                evaluations.append(step)
                report(CurvePoint(epoch=1, step=step, train_loss=0.5, metrics={"f1": 0.5}))
        return quick(cell, report)

    job = make_job(database, slow)
    summary, events = work(job)
    assert (summary.finished, summary.lost) == (16, 1)
    assert len(evaluations) == 1
    assert [event.kind for event in events].count("lost") == 1


def test_runs_in_another_thread_too(database: Database) -> None:
    job = make_job(database)
    found: list[WorkerSummary] = []
    thread = threading.Thread(target=lambda: found.append(work(job)[0]))
    thread.start()
    thread.join(600)
    assert found[0].finished == 16


def endless(cell: Cell, report: Report, attempt: Attempt = FIRST) -> TrialRecord:
    report(CurvePoint(epoch=1, step=1, train_loss=0.5, metrics={"f1": 0.5}))
    try:
        while True:
            sum(range(10_000))
    finally:
        while DEAF:
            # As in native code: no exception gets through.
            with contextlib.suppress(BaseException):
                time.sleep(30)


DEAF: list[bool] = []
"""In a worker's process: signals do not end its trial."""


def _worker(url: str, deaf: bool) -> None:
    DEAF.extend([True] * deaf)
    database = Database.open(url, heartbeat_seconds=0.5, grace_seconds=1.5)
    os._exit(work(make_job(database, endless))[0].exit_code)


def running_worker(database: Database, url: str, *, deaf: bool = False) -> BaseProcess:
    process = CLEAN.Process(target=_worker, args=(url, deaf))
    process.start()
    job = make_job(database)
    wait_until(
        lambda: any(running.evaluations for running in read_overview(job.study).running), "a trial trains"
    )
    return process


@pytest.mark.parametrize(
    ("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_signal_releases_the_trial(database: Database, sqlite_url: str, signum: int, code: int) -> None:
    process = running_worker(database, sqlite_url)
    assert process.pid is not None
    os.kill(process.pid, signum)
    study = database.study("mrpc-grid")
    wait_until(lambda: not study.counts().running, "the trial is released")
    process.join(600)
    assert process.exitcode == code
    assert study.counts().waiting == 16
    assert {trial.attempt for trial in study.trials()} == {1}


def test_second_interrupt_ends_at_once(database: Database, sqlite_url: str) -> None:
    process = running_worker(database, sqlite_url, deaf=True)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGINT)
    process.join(1)
    assert process.is_alive()

    def ended() -> bool:
        # Signals that come at once are one signal.
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid or 0, signal.SIGINT)
        return not process.is_alive()

    wait_until(ended, "the worker has ended")
    assert process.exitcode == -signal.SIGINT


def test_signal_while_idle_ends_at_once(database: Database, sqlite_url: str) -> None:
    job = make_job(database, frozen_layers=(0,), learning_rates=(1e-5,), seeds=(1,))
    plan_study(job.study, job.spec)
    held = job.study.claim("somebody else")
    assert held is not None
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()
    before = signal.getsignal(signal.SIGTERM)
    # It would look again in an hour.
    summary, _ = work(job, poll_seconds=3600.0)
    assert summary.exit_code == 143
    assert signal.getsignal(signal.SIGTERM) is before
    held.release()


@pytest.mark.parametrize(("pause", "told"), [(0.0, [None, 0.5, 0.5]), (1e9, [])])
def test_steps_are_told_of_with_the_loss_last_known_but_not_too_often(
    database: Database, monkeypatch: pytest.MonkeyPatch, pause: float, told: list[float | None]
) -> None:
    monkeypatch.setattr("study.workers.worker.STEPPED_SECONDS", pause)

    def stepping(cell: Cell, report: Report, attempt: Attempt = FIRST) -> TrialRecord:
        for step, loss in ((1, None), (2, 0.5), (3, None)):
            attempt.stepped(step, 3, loss)
        return quick(cell, report)

    job = make_job(database, stepping, frozen_layers=(0,), learning_rates=(1e-5,), seeds=(1,))
    _, events = work(job)
    stepped = [event for event in events if event.kind == "stepped"]
    assert [event.loss for event in stepped] == told
    assert [(event.step, event.steps) for event in stepped] == [(n + 1, 3) for n in range(len(told))]
