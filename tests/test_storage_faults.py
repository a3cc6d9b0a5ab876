"""Faults beside plain death: blocked writes, frozen processes, stopped servers, clocks put back."""

from __future__ import annotations

import itertools
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from launches import wait_until
from processes import CLEAN
from servers import Server
from sqlalchemy import select, update

from objectives.contract import Cell, TrialRecord
from storage.claims import lock
from storage.database import Database
from storage.rows import lock_study
from storage.schema import HEARTBEATS
from storage.studies import StoredStudy

SPACE = {"frozen_layers": [0, 1], "learning_rate": [1e-5], "seed": [1, 2]}
CELLS = [Cell(*point) for point in itertools.product(*SPACE.values())]
RECORD = TrialRecord(metric="f1", score=0.5)
HEARTBEAT, GRACE = 0.5, 1.5


def open_planned(url: str, heartbeat: float = HEARTBEAT, grace: float = GRACE) -> Database:
    database = Database.open(url, create=True, heartbeat_seconds=heartbeat, grace_seconds=grace)
    database.create_study("mrpc", {}).plan(lambda outcomes: CELLS, space=SPACE)
    return database


@contextmanager
def reaping(study: StoredStudy, pause: float = HEARTBEAT / 4) -> Iterator[list[int]]:
    """As a worker does in the background; the trials that were reaped."""
    stop, found = threading.Event(), list[int]()

    def reap() -> None:
        while not stop.wait(pause):
            with suppress(Exception):
                found.append(study.reap())

    thread = threading.Thread(target=reap, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join(600)


@contextmanager
def sqlite_lock(path: Path) -> Iterator[None]:
    """Somebody else's write lock: a backup, a person with a database browser."""
    blocker = sqlite3.connect(path, isolation_level=None, timeout=600)
    blocker.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        blocker.execute("ROLLBACK")
        blocker.close()


@contextmanager
def refused(server: Server, url: str) -> Iterator[None]:
    """PostgreSQL that answers reads and refuses writes."""
    name = url.rsplit("/", 1)[1]
    with server.connect() as owner:

        def refuse(state: str) -> None:
            owner.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = {state}')
            owner.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
            )

        refuse("on")
        yield
        refuse("off")


@contextmanager
def held(server: Server) -> Iterator[None]:
    """MariaDB that answers reads and lets writes wait, as during a backup."""
    with server.connect() as owner, owner.cursor() as cursor:
        cursor.execute("FLUSH TABLES WITH READ LOCK")
        yield
        cursor.execute("UNLOCK TABLES")


def blocked(kind: str, server_of: Callable[[str], Server], url: str) -> AbstractContextManager[None]:
    if kind == "sqlite":
        return sqlite_lock(Path(url.removeprefix("sqlite:///")))
    return refused(server_of(kind), url) if kind == "postgresql" else held(server_of(kind))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mariadb"])
def test_nobody_is_reaped_while_nobody_can_write(
    kind: str, server_of: Callable[[str], Server], sqlite_url: str
) -> None:
    """Writes block for longer than the grace period while reads work: every heartbeat is old."""
    url = sqlite_url if kind == "sqlite" else server_of(kind).new_url()
    database, watcher = open_planned(url), Database.open(url)
    study = database.study("mrpc")
    claims = [study.claim(f"worker-{number}") for number in range(3)]
    with reaping(watcher.study("mrpc")) as reaped:
        time.sleep(2 * HEARTBEAT)
        with blocked(kind, server_of, url):
            time.sleep(GRACE + 3 * HEARTBEAT)
        time.sleep(4 * HEARTBEAT)
        assert sum(reaped) == 0
        assert all(claim is not None and claim.finish(RECORD) for claim in claims)
    for each in (database, watcher):
        each.close()


def test_a_trial_that_died_while_nobody_could_write_is_reaped_afterwards(sqlite_url: str) -> None:
    database, watcher = open_planned(sqlite_url), Database.open(sqlite_url)
    claim = database.study("mrpc").claim("dead")
    assert claim is not None
    claim._lease.stop()
    with reaping(watcher.study("mrpc")) as reaped:
        with sqlite_lock(database.address.path):
            time.sleep(GRACE + HEARTBEAT)
            assert sum(reaped) == 0
        wait_until(lambda: sum(reaped) == 1, "the dead trial is reaped")
    for each in (database, watcher):
        each.close()


def _hold(url: str, ready: Any, trial_id: int, with_study: bool) -> None:
    """A process that stops in the middle of a transaction on its trial."""
    database = Database.open(url)
    study = database.study("mrpc")
    with database.write() as connection:
        if with_study:
            lock_study(connection, study.study_id, study.name)
        lock(connection, trial_id)
        ready.set()
        time.sleep(600)


def _hold_through_optuna(url: str, ready: Any) -> None:
    """A publisher or a dashboard that stops while it writes a note."""
    database = Database.open(url)
    study = database.study("mrpc")
    with database.optuna_storage.engine.begin() as connection:
        lock_study(connection, study.study_id, study.name)
        ready.set()
        time.sleep(600)


def _hold_plan(url: str, ready: Any) -> None:
    database = Database.open(url)
    database.study("mrpc")
    with database.lock("plan mrpc"):
        ready.set()
        time.sleep(600)


def frozen_holder(url: str, trial_id: int, *, with_study: bool = False) -> AbstractContextManager[int]:
    return frozen(_hold, url, trial_id, with_study)


@contextmanager
def frozen(hold: Callable[..., None], url: str, *arguments: object) -> Iterator[int]:
    ready = CLEAN.Event()
    process = CLEAN.Process(target=hold, args=(url, ready, *arguments))
    process.start()
    assert process.pid is not None
    try:
        assert ready.wait(600)
        os.kill(process.pid, signal.SIGSTOP)
        yield process.pid
    finally:
        process.kill()
        process.join()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_process_frozen_with_its_trials_lock_holds_up_nobody(
    kind: str, server_of: Callable[[str], Server]
) -> None:
    database = open_planned(server_of(kind).new_url(), heartbeat=1.0, grace=4.0)
    study = database.study("mrpc")
    first, second = study.claim("frozen"), study.claim("living")
    assert first is not None
    assert second is not None
    first._lease.stop()
    with frozen_holder(database.address.text, first.trial_id), reaping(study) as reaped:
        began = time.monotonic()
        while sum(reaped) == 0:
            assert time.monotonic() - began < 200, "the frozen worker's trial is never reaped"
            moment = time.monotonic()
            study.set_attribute("looked", moment)
            assert time.monotonic() - moment < 20, "the study's lock was held while somebody waited"
            time.sleep(0.05)
        assert second.fail("its own failure", retry=False)
    assert not first.finish(RECORD)
    database.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_process_frozen_with_the_studys_lock_is_ended_by_the_server(
    kind: str, server_of: Callable[[str], Server]
) -> None:
    database = open_planned(server_of(kind).new_url(), heartbeat=1.0, grace=4.0)
    study = database.study("mrpc")
    first, second = study.claim("frozen"), study.claim("living")
    assert first is not None
    assert second is not None
    with frozen_holder(database.address.text, first.trial_id, with_study=True):
        # The frozen one would hold it up for ten minutes.
        assert second.fail("its own failure", retry=False)
    database.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_process_frozen_while_it_writes_through_optuna_is_ended_by_the_server(
    kind: str, server_of: Callable[[str], Server]
) -> None:
    url = server_of(kind).new_url()
    database = open_planned(url, heartbeat=1.0, grace=4.0)
    study = database.study("mrpc")
    with frozen(_hold_through_optuna, url):
        # The frozen one would hold it up for ten minutes.
        began = time.monotonic()
        study.set_attribute("looked", 1)
        assert time.monotonic() - began < 20
    database.close()


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_optunas_engine_keeps_to_the_limits_of_the_study(
    kind: str, server_of: Callable[[str], Server]
) -> None:
    database = open_planned(server_of(kind).new_url(), heartbeat=1.0, grace=4.0)
    names = {
        "postgresql": "SELECT current_setting('lock_timeout'), "
        "current_setting('idle_in_transaction_session_timeout')",
        "mariadb": "SELECT @@innodb_lock_wait_timeout, @@wait_timeout",
    }
    found = []
    for engine in (database.engine, database.optuna_storage.engine):
        with engine.begin() as connection:
            found.append(tuple(connection.exec_driver_sql(names[kind]).one()))
    assert found[0] == found[1]
    database.close()


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_process_frozen_in_a_claim_costs_the_others_that_trial_alone(
    kind: str, server_of: Callable[[str], Server]
) -> None:
    database = open_planned(server_of(kind).new_url(), heartbeat=1.0, grace=20.0)
    study = database.study("mrpc")
    trial_id = study._list().pop()
    with frozen_holder(database.address.text, trial_id):
        claims = [study.claim("living") for _ in range(len(CELLS) - 1)]
        assert all(claims)
    database.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_planner_that_is_frozen_with_the_lock_is_not_waited_for(
    kind: str, server_of: Callable[[str], Server]
) -> None:
    url = server_of(kind).new_url()
    database = open_planned(url, heartbeat=1.0, grace=4.0)
    ready = CLEAN.Event()
    process = CLEAN.Process(target=_hold_plan, args=(url, ready))
    process.start()
    assert process.pid is not None
    try:
        assert ready.wait(600)
        # It is busy, and keeps its lock, for as long as it lives.
        got = threading.Event()

        def plan() -> None:
            database.study("mrpc").plan(lambda outcomes: CELLS, space=SPACE)
            got.set()

        threading.Thread(target=plan, daemon=True).start()
        assert not got.wait(4)
        os.kill(process.pid, signal.SIGSTOP)
        assert got.wait(600)
    finally:
        process.kill()
        process.join()
        database.close()


@pytest.mark.slow
def test_a_stopped_backend_costs_no_live_trial(postgresql: Server) -> None:
    """The server process of one connection hangs: its client gives it up and beats over another one."""
    url = postgresql.new_url()
    database, watcher = open_planned(url, heartbeat=1.0, grace=6.0), Database.open(url)
    watched = watcher.study("mrpc")
    watched.counts()
    with postgresql.connect() as owner:
        name = url.rsplit("/", 1)[1]

        def backends() -> set[int]:
            found = owner.execute("SELECT pid FROM pg_stat_activity WHERE datname = %s", (name,)).fetchall()
            return {row[0] for row in found}

        others = backends()
        database.engine.dispose()
        claim = database.study("mrpc").claim("living")
        assert claim is not None
        stopped = backends() - others
    assert stopped
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        with reaping(watched) as reaped:
            began = time.monotonic()
            while time.monotonic() - began < 9:
                assert sum(reaped) == 0, "a living worker's trial was reaped"
                time.sleep(0.1)
            assert not claim.lost
            assert claim.finish(RECORD)
    finally:
        for pid in stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    for each in (database, watcher):
        each.close()


def put_clock_back(database: Database, seconds: int) -> None:
    """What a clock that is put back leaves behind: heartbeats that lie in the future."""
    with database.write() as connection:
        for trial_id, heartbeat in connection.execute(
            select(HEARTBEATS.c.trial_id, HEARTBEATS.c.heartbeat)
        ).all():
            later = heartbeat + timedelta(seconds=seconds)
            connection.execute(
                update(HEARTBEATS).where(HEARTBEATS.c.trial_id == trial_id).values(heartbeat=later)
            )


def test_a_clock_put_back_hides_no_dead_trial(shared_url: str) -> None:
    database = Database.open(shared_url, create=True, heartbeat_seconds=HEARTBEAT, grace_seconds=GRACE)
    study = database.create_study("clock put back", {})
    study.plan(lambda outcomes: CELLS, space=SPACE)
    dead, alive = study.claim("dead"), study.claim("alive")
    assert dead is not None
    assert alive is not None
    dead._lease.stop()
    time.sleep(2 * HEARTBEAT)
    put_clock_back(database, 3600)
    with reaping(study) as reaped:
        wait_until(lambda: sum(reaped) == 1, "the dead trial is reaped")
    assert not dead.finish(RECORD)
    assert alive.finish(RECORD)
    database.close()
