"""Processes that train one trial together: they fail together, end together, and nothing hangs."""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
import tiny
from launches import environment, processes, start, wait_until, write_table

from objectives.contract import Attempt, Cell, StorageError
from objectives.errors import GROUP_BROKEN
from objectives.training.micro_batches import failure
from storage.database import Database
from storage.reading import StoredTrial
from study.workers import process_group
from study.workers.process_group import group_environments
from study.workers.ranks import GroupObjective

RANK = """
import json, os, signal, sys, time
rank = int(os.environ["ELSA_RANK"])
def say(reason, retry):
    print("@rank " + json.dumps({"reason": reason, "retry": retry}), flush=True)
def hear():
    return json.loads(sys.stdin.readline())
"""


def lead(program: str, ranks: int = 2) -> int:
    """A leader over ranks that run `program`, which knows its `rank` and may `say` failures and `hear`."""
    command = [sys.executable, "-c", RANK + program]
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return process_group._Leader(command, group_environments(os.environ, ranks)).run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_every_rank_hears_who_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    first, second = group_environments(os.environ, 2)
    assert (first["RANK"], first["LOCAL_RANK"], first["WORLD_SIZE"]) == ("0", "0", "2")
    assert (second["RANK"], second["LOCAL_RANK"], second["WORLD_SIZE"]) == ("1", "1", "2")
    assert first["MASTER_PORT"] == second["MASTER_PORT"]
    assert first["ACCELERATE_USE_CPU"] == "true"
    assert "ACCELERATE_USE_CPU" not in group_environments({"CUDA_VISIBLE_DEVICES": "0,1"}, 2)[0]


def test_lines_of_rank_0_are_passed_on_and_the_rest_is_ended_with_it(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert lead("print('event of', rank, flush=True); rank and time.sleep(60)") == 0
    assert capfd.readouterr().out == "event of 0\n"


def test_a_failure_that_all_ranks_share_leaves_the_group_whole() -> None:
    assert lead("say('diverged', False); assert hear() == {'verdict': 'go on'}; time.sleep(0.2)", 3) == 0


def test_a_failure_of_one_rank_breaks_the_group(capfd: pytest.CaptureFixture[str]) -> None:
    program = """
if rank == 2:
    say('out of memory', True)
    time.sleep(60)
if rank == 0:
    print(hear(), flush=True)
    sys.exit(75)
time.sleep(60)
"""
    assert lead(program, 3) == GROUP_BROKEN
    assert "'rank 2 failed: out of memory'" in capfd.readouterr().out


def test_a_failure_that_not_all_ranks_share_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(process_group, "AGREE_SECONDS", 0.3)
    program = (
        "rank or say('diverged', False); rank and time.sleep(60); print(hear(), flush=True); sys.exit(75)"
    )
    assert lead(program) == GROUP_BROKEN
    assert "'rank 0 failed: diverged'" in capfd.readouterr().out


def test_a_rank_that_cannot_begin_has_the_trial_released(capfd: pytest.CaptureFixture[str]) -> None:
    program = """
if rank == 1:
    print("@rank " + json.dumps({"reason": "no device", "retry": True, "release": True}), flush=True)
    time.sleep(60)
print(hear(), flush=True)
sys.exit(75)
"""
    assert lead(program) == GROUP_BROKEN
    assert "'reason': 'rank 1 failed: no device', 'release': True" in capfd.readouterr().out


def test_a_signal_before_there_is_a_rank_to_hear_it_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    real = process_group._Leader._start

    def start(leader: process_group._Leader, number: int, environment: dict[str, str]) -> None:
        if number == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        real(leader, number, environment)

    monkeypatch.setattr(process_group._Leader, "_start", start)
    assert lead("time.sleep(60)") == 128 + signal.SIGTERM


def test_the_death_of_one_rank_breaks_the_group(capfd: pytest.CaptureFixture[str]) -> None:
    program = "rank and os.kill(os.getpid(), signal.SIGKILL); print(hear(), flush=True); sys.exit(75)"
    assert lead(program) == GROUP_BROKEN
    assert "'rank 1 was killed by SIGKILL'" in capfd.readouterr().out


def test_a_rank_0_that_cannot_leave_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_group, "LEAVE_SECONDS", 0.3)
    assert lead("rank and sys.exit(1); time.sleep(60)") == 128 + signal.SIGKILL


def trials(url: str) -> list[StoredTrial]:
    """All there are; none while the launcher is not that far."""
    try:
        database = Database.open(url)
    except StorageError:
        return []
    try:
        return [trial for name in database.study_names() for trial in database.study(name).trials()]
    finally:
        database.close()


def test_a_new_group_knows_what_did_not_fit_before_it() -> None:
    def ended(depth: int, reason: str | None) -> SimpleNamespace:
        return SimpleNamespace(cell=Cell(depth, 1e-3, 1), reason=reason)

    reasons = [
        failure(16, "tried to allocate"),
        failure(8, "tried to allocate"),
        "was killed by SIGKILL",
        None,
    ]
    study = SimpleNamespace(trials=lambda: [ended(6, reason) for reason in reasons])
    group = GroupObjective(SimpleNamespace(study=study), None, print)  # type: ignore[arg-type]
    assert group._failure(Cell(6, 1e-4, 2), Attempt()) == reasons[1]
    assert group._failure(Cell(9, 1e-4, 2), Attempt()) is None
    assert group._failure(Cell(6, 1e-4, 2), Attempt(number=2, failure="diverged")) == "diverged"


@pytest.mark.slow
def test_a_worker_of_two_processes_finishes_its_study_although_a_rank_is_killed(
    tmp_path: Path, sqlite_url: str
) -> None:
    tiny.save_model("bert", tmp_path / "model")
    tiny.save_data(tmp_path / "data")
    grid = ["--frozen-layers", 2, "--learning-rates", "1e-3", "--seeds", 1, "--epochs", 3]
    workers = ["--batch-size", 8, "--workers", 1, "--processes-per-trial", 2]
    subject = ["--task", "sst2", "--model", tmp_path / "model", "--data", tmp_path / "data"]
    launcher = start([*subject, *grid, *workers, "--storage", sqlite_url], tmp_path)

    worker = f"{os.uname().nodename}-{launcher.pid}-w0"

    def reports() -> int:
        assert launcher.poll() is None, launcher.communicate()[0]
        return connection.execute("SELECT count(*) FROM trial_intermediate_values").fetchone()[0]

    wait_until(lambda: bool(trials(sqlite_url)), "a planned study")
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), timeout=600)) as connection:
        connection.isolation_level = None
        while True:
            # While nobody else can write, the trial cannot end.
            connection.execute("BEGIN IMMEDIATE")
            if reports():
                break
            connection.execute("ROLLBACK")
            time.sleep(0.05)
        (victim,) = [pid for pid in processes("--events", worker) if "ELSA_RANK=1" in environment(pid)]
        os.kill(victim, signal.SIGKILL)
        connection.execute("ROLLBACK")
    output, _ = launcher.communicate(timeout=600)
    assert launcher.returncode == 0, output
    assert [(trial.state, trial.reason, trial.attempt) for trial in trials(sqlite_url)] == [
        ("FAIL", "rank 1 was killed by SIGKILL", 1),
        ("COMPLETE", None, 2),
    ]
    (complete,) = [trial.record for trial in trials(sqlite_url) if trial.record is not None]
    assert complete.processes == 2
    assert f"{worker} lost one of its processes, starts again" in output


@pytest.mark.slow
def test_a_trial_that_fails_on_all_ranks_costs_no_restart_and_a_signal_releases(
    tmp_path: Path, sqlite_url: str
) -> None:
    table = write_table(tmp_path / "table.csv", depths=4, seeds=2)
    rows = table.read_text().splitlines()
    failing = [row.replace("COMPLETE", "FAIL") if row.split(",")[5] == "2" else row for row in rows]
    table.write_text("\n".join(failing) + "\n")
    common = ["--storage", sqlite_url, "--workers", 1, "--processes-per-trial", 2]
    launcher = start(["--recorded", table, "--recorded-delay", 2, "--max-retries", 0, *common], tmp_path)

    def states() -> set[str]:
        assert launcher.poll() is None, launcher.communicate()[0]
        return {trial.state for trial in trials(sqlite_url)}

    wait_until(lambda: states() >= {"COMPLETE", "FAIL", "RUNNING"}, "trials of every state", seconds=600)
    launcher.send_signal(signal.SIGINT)
    output, _ = launcher.communicate(timeout=600)
    assert launcher.returncode == 130, output
    assert "starts again" not in output
    assert {trial.state for trial in trials(sqlite_url)} <= {"COMPLETE", "FAIL", "WAITING"}
    assert not processes("--events", f"{os.uname().nodename}-{launcher.pid}-w0")
