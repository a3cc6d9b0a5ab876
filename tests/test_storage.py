"""One suite for every database: what a worker, a planner and a reader may rely on."""

from __future__ import annotations

import itertools
import math
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import optuna
import pytest
from sqlalchemy import delete, event
from sqlalchemy.engine import Connection
from sqlalchemy.exc import OperationalError

from objectives.contract import (
    Cell,
    CurvePoint,
    Outcome,
    SpecMismatch,
    StorageError,
    TrialRecord,
    UsageError,
)
from storage.claims import Claim
from storage.database import Database
from storage.reaping import Sighting
from storage.schema import STUDY_ATTRIBUTES
from storage.studies import StoredStudy
from storage.terms import Terms, Wishes

T = TypeVar("T")

SPACE = {"frozen_layers": [-1, 0, 6], "learning_rate": [1e-5, 3e-5], "seed": [1, 2]}
CELLS = [Cell(*point) for point in itertools.product(*SPACE.values())]

RECORD = TrialRecord(
    metric="f1",
    score=0.1 + 0.2,
    metrics={"f1": 0.1 + 0.2, "accuracy": 1 / 3, "score": 0.5},
    curve=(
        CurvePoint(epoch=0.5, step=10, train_loss=0.7, metrics={"f1": 0.2, "accuracy": 0.25}),
        CurvePoint(epoch=1.0, step=20, train_loss=1 / 7, metrics={"f1": 0.1 + 0.2, "accuracy": 1 / 3}),
    ),
    selection_score=0.29,
    chance=0.0,
    train_examples=3668,
    trainable_parameters=7_087_872,
    total_parameters=109_482_240,
    train_seconds=12.25,
    peak_memory_bytes=3 * 2**40,
    prefix="cached",
    device="cpu",
    host="höst-1",
    versions={"torch": "2.9", "emoji": "🙂"},
)


@pytest.fixture
def database(shared_url: str) -> Iterator[Database]:
    opened = Database.open(shared_url, create=True, heartbeat_seconds=0.5, grace_seconds=1.5, max_retries=1)
    yield opened
    opened.close()


@pytest.fixture
def study(database: Database) -> StoredStudy:
    made = database.create_study(fresh("mrpc"), {"spec": '{"task": "mrpc"}'})
    plan(made)
    return made


def fresh(name: str) -> str:
    return f"{name}-{uuid.uuid4().hex[:8]}"


def plan(study: StoredStudy, cells: Sequence[Cell] = CELLS, **options: bool) -> int:
    return study.plan(lambda outcomes: cells, space=SPACE, **options)


def claimed(study: StoredStudy, worker: str = "w") -> Claim:
    claim = study.claim(worker)
    assert claim is not None
    return claim


def die(claim: Claim) -> None:
    """As a killed worker does: the heartbeat ends."""
    claim._lease.stop()


def until(condition: Callable[[], bool], seconds: float = 120) -> float:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, "waited in vain"
        time.sleep(0.05)
    return time.monotonic() - began


def states(study: StoredStudy) -> dict[Cell, str]:
    return {outcome.cell: outcome.state for outcome in study.outcomes()}


def test_record_comes_back_exactly(study: StoredStudy) -> None:
    claim = claimed(study)
    claim.report(0, 0.2)
    assert claim.finish(RECORD)
    [trial] = [trial for trial in study.trials() if trial.state == "COMPLETE"]
    assert trial.record == RECORD
    assert trial.cell == claim.cell
    assert trial.worker == "w"
    assert trial.started is not None
    assert trial.ended is not None
    assert trial.started <= trial.ended
    assert abs((datetime.now(UTC) - trial.ended).total_seconds()) < 5


def test_claims_prefer_the_depths_that_are_asked_for_and_then_go_from_the_shallowest(
    study: StoredStudy,
) -> None:
    assert study.waiting_depths() == {-1, 0, 6}
    order = [claim.cell.frozen_layers for claim in iter(lambda: study.claim("w", [6, 4, 0]), None)]
    assert order == [6] * 4 + [0] * 4 + [-1] * 4
    assert study.waiting_depths() == set()


def test_claims_by_depth_of_several_workers_meet_at_none(study: StoredStudy) -> None:
    other = study.database.study(study.name)
    first, second = study.claim("a", [6]), other.claim("b", [6])
    claims = [first, second, *iter(lambda: study.claim("a", [6]), None)]
    assert other.claim("b", [6]) is None
    assert sorted(claim.cell for claim in claims if claim) == sorted(CELLS)
    assert [claim.cell.frozen_layers for claim in claims if claim][:4] == [6] * 4


def test_plain_optuna_reads_the_whole_record(study: StoredStudy) -> None:
    claim = claimed(study)
    claim.finish(RECORD)
    plain = optuna.load_study(study_name=study.name, storage=study.database.optuna_storage)
    frame = plain.trials_dataframe()
    row = frame[frame.state == "COMPLETE"].iloc[0]
    assert len(frame) == len(CELLS)
    assert row.value == RECORD.score
    assert row.user_attrs_accuracy == 1 / 3
    assert row.user_attrs_train_seconds == 12.25
    assert row.user_attrs_versions == dict(RECORD.versions)
    assert row.params_learning_rate == claim.cell.learning_rate
    assert plain.best_trial.intermediate_values == {0: 0.2, 1: 0.1 + 0.2}
    assert plain.direction == optuna.study.StudyDirection.MAXIMIZE
    assert plain.user_attrs == {"spec": '{"task": "mrpc"}', **study.terms.attributes()}


def test_each_cell_is_planned_once(study: StoredStudy) -> None:
    assert plan(study) == 0
    assert sorted(trial.cell for trial in study.trials()) == sorted(CELLS)
    assert [trial.number for trial in study.trials()] == list(range(len(CELLS)))
    more = [Cell(6, 3e-5, 1), Cell(6, 3e-5, 1)]
    assert plan(study, more) == 0


def test_planners_at_once_add_each_cell_once(database: Database, shared_url: str) -> None:
    both = database.create_study(fresh("both"), {})
    opened = [Database.open(shared_url) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        added = list(pool.map(lambda one: plan(one.study(both.name)), opened))
    assert sum(added) == len(CELLS)
    assert len(both.trials()) == len(CELLS)
    for one in opened:
        one.close()


def test_planning_survives_a_trial_that_arrives_while_it_thinks(study: StoredStudy) -> None:
    claim = claimed(study)
    seen: list[list[Outcome]] = []

    def wanted(outcomes: list[Outcome]) -> list[Cell]:
        seen.append(outcomes)
        if len(seen) == 1:
            claim.fail("a retry is added meanwhile")
        return [Cell(6, 3e-5, 2), Cell(-1, 1e-5, 1)]

    assert study.plan(wanted, space=SPACE) == 0
    assert len(seen) == 1
    other = study.database.create_study(fresh("thinking"), {})

    def interfering(outcomes: list[Outcome]) -> list[Cell]:
        if not outcomes:
            with study.database.write() as connection:
                from storage.parameters import Grid
                from storage.planning import _new_trial
                from storage.rows import insert_waiting

                insert_waiting(connection, other.study_id, [_new_trial(CELLS[0], Grid(SPACE))])
        return CELLS

    assert other.plan(interfering, space=SPACE) == len(CELLS) - 1
    assert len(other.trials()) == len(CELLS)


def test_what_ends_between_two_selects_is_read_whole(study: StoredStudy, shared_url: str) -> None:
    """A cell that reads as COMPLETE without its score would have its learning rate passed over."""
    for at in range(12):
        claim = claimed(study)
        reader = Database.open(shared_url)
        selects = itertools.count()

        def end(*_: object, at: int = at, claim: Claim = claim, selects: Iterator[int] = selects) -> None:
            if next(selects) == at:
                assert claim.finish(RECORD) if at % 2 else claim.fail("diverged", retry=False)

        event.listen(reader.engine, "after_cursor_execute", end)
        seen = reader.study(study.name)
        for outcome in seen.outcomes():
            assert (outcome.state == "COMPLETE") == (outcome.score is not None), at
            assert outcome.state != "WAITING" or outcome.cell != claim.cell, "its failure is final"
        for trial in seen.trials():
            assert (trial.state == "COMPLETE") == (trial.record is not None), at
            assert trial.state != "FAIL" or trial.reason == "diverged"
        assert next(selects) > 11
        reader.close()


def test_claims_are_exclusive_and_run_out(study: StoredStudy) -> None:
    other = study.database.study(study.name)
    claims = [claimed(turn) for turn, _ in zip(itertools.cycle([study, other]), CELLS, strict=False)]
    assert sorted(claim.cell for claim in claims) == sorted(CELLS)
    assert study.claim("late") is None
    assert other.claim("late") is None
    assert study.counts().running == len(CELLS)
    for claim in claims:
        claim.release()


def test_failure_is_retried_with_its_cell_then_final(study: StoredStudy) -> None:
    first = claimed(study)
    assert first.attempt == 1
    assert first.fail("out of memory")
    assert states(study)[first.cell] == "WAITING"
    assert study.counts().failed == 0
    again = next(claim for claim in iter(lambda: study.claim("w"), None) if claim.attempt == 2)
    assert again.cell == first.cell
    assert again.fail("out of memory again")
    assert states(study)[first.cell] == "FAIL"
    assert study.counts().failed == 1
    reasons = [trial.reason for trial in study.trials() if trial.cell == first.cell]
    assert reasons == ["out of memory", "out of memory again"]
    assert plan(study) == 0
    assert plan(study, retry_failed=True) == 1
    assert states(study)[first.cell] == "WAITING"
    assert study.counts().failed == 0
    assert plan(study, retry_failed=True) == 0


def test_a_failure_that_is_free_spends_no_retry(study: StoredStudy) -> None:
    first = claimed(study)

    def next_try(number: int) -> Claim:
        return next(claim for claim in iter(lambda: study.claim("w"), None) if claim.attempt == number)

    assert first.fail("out of memory with 16", free=True)
    for number, size in ((2, 8), (3, 4)):
        again = next_try(number)
        assert again.cell == first.cell
        assert again.fail(f"out of memory with {size}", free=True)
    assert next_try(4).fail("killed")
    last = next_try(5)
    assert last.failure == "killed"
    assert last.fail("killed again")
    assert states(study)[first.cell] == "FAIL", "one retry is all that there was"


def test_failure_without_retry_is_final_at_once(study: StoredStudy) -> None:
    claim = claimed(study)
    claim.fail("diverged", retry=False)
    assert states(study)[claim.cell] == "FAIL"
    assert len(study.trials()) == len(CELLS)


def test_release_is_as_if_never_claimed(study: StoredStudy) -> None:
    claim = claimed(study)
    claim.report(0, 0.5)
    assert claim.release()
    assert study.counts().waiting == len(CELLS)
    [trial] = [trial for trial in study.trials() if trial.number == claim.number]
    assert (trial.state, trial.worker, trial.started) == ("WAITING", None, None)
    assert study.optuna_study.trials[claim.number].intermediate_values == {}
    others = [claimed(study, "other") for _ in CELLS]
    assert {other.attempt for other in others} == {1}
    # What it was is over: nothing the old holder does reaches the trial.
    assert not claim.finish(RECORD)
    assert not claim.fail("late")
    assert not claim.release()
    assert study.counts().running == len(CELLS)
    for other in others:
        other.release()


def test_dead_worker_is_reaped_and_fenced(study: StoredStudy) -> None:
    dead = claimed(study, "dead")
    die(dead)
    # 1 s is what the clocks of SQLite and MariaDB resolve.
    assert until(lambda: study.reap() == 1) >= 0.3
    assert states(study)[dead.cell] == "WAITING"
    assert not dead.finish(RECORD)
    assert dead.lost
    failed = [trial for trial in study.trials() if trial.state == "FAIL"]
    assert [trial.number for trial in failed] == [dead.number]
    assert failed[0].reason is not None
    assert failed[0].reason.startswith("worker dead stopped answering")
    assert failed[0].record is None
    retried = [trial for trial in study.trials() if trial.attempt == 2]
    assert [trial.cell for trial in retried] == [dead.cell]


def test_cell_that_kills_every_worker_is_given_up(sqlite_url: str) -> None:
    cell = Cell(-1, 1e-5, 1)
    database = Database.open(sqlite_url, create=True, heartbeat_seconds=0.4, grace_seconds=1.2, max_retries=1)
    alone = database.create_study("alone", {})
    plan(alone, [cell])
    for _ in range(2):
        die(claimed(alone))
        until(lambda: alone.reap() == 1)
    assert alone.claim("w") is None
    assert [(outcome.cell, outcome.state) for outcome in alone.outcomes()] == [(cell, "FAIL")]
    database.close()


def test_live_worker_keeps_its_lease_and_lost_one_learns_of_it(study: StoredStudy) -> None:
    claim = claimed(study)
    deadline = time.monotonic() + 2.5
    while time.monotonic() < deadline:
        assert study.reap() == 0
        time.sleep(0.1)
    assert not claim.lost
    study.database.optuna_storage.set_trial_state_values(claim.trial_id, optuna.trial.TrialState.FAIL)
    until(lambda: claim.lost)
    assert not claim.finish(RECORD)


def test_a_trial_that_another_tool_completed_is_not_ours(study: StoredStudy) -> None:
    """As optuna-dashboard's `tell` does."""
    claim = claimed(study)
    study.database.optuna_storage.set_trial_state_values(
        claim.trial_id, optuna.trial.TrialState.COMPLETE, [0.125]
    )
    assert not claim.finish(RECORD)
    assert claim.lost
    [trial] = [trial for trial in study.trials() if trial.state == "COMPLETE"]
    assert trial.record is not None
    assert trial.record.score == 0.125


def test_a_step_of_the_databases_clock_buries_nobody(
    study: StoredStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = claimed(study)
    die(claim)
    assert study.reap() == 0
    reaper, real = study._reaper, study._reaper._read
    monkeypatch.setattr(reaper, "_read", lambda: (real()[0] + timedelta(hours=1), real()[1]))
    monkeypatch.setattr(reaper._writability, "since", lambda: float("-inf"))
    [seen] = reaper._sightings.values()
    # A live worker is about to beat again; a dead one is not.
    for watched, dead in ((0.95 * 0.5, 0), (1.3 * 0.5, 1)):
        reaper._sightings[claim.trial_id] = Sighting(seen.heartbeat, time.monotonic() - watched)
        assert study.reap() == dead


def test_lease_outlives_errors(sqlite_url: str) -> None:
    database = Database.open(sqlite_url, create=True, heartbeat_seconds=0.5, grace_seconds=1.5)
    study = database.create_study("mrpc", {})
    plan(study)
    claim = claimed(study)
    real, broken = claim._lease._beat, []

    def beat() -> bool:
        if len(broken) < 3:
            broken.append(1)
            raise RuntimeError("the database says no")
        return real()

    claim._lease._beat = beat
    deadline = time.monotonic() + 2.5
    while time.monotonic() < deadline:
        assert study.reap() == 0
        time.sleep(0.1)
    assert len(broken) == 3
    assert claim.finish(RECORD)
    database.close()


class Deaf:
    """A connection that dies after the commit, before its answer: the next write is told that it failed."""

    def __init__(self, database: Database, monkeypatch: pytest.MonkeyPatch):
        self.deaf = False
        real = database.write

        @contextmanager
        def write() -> Iterator[Connection]:
            with real() as connection:
                yield connection
            if self.deaf:
                self.deaf = False
                raise OperationalError("COMMIT", None, Exception("server closed the connection unexpectedly"))

        monkeypatch.setattr(database, "write", write)

    def __call__(self, write: Callable[[], T]) -> T:
        self.deaf = True
        answer = write()
        assert not self.deaf
        return answer


def test_answers_lost_after_the_commit_change_nothing(
    study: StoredStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaf = Deaf(study.database, monkeypatch)
    claim = deaf(lambda: claimed(study))
    assert study.counts().running == 1
    deaf(lambda: claim.report(0, 0.25))
    deaf(lambda: claim.report(1, 0.5))
    assert deaf(lambda: claim.finish(RECORD))
    [trial] = [trial for trial in study.trials() if trial.state == "COMPLETE"]
    assert trial.record == RECORD
    assert study.optuna_study.trials[trial.number].intermediate_values == {0: 0.2, 1: 0.1 + 0.2}
    failing = claimed(study)
    assert deaf(lambda: failing.fail("again, please"))
    assert not failing.fail("for another reason")
    deaf(lambda: claimed(study).release())
    other = study.database.create_study(fresh("other"), {})
    deaf(lambda: plan(other))
    assert len(other.trials()) == len(CELLS)
    assert len(study.trials()) == len(CELLS) + 1
    counts = study.counts()
    assert (counts.waiting, counts.running, counts.complete) == (len(CELLS) - 1, 0, 1)


def test_lost_successor_is_planned_again(study: StoredStudy) -> None:
    """Plain Optuna fails a trial without a successor: the next plan repairs it, within the retries."""
    claim = claimed(study)
    die(claim)
    study.database.optuna_storage.set_trial_state_values(claim.trial_id, optuna.trial.TrialState.FAIL)
    assert states(study)[claim.cell] == "WAITING"
    assert plan(study) == 1
    assert plan(study) == 0
    again = next(one for one in iter(lambda: study.claim("w"), None) if one.attempt == 2)
    assert again.cell == claim.cell
    study.database.optuna_storage.set_trial_state_values(again.trial_id, optuna.trial.TrialState.FAIL)
    assert plan(study) == 0
    assert states(study)[claim.cell] == "FAIL"


def test_grid_sampler_agrees_which_cells_are_done(study: StoredStudy) -> None:
    sampler = optuna.samplers.GridSampler(SPACE)

    def open_cells() -> set[Cell]:
        names = sampler._param_names
        points = [
            sampler._all_grids[number] for number in sampler._get_unvisited_grid_ids(study.optuna_study)
        ]
        return {Cell(**dict(zip(names, point, strict=True))) for point in points}

    assert open_cells() == set(CELLS)
    done = [claimed(study) for _ in range(3)]
    for claim in done:
        claim.finish(RECORD)
    retried = claimed(study)
    retried.fail("again, please")
    given_up = claimed(study)
    given_up.fail("diverged", retry=False)
    finished = {claim.cell for claim in (*done, given_up)}
    assert open_cells() == set(CELLS) - finished
    while (claim := study.claim("w")) is not None:
        assert not sampler.is_exhausted(study.optuna_study)
        claim.finish(RECORD)
    assert sampler.is_exhausted(study.optuna_study)


def test_a_wider_space_reaches_the_trials_that_are_there(study: StoredStudy, shared_url: str) -> None:
    done = study.claim("w")
    assert done is not None
    done.finish(TrialRecord(metric="f1", score=0.9))
    beside = Database.open(shared_url).study(study.name)
    wider = {"frozen_layers": [0, 12], "learning_rate": [1e-5, 5e-5], "seed": [1, 9]}

    def refuse(kept: Mapping[str, object]) -> None:
        raise ValueError(str(kept["spec"]))

    with pytest.raises(ValueError, match="mrpc"):
        beside.extend({"spec": "wider"}, wider, refuse)
    assert study.attributes()["spec"] != "wider"
    beside.extend({"spec": "wider"}, wider, lambda kept: None)
    assert study.attributes()["spec"] == "wider"
    beside.database.close()
    trials = study.optuna_study.get_trials(deepcopy=False)
    assert {trial.distributions["seed"].high for trial in trials} == {9}  # type: ignore[attr-defined]
    assert {trial.distributions["frozen_layers"].high for trial in trials} == {12}  # type: ignore[attr-defined]


def test_study_is_made_once_with_its_attributes(database_url: str) -> None:
    database = Database.open(database_url, create=True)
    first = database.create_study("one", {"spec": "a", "recorded": True})
    second = database.create_study("one", {"spec": "b"})
    kept = {"spec": "a", "recorded": True, **Terms().attributes()}
    assert second.attributes() == first.attributes() == kept
    first.set_attribute("note", {"ü": [1, 2.5, None]})
    first.set_attribute("note", "🙂")
    assert second.attributes()["note"] == "🙂"
    assert database.create_study("One", {}).study_id != first.study_id
    assert database.study_names() == ["one", "One"]
    with pytest.raises(StorageError, match=r"no study 'two' in .*it has: one, One"):
        database.study("two")
    database.close()


def test_long_curves_and_reasons_fit(study: StoredStudy) -> None:
    metrics = {f"metric_{letter}": math.pi for letter in "abcdef"}
    curve = tuple(
        CurvePoint(epoch=n / 7, step=n, train_loss=math.nan if n == 3 else 1 / 3, metrics=metrics)
        for n in range(1500)
    )
    record = TrialRecord(metric="f1", score=0.5, curve=curve)
    claimed(study).finish(record)
    [trial] = [trial for trial in study.trials() if trial.state == "COMPLETE"]
    assert trial.record is not None
    assert math.isnan(trial.record.curve[3].train_loss)
    assert trial.record.curve[4:] == curve[4:]
    claimed(study).fail("x" * 100_000, retry=False)
    assert study.counts().failed == 1


def test_lock_has_one_holder(database: Database, shared_url: str) -> None:
    other = Database.open(shared_url)
    inside: list[int] = []
    most: list[int] = []

    def hold(one: Database) -> None:
        for _ in range(3):
            with one.lock("test"):
                inside.append(1)
                most.append(len(inside))
                time.sleep(0.02)
                inside.pop()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(hold, [database, other]))
    assert most == [1] * 6
    other.close()


def test_terms_belong_to_the_study_and_whoever_joins_takes_them_over(shared_url: str) -> None:
    name = fresh("terms")
    with closing(Database.open(shared_url, create=True, heartbeat_seconds=2, max_retries=7)) as maker:
        made = maker.create_study(name, {})
    # What was not asked for fits what was.
    assert made.terms == Terms(heartbeat_seconds=2, grace_seconds=60, max_retries=7)
    with closing(Database.open(shared_url)) as joiner:
        assert joiner.study(name).terms == joiner.create_study(name, {}).terms == made.terms
    with closing(
        Database.open(shared_url, heartbeat_seconds=2, grace_seconds=60, max_retries=7)
    ) as repeating:
        assert repeating.study(name).terms == made.terms
    with closing(Database.open(shared_url, heartbeat_seconds=1, grace_seconds=4)) as other:
        for join in (lambda: other.study(name), lambda: other.create_study(name, {})):
            with pytest.raises(SpecMismatch, match=rf"{name} .*--heartbeat 2 -> 1; --grace 60 -> 4 \(there"):
                join()


def test_a_study_from_before_terms_were_kept_has_the_defaults(shared_url: str) -> None:
    with closing(Database.open(shared_url, create=True)) as database:
        old = database.create_study(fresh("old"), {})
        with database.write() as connection:
            connection.execute(delete(STUDY_ATTRIBUTES).where(STUDY_ATTRIBUTES.c.study_id == old.study_id))
        assert database.study(old.name).terms == Terms(heartbeat_seconds=15, grace_seconds=60, max_retries=2)


def test_grace_must_cover_several_heartbeats(sqlite_url: str) -> None:
    for heartbeat, grace in ((0.1, 60.0), (0.25, 0.9), (float("nan"), 60.0)):
        with pytest.raises(UsageError, match=r"--heartbeat 0\.25 and --grace 1 or more"):
            Database.open("sqlite:///absent/x.db", heartbeat_seconds=heartbeat, grace_seconds=grace)
    with pytest.raises(UsageError, match="grace period of 2 s is too short for a heartbeat every 1 s"):
        Database.open(sqlite_url, create=True, heartbeat_seconds=1, grace_seconds=2)
    assert Wishes(heartbeat_seconds=60).terms().grace_seconds == 240
    assert Wishes(grace_seconds=20).terms().heartbeat_seconds == 5
