"""Many worker processes under one launcher: started, shown, restarted, stopped."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from launches import start, wait_until, write_table
from servers import Server

from objectives.contract import Cell, CurvePoint, StorageError, TrialRecord
from objectives.errors import GROUP_BROKEN, TIMED_OUT
from storage.database import Database
from storage.reading import Counts
from study import launch
from study.cli import command
from study.workers import restarts
from study.workers.devices import Share
from study.workers.event_lines import MOST_BYTES, decode, encode
from study.workers.events import Event
from study.workers.interrupts import handled_signals
from study.workers.restarts import Restarts
from study.workers.supervise import supervise

QUICK = ("--heartbeat", 0.4, "--grace", 1.5)


class Shown:
    """A display that remembers."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.events: list[Event] = []

    def event(self, event: Event) -> None:
        self.events.append(event)

    def state(self, worker: str, text: str) -> None:
        pass

    def note(self, text: str) -> None:
        self.notes.append(text)

    def tick(self) -> None:
        pass


def worker(program: str) -> list[str]:
    return [sys.executable, "-c", program]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_table(tmp_path / "table.csv")


def states(url: str) -> list[str]:
    """Of all trials; none while the launcher is not that far."""
    try:
        database = Database.open(url)
    except StorageError:
        return []
    try:
        return [trial.state for name in database.study_names() for trial in database.study(name).trials()]
    finally:
        database.close()


def _children(parent: int) -> list[int]:
    listed = Path(f"/proc/{parent}/task/{parent}/children")
    return [int(pid) for pid in listed.read_text().split()]


@pytest.mark.slow
def test_workers_share_a_study_and_a_killed_one_comes_back(
    tmp_path: Path, table: Path, sqlite_url: str
) -> None:
    launcher = start(
        ["--recorded", table, "--recorded-delay", 0.3, "--storage", sqlite_url, "--workers", 2, *QUICK],
        tmp_path,
    )
    wait_until(lambda: "COMPLETE" in states(sqlite_url), "a result")
    os.kill(_children(launcher.pid)[1], signal.SIGKILL)
    output, _ = launcher.communicate(timeout=600)
    assert launcher.returncode == 0, output
    found = states(sqlite_url)
    assert found.count("COMPLETE") == 20
    assert set(found) <= {"COMPLETE", "FAIL"}
    assert "was killed by SIGKILL, starts again in 1s" in output
    assert "tune " in output
    assert (tmp_path / "report").is_dir()
    logs = list((tmp_path / "cache" / "logs").glob("*/*.log"))
    assert len(logs) == 2
    assert str(logs[0].parent) in output
    assert {line.split()[0] for line in output.splitlines() if "f1 0." in line} >= {"w0"}


@pytest.mark.slow
@pytest.mark.parametrize(("signum", "code", "workers"), [(signal.SIGINT, 130, 2), (signal.SIGHUP, 129, 1)])
def test_a_signal_releases_every_trial(
    tmp_path: Path, table: Path, sqlite_url: str, signum: int, code: int, workers: int
) -> None:
    launcher = start(
        ["--recorded", table, "--recorded-delay", 600, "--storage", sqlite_url, "--workers", workers],
        tmp_path,
    )
    wait_until(lambda: states(sqlite_url).count("RUNNING") == workers, "running trials")
    launcher.send_signal(signum)
    wait_until(lambda: states(sqlite_url) == ["WAITING"] * 20, "released trials")
    output, _ = launcher.communicate(timeout=600)
    assert launcher.returncode == code
    assert "run the same command again" in output


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_passed_on_and_named_by_the_exit_code(tmp_path: Path, signum: signal.Signals) -> None:
    program = (
        "import pathlib, signal, sys, time; here = pathlib.Path(sys.argv[1])\n"
        f"signal.signal({int(signum)}, lambda *_: ((here / 'told').touch(), sys.exit(0)))\n"
        "(here / 'ready').touch(); time.sleep(600)"
    )

    def interrupt() -> None:
        wait_until((tmp_path / "ready").exists, "a worker")
        os.kill(os.getpid(), signum)

    threading.Thread(target=interrupt, daemon=True).start()
    assert supervise([*worker(program), str(tmp_path)], [Share()], Shown(), tmp_path) == 128 + signum
    assert (tmp_path / "told").exists()


def test_a_flood_of_events_makes_nobody_deaf(tmp_path: Path) -> None:
    """A display that cannot keep up with its workers must not keep a signal waiting."""

    class Slow(Shown):
        def event(self, event: Event) -> None:
            super().event(event)
            time.sleep(0.01)

    flood = 'print("\\n".join([\'{"kind": "idle", "worker": "w", "study": "s"}\'] * 10_000), flush=True)'
    shown = Slow()

    def interrupt() -> None:
        wait_until(lambda: len(shown.events) > 5, "events")
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=interrupt, daemon=True).start()
    code = supervise(worker(f"import time; {flood}; time.sleep(600)"), [Share()], shown, tmp_path)
    assert code == 128 + signal.SIGTERM
    assert len(shown.events) < 9_000, "it showed all of them first"


@pytest.mark.slow
def test_workers_release_their_trials_when_the_launcher_is_killed(
    tmp_path: Path, table: Path, sqlite_url: str
) -> None:
    launcher = start(
        ["--recorded", table, "--recorded-delay", 600, "--storage", sqlite_url, "--workers", 2], tmp_path
    )
    wait_until(lambda: states(sqlite_url).count("RUNNING") == 2, "two running trials")
    workers = _children(launcher.pid)
    launcher.kill()
    wait_until(lambda: states(sqlite_url) == ["WAITING"] * 20, "released trials")
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), "no worker left")
    launcher.communicate()


@pytest.mark.slow
def test_a_reader_that_leaves_ends_no_work(tmp_path: Path, table: Path, sqlite_url: str) -> None:
    """As `launch 2>&1 | head -4`."""
    launcher = start(
        ["--recorded", table, "--recorded-delay", 0.1, "--storage", sqlite_url, "--workers", 2],
        tmp_path,
    )
    assert launcher.stdout is not None
    for _ in range(4):
        launcher.stdout.readline()
    launcher.stdout.close()
    assert launcher.wait(600) == 0
    assert states(sqlite_url) == ["COMPLETE"] * 20
    assert list((tmp_path / "report").rglob("report.html"))


@pytest.mark.slow
def test_a_job_that_starts_while_the_database_is_away_waits_for_it(
    tmp_path: Path, postgresql: Server
) -> None:
    url, table = postgresql.new_url(), write_table(tmp_path / "small.csv", depths=2, seeds=1)
    assert launch.main(["--recorded", str(table), "--storage", url, "--workers", "0"]) == 0
    postgresql.stop()
    try:
        job = start(["mrpc-bert-base-grid", "--storage", url], tmp_path, "work")
        with pytest.raises(subprocess.TimeoutExpired):
            job.wait(6)
    finally:
        postgresql.start()
    output, _ = job.communicate(timeout=600)
    assert job.returncode == 0, output
    assert states(url) == ["COMPLETE"] * 2


def test_who_was_told_to_ignore_a_lost_terminal_does() -> None:
    """As `nohup` tells it."""
    assert signal.SIGHUP in handled_signals()
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert handled_signals() == [signal.SIGINT, signal.SIGTERM]
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_display_that_breaks_lets_the_workers_release_their_trials(tmp_path: Path) -> None:
    class Broken(Shown):
        def event(self, event: Event) -> None:
            raise RuntimeError("no such colour")

    program = (
        "import pathlib, signal, sys, time; here = pathlib.Path(sys.argv[1]); "
        "signal.signal(signal.SIGTERM, lambda *_: ((here / 'released').touch(), sys.exit(143))); "
        'print(\'{"kind": "idle", "worker": "w", "study": "s"}\', flush=True); time.sleep(600)'
    )
    with pytest.raises(RuntimeError, match="no such colour"):
        supervise([*worker(program), str(tmp_path)], [Share()], Broken(), tmp_path)
    assert (tmp_path / "released").exists()


@pytest.mark.slow
def test_a_trial_that_runs_too_long_is_ended_recorded_and_tried_again(
    tmp_path: Path, sqlite_url: str
) -> None:
    table = write_table(tmp_path / "one.csv", depths=1, seeds=1)
    limits = ["--recorded-delay", 600, "--trial-timeout", 1, "--max-retries", 1]
    launcher = start(["--recorded", table, *limits, "--storage", sqlite_url], tmp_path)
    output, _ = launcher.communicate(timeout=600)
    assert launcher.returncode == 1, output
    with closing(Database.open(sqlite_url)) as database:
        trials = database.study("mrpc-bert-base-grid").trials()
    assert [trial.state for trial in trials] == ["FAIL", "FAIL"]
    assert all((trial.reason or "").startswith("timed out: it ran for") for trial in trials)
    assert "ended a trial that ran too long, starts again" in output


FAULTS = {
    "error": "raise RuntimeError('boom')",
    "hang": "import time; time.sleep(3600)",
    "kill": "import os; os.kill(os.getpid(), 9)",
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_one_bad_depth_ends_no_launch_with_one_worker(
    tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """More deaths than a worker is allowed outside of trials, and all of them before the other cells."""
    (tmp_path / "sitecustomize.py").write_text(
        "from objectives.recorded import RecordedObjective as Recorded\n"
        "answer = Recorded.__call__\n"
        "def call(self, cell, *arguments, **options):\n"
        "    if cell.frozen_layers == 0:\n"
        f"        {FAULTS[fault]}\n"
        "    return answer(self, cell, *arguments, **options)\n"
        "Recorded.__call__ = call\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    table = write_table(tmp_path / "table.csv", depths=3, seeds=3)
    run = ["--recorded", table, "--storage", sqlite_url, "--study", "t", "--max-retries", 1, *QUICK]
    launched = start([*run, "--trial-timeout", 1], tmp_path)
    said = launched.communicate(timeout=600)[0]
    assert launched.returncode == 1, said
    with closing(Database.open(sqlite_url)) as database:
        counts = database.study("t").counts()
    assert (counts.complete, counts.failed, counts.open) == (6, 3, 0), said


@pytest.mark.slow
def test_an_error_in_one_trial_ends_no_launch_with_one_worker(
    tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "from objectives.recorded import RecordedObjective as Recorded\n"
        "answer = Recorded.__call__\n"
        "def call(self, cell, report, attempt=None):\n"
        "    if (cell.frozen_layers, cell.seed, attempt.number) == (0, 1, 1):\n"
        "        raise RuntimeError('boom')\n"
        "    return answer(self, cell, report, attempt)\n"
        "Recorded.__call__ = call\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    table = write_table(tmp_path / "table.csv", depths=2, seeds=2)
    launched = start(["--recorded", table, "--storage", sqlite_url, "--study", "t"], tmp_path)
    said = launched.communicate(timeout=600)[0]
    assert launched.returncode == 0, said
    with closing(Database.open(sqlite_url)) as database:
        trials = database.study("t").trials()
    assert [trial.reason for trial in trials if trial.reason] == ["RuntimeError: boom"]


@pytest.mark.slow
def test_a_stopped_launcher_holds_no_worker_up(tmp_path: Path, sqlite_url: str) -> None:
    table = write_table(tmp_path / "many.csv", depths=13, seeds=40)
    launcher = start(["--recorded", table, "--storage", sqlite_url, "--workers", 1], tmp_path)
    wait_until(lambda: "COMPLETE" in states(sqlite_url), "the first results")
    launcher.send_signal(signal.SIGSTOP)
    try:
        wait_until(lambda: set(states(sqlite_url)) == {"COMPLETE"}, "all results", seconds=600)
    finally:
        launcher.send_signal(signal.SIGCONT)
    output, _ = launcher.communicate(timeout=600)
    assert launcher.returncode == 0, output


def test_a_pipe_that_breaks_elsewhere_is_no_success() -> None:
    def main(_: object) -> int:
        raise BrokenPipeError("of a database")

    with pytest.raises(BrokenPipeError):
        command.run(main, [])


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.slow
def test_a_terminal_shows_one_table(tmp_path: Path, table: Path, sqlite_url: str, workers: int) -> None:
    inside, outside = pty.openpty()
    launcher = start(
        ["--recorded", table, "--recorded-delay", 0.1, "--storage", sqlite_url, "--workers", workers],
        tmp_path,
        stdout=outside,
        stderr=outside,
    )
    os.close(outside)
    shown = b""
    while True:
        try:
            shown += os.read(inside, 65536)
        except OSError:
            break
    os.close(inside)
    assert launcher.wait(600) == 0
    text = shown.decode()
    for heading in ("worker", "trains", "loss", "f1", "left"):
        assert heading in text
    assert "frozen, 3e-05, seed" in text
    assert "[20/20, 0s left]" in text


def test_quick_deaths_end_in_giving_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarts, "FIRST_PAUSE_SECONDS", 0.01)
    shown = Shown()
    code = supervise(worker("import sys; sys.exit('no luck today')"), [Share()], shown, tmp_path)
    assert code == 1
    assert len(shown.notes) == restarts.QUICK_DEATHS
    assert "will not be restarted" in shown.notes[-1]
    assert "no luck today" in shown.notes[-1]
    assert str(next(tmp_path.glob("*.log"))) in shown.notes[-1]


def test_a_group_that_ends_to_take_a_smaller_micro_batch_is_not_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restarts, "FIRST_PAUSE_SECONDS", 0.01)
    shown, size, code = Shown(), tmp_path / "size", GROUP_BROKEN
    size.write_text("128")
    program = f"""
import json, pathlib, sys, time
file = pathlib.Path({str(size)!r})
size = int(file.read_text())
file.write_text(str(size // 2))
reason = f"rank 1 failed: out of memory with a micro-batch of {{size}}: tried to allocate 2 GiB"
if size > 1:
    for kind in ("claimed", "failed"):
        event = {{"kind": kind, "worker": sys.argv[-1], "study": "s", "reason": reason}}
        print(json.dumps(event), flush=True)
    time.sleep(0.3)
sys.exit({code} if size > 1 else 0)
"""
    assert supervise(worker(program), [Share()], shown, tmp_path) == 0
    assert len(shown.events) == 14
    assert not any("not be restarted" in text for text in shown.notes)


@pytest.mark.parametrize("code", restarts.HOPELESS)
def test_what_cannot_succeed_is_not_tried_again(tmp_path: Path, code: int) -> None:
    shown = Shown()
    assert supervise(worker(f"raise SystemExit({code})"), [Share()], shown, tmp_path) == code
    assert len(shown.notes) == 1


def test_who_left_because_all_is_done_is_not_started_again(tmp_path: Path) -> None:
    shown = Shown()
    program = "import os; open('started', 'a').write('x')"
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        assert supervise(worker(program), [Share(), Share()], shown, tmp_path) == 0
    finally:
        os.chdir(before)
    assert (tmp_path / "started").read_text() == "xx"
    assert shown.notes == []


def test_each_worker_sees_its_own_gpus_and_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    program = "import os, sys; names = ('CUDA_VISIBLE_DEVICES', 'OMP_NUM_THREADS'); "
    program += "print(*map(os.environ.get, names), file=sys.stderr)"
    shares = [Share(devices=("0", "1"), threads=3), Share(devices=("MIG-aaa",), threads=3)]
    assert supervise(worker(program), shares, Shown(), tmp_path) == 0
    said = [log.read_text().splitlines()[-1] for log in sorted(tmp_path.glob("*.log"))]
    assert said == ["0,1 3", "MIG-aaa 3"]


def test_a_second_sigint_ends_at_once(tmp_path: Path) -> None:
    stubborn = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(600)"
    program = f"""
import sys
from pathlib import Path
from study.workers import supervise
from study.workers.devices import Share
supervise.STOP_SECONDS = 3600
command = [sys.executable, "-c", {stubborn!r}]
supervise.supervise(command, [Share()], supervise.Nothing(), Path({str(tmp_path)!r}))
"""
    supervisor = subprocess.Popen([sys.executable, "-c", program])
    wait_until(lambda: len(_children(supervisor.pid)) == 1, "a worker")
    child = _children(supervisor.pid)[0]
    wait_until(lambda: "SIGINT" not in _handled(child), "a worker that ignores SIGINT")
    supervisor.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert supervisor.poll() is None

    def ended() -> bool:
        # Signals that come at once are one signal.
        supervisor.send_signal(signal.SIGINT)
        return supervisor.poll() is not None

    wait_until(ended, "the supervisor has ended")
    assert supervisor.returncode == 130
    wait_until(lambda: not Path(f"/proc/{child}").exists(), "no worker left")


def _handled(pid: int) -> str:
    """SIGINT, unless the process ignores it."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigIgn:") and int(line.split()[1], 16) & (1 << (signal.SIGINT - 1)):
            return ""
    return "SIGINT"


def test_pauses_grow_and_work_forgives() -> None:
    policy = Restarts()
    assert [policy.died(1, 2.0) for _ in range(3)] == [1.0, 2.0, 4.0]
    policy.follow("finished")
    assert policy.died(-9, 2.0) == 1.0
    assert policy.died(1, restarts.LONG_LIFE_SECONDS) == 1.0
    assert policy.died(2, 1e6) is None


def test_a_death_in_a_trial_is_the_trials() -> None:
    policy = Restarts()
    for _ in range(20):
        policy.follow("claimed")
        assert policy.died(-9, 2.0) == 1.0
    pauses = []
    for _ in range(5):
        policy.follow("claimed")
        # It gave the trial back: not the trial, but this worker cannot.
        policy.follow("released")
        pauses.append(policy.died(6, 2.0))
    assert pauses == [1.0, 2.0, 4.0, 8.0, None]


def test_no_exit_code_of_workers_among_themselves_reaches_people(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restarts, "FIRST_PAUSE_SECONDS", 0.01)
    code = supervise(worker(f"raise SystemExit({TIMED_OUT})"), [Share(threads=1)], Shown(), tmp_path)
    assert code == 1


@pytest.mark.parametrize(
    "event",
    [
        Event(kind="claimed", worker="a", study="s", cell=Cell(0, 3e-5, 1, 50), number=3, attempt=2),
        Event(
            kind="reported",
            worker="a",
            study="s",
            cell=Cell(-1, 1e-5, 1),
            index=0,
            point=CurvePoint(epoch=0.5, step=10, train_loss=0.1, metrics={"f1": 0.123456789}),
        ),
        Event(
            kind="finished", worker="a", study="s", record=TrialRecord(metric="f1", score=0.5), seconds=1.5
        ),
        Event(kind="failed", worker="a", study="s", reason='out of memory: "x"\nline', seconds=2.0),
        Event(kind="idle", worker="a", study="s", counts=Counts(waiting=1, running=2, complete=3, failed=4)),
    ],
)
def test_events_survive_the_pipe(event: Event) -> None:
    line = encode(event)
    assert "\n" not in line
    assert decode(line) == event


@pytest.mark.parametrize("character", ["é", "😀", '"', "x"])
def test_a_long_reason_is_cut_so_that_its_event_fits_the_pipe(character: str) -> None:
    said = character * 5000
    event = decode(encode(Event(kind="failed", worker="w" * 100, study="é" * 200, reason=said)))
    assert event is not None
    assert len(encode(event)) < MOST_BYTES
    assert event.reason
    assert said.startswith(event.reason)
    assert len(event.reason) > 100


@pytest.mark.parametrize("line", ["", "Downloading...", "{}", "[1]", '{"kind": "claimed"}', "{"])
def test_other_lines_are_no_events(line: str) -> None:
    assert decode(line) is None
