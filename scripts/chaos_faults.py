"""The faults of chaos.py: what is done to a running study, each in a function that takes its stage."""

# ruff: noqa: E402 - the test servers are found by path

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from chaos_stage import STUDY, Stage
from sqlalchemy import select, update

from storage import counting
from storage.claims import lock
from storage.database import Database
from storage.rows import lock_study
from storage.schema import HEARTBEATS

FORK = multiprocessing.get_context("fork")
SERVERS = frozenset({"postgresql", "pgbouncer", "mariadb"})
ALL = SERVERS | {"sqlite"}


@dataclass(frozen=True)
class Scenario:
    """A fault, from the first launch to the point where the study is left to end by itself."""

    name: str
    run: Callable[[Stage], None]
    databases: frozenset[str] = ALL
    max_retries: int = 20
    small_disk: bool = False
    """The database lies on a small file system of its own, which can be filled."""


def killed_workers(stage: Stage) -> None:
    stage.begin()
    for _ in range(3):
        stage.kill_worker()
        time.sleep(0.5)


def killed_launcher(stage: Stage) -> None:
    stage.begin()
    stage.kill_launcher()
    stage.launch()


def killed_while_planning(stage: Stage) -> None:
    for _ in range(3):
        stage.launch()
        stage.wait_for(lambda: _exists(stage), "the study is there")
        time.sleep(stage.draw.uniform(0, 0.3))
        stage.kill_launcher()
    stage.launch()


def _exists(stage: Stage) -> bool:
    with suppress(Exception), stage.study():
        return True
    return False


def stopped_launcher(stage: Stage) -> None:
    """Its workers must not notice."""
    stage.begin(delay=0.3)
    launcher = stage.launchers[-1]
    launcher.send_signal(signal.SIGSTOP)
    before = stage.complete()
    time.sleep(stage.size.grace_seconds)
    done = stage.complete() - before
    launcher.send_signal(signal.SIGCONT)
    if not done:
        raise RuntimeError("the workers stood still while their launcher was stopped")


def frozen_worker(stage: Stage) -> None:
    """For longer than the grace period: its trial is another's when it wakes up."""
    stage.begin(delay=0.3)
    pid = stage.freeze_worker()
    assert pid is not None
    time.sleep(stage.size.slow_seconds)
    os.kill(pid, signal.SIGCONT)


def _hold(url: str, ready: Any) -> None:
    database = Database.open(url)
    study = database.study(STUDY)
    with database.write() as connection:
        lock_study(connection, study.study_id, study.name)
        for trial_id, _ in counting.waiting_trials(connection, study.study_id)[:2]:
            lock(connection, trial_id)
        ready.set()
        time.sleep(3600)


def frozen_in_a_transaction(stage: Stage) -> None:
    """A process that stops with the locks of the study and of trials in hand.

    Servers end its transaction. SQLite has nobody who could: there it must go on or be killed.
    """
    stage.begin()
    ready = FORK.Event()
    holder = FORK.Process(target=_hold, args=(stage.url, ready))
    holder.start()
    assert holder.pid is not None
    try:
        stage.wait_for(ready.is_set, "a process has the locks")
        with stage.without_database():
            os.kill(holder.pid, signal.SIGSTOP)
            if stage.kind == "sqlite":
                time.sleep(stage.size.grace_seconds + 2 * stage.size.heartbeat_seconds)
                holder.kill()
    finally:
        holder.kill()
        holder.join()


@contextmanager
def writes_blocked(stage: Stage) -> Iterator[None]:
    """Reads work, writes do not."""
    if stage.server is None:
        path = stage.url.removeprefix("sqlite:///")
        blocker = sqlite3.connect(path, isolation_level=None, timeout=60)
        blocker.execute("BEGIN IMMEDIATE")
        yield
        blocker.execute("ROLLBACK")
        blocker.close()
        return
    with stage.server.connect() as owner:
        if stage.server.kind == "mariadb":
            with owner.cursor() as cursor:
                cursor.execute("FLUSH TABLES WITH READ LOCK")
                yield
                cursor.execute("UNLOCK TABLES")
            return
        name = stage.url.rsplit("/", 1)[1]
        for state in ("on", "off"):
            owner.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = {state}')
            owner.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
            )
            if state == "on":
                yield


def blocked_writes(stage: Stage) -> None:
    _endure(stage, writes_blocked(stage))


def full_disk(stage: Stage) -> None:
    _endure(stage, _disk_filled(stage))


def _endure(stage: Stage, fault: AbstractContextManager[None]) -> None:
    """A fault that lasts for longer than the grace period, and takes no worker's life."""
    stage.begin()
    with stage.without_database(), fault:
        before = _standstill(stage)
        time.sleep(stage.size.grace_seconds + 3 * stage.size.heartbeat_seconds)
        if stage.complete() != before or before == len(stage.cells):
            raise RuntimeError("results were written all the while: there was no fault to endure")


def _standstill(stage: Stage) -> int:
    """The complete cells once none is added: a server may have reserved room on its disk for some more."""
    done = -1
    while done != (done := stage.complete()):
        time.sleep(2.0)
    return done


@contextmanager
def _disk_filled(stage: Stage) -> Iterator[None]:
    place = stage.server.folder if stage.server is not None else stage.folder / "disk"
    ballast = place / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    yield
    ballast.unlink()
    if stage.server is not None and stage.server.ended:
        # It has given itself up; somebody starts it again.
        stage.server.start()


def restarted_database(stage: Stage) -> None:
    assert stage.server is not None
    stage.begin()
    with stage.without_database():
        stage.server.stop()
        time.sleep(stage.size.grace_seconds + stage.size.heartbeat_seconds)
        stage.server.start()


def stopped_backend(stage: Stage) -> None:
    """The server process behind one connection hangs; of a server with threads, the whole of it."""
    assert stage.server is not None
    stage.begin(delay=0.3)
    if stage.server.kind == "mariadb":
        pids = [stage.server.pid]
    else:
        with stage.server.connect() as owner:
            found = owner.execute(
                "SELECT pid FROM pg_stat_activity WHERE datname = %s ORDER BY pid",
                (stage.url.rsplit("/", 1)[1],),
            ).fetchall()
        pids = [stage.draw.choice([row[0] for row in found])]
    seconds = stage.size.grace_seconds + 3 * stage.size.heartbeat_seconds
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    stopped = time.monotonic()
    gone = datetime.now(UTC)
    time.sleep(seconds)
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    assert time.monotonic() - stopped >= seconds
    stage.away.append((gone, datetime.now(UTC)))


def clock_put_back(stage: Stage) -> None:
    """By an hour, as the database sees it: all heartbeats lie in the future, until their workers send others.

    Those of the dead stay there."""
    stage.begin(delay=0.3)
    stage.kill_worker()
    later = timedelta(hours=1)
    with stage.study() as study, study.database.write() as connection:
        for trial_id, heartbeat in connection.execute(
            select(HEARTBEATS.c.trial_id, HEARTBEATS.c.heartbeat)
        ).all():
            own = HEARTBEATS.c.trial_id == trial_id
            connection.execute(update(HEARTBEATS).where(own).values(heartbeat=heartbeat + later))


def hung_trial(stage: Stage) -> None:
    """A launcher whose every trial hangs, and is ended after two seconds, beside one whose trials do not."""
    stage.launch("--trial-timeout", 2, workers=1, delay=3600)
    stage.wait_for(lambda: _exists(stage) and stage.running(), "a trial hangs")
    stage.launch(delay=0.2)


def poisoned_cell(stage: Stage) -> None:
    """A cell that kills whoever runs it, and is given up after its retries."""
    poisoned = next(iter(sorted(stage.cells)))
    stage.hopeless.add(poisoned)
    over = threading.Event()

    def poison() -> None:
        while not over.wait(0.05):
            with suppress(Exception):
                workers = stage.workers()
                for worker, trials in stage.running().items():
                    if worker not in workers or poisoned not in [cell for _, cell in trials]:
                        continue
                    # Under load it may have gone on to another cell: look again while it stands still.
                    os.kill(workers[worker], signal.SIGSTOP)
                    for number, cell in stage.running().get(worker, []):
                        if cell == poisoned and number not in stage.victims:
                            stage.victims[number] = datetime.now(UTC)
                            os.kill(workers[worker], signal.SIGKILL)
                    os.kill(workers[worker], signal.SIGCONT)

    killer = threading.Thread(target=poison, daemon=True)
    killer.start()
    try:
        stage.launch(delay=0.5)
        stage.finish()
    finally:
        over.set()
        killer.join()


def extended(stage: Stage) -> None:
    """A second launcher with half as many seeds again, in the middle of the first one's run."""
    stage.begin(share=0.3)
    stage.seeds += stage.size.seeds // 2
    stage.launch("--extend")


def second_launcher(stage: Stage) -> None:
    stage.begin()
    stage.launch()


SCENARIOS = [
    Scenario("workers killed", killed_workers),
    Scenario("launcher killed", killed_launcher),
    Scenario("launcher killed while planning", killed_while_planning),
    Scenario("launcher stopped", stopped_launcher),
    Scenario("second launcher", second_launcher),
    Scenario("extended in mid-run", extended),
    Scenario("worker frozen", frozen_worker),
    Scenario("frozen in a transaction", frozen_in_a_transaction),
    Scenario("writes blocked", blocked_writes),
    Scenario("disk full", full_disk, small_disk=True),
    Scenario("database restarted", restarted_database, SERVERS),
    Scenario("server process stopped", stopped_backend, SERVERS),
    Scenario("clock put back", clock_put_back),
    Scenario("hung trial", hung_trial),
    Scenario("poisoned cell", poisoned_cell, max_retries=2),
]
