"""A database that goes away and comes back costs nobody a result."""

from __future__ import annotations

import itertools
import sqlite3
import threading
import time
from collections.abc import Callable

import pytest
from servers import Server

from objectives.contract import Cell, StorageError, TrialRecord
from storage.database import Database

SPACE = {"frozen_layers": [0, 1], "learning_rate": [1e-5], "seed": [1, 2]}
CELLS = [Cell(*point) for point in itertools.product(*SPACE.values())]
RECORD = TrialRecord(metric="f1", score=0.5)


def open_planned(url: str, **options: float) -> Database:
    database = Database.open(url, create=True, heartbeat_seconds=1.0, grace_seconds=3.0, **options)
    study = database.create_study("mrpc", {})
    study.plan(lambda outcomes: CELLS, space=SPACE, max_retries=1)
    return database


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_outage_longer_than_the_grace_period(kind: str, server_of: Callable[[str], Server]) -> None:
    server = server_of(kind)
    database = open_planned(server.new_url())
    study = database.study("mrpc")
    running, finishing = study.claim("a"), study.claim("b")
    assert running is not None
    assert finishing is not None
    study.reap(1)
    server.stop()
    answers: list[bool] = []
    finish = threading.Thread(target=lambda: answers.append(finishing.finish(RECORD)))
    finish.start()
    began = time.monotonic()
    running.report(0, 0.25)
    assert time.monotonic() - began < 3, "a report must not hold up the training"
    time.sleep(3.0)
    assert answers == []
    server.start()
    finish.join(20)
    assert answers == [True]
    deadline = time.monotonic() + 2.5
    while time.monotonic() < deadline:
        assert study.reap(1) == 0, "everybody's heartbeat is old after an outage, and everybody is alive"
        time.sleep(0.1)
    assert not running.lost
    assert running.finish(RECORD)
    trials = {trial.number: trial for trial in study.trials()}
    assert trials[running.number].curve == [(0, 0.25)]
    assert study.counts().complete == 2
    database.close()


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_outage_without_end(kind: str, server_of: Callable[[str], Server]) -> None:
    server = server_of(kind)
    database = open_planned(server.new_url(), outage_seconds=1.0)
    study = database.study("mrpc")
    claim = study.claim("a")
    assert claim is not None
    server.stop()
    try:
        with pytest.raises(StorageError) as caught:
            claim.finish(RECORD)
        assert "\n" not in str(caught.value)
        began = time.monotonic()
        database.hurry()
        with pytest.raises(StorageError):
            claim.release()
        assert time.monotonic() - began < 3, "a worker that is told to stop does not wait for the database"
    finally:
        server.start()
        database.close()


def test_busy_sqlite_is_waited_for(sqlite_url: str) -> None:
    database = open_planned(sqlite_url)
    claim = database.study("mrpc").claim("a")
    assert claim is not None
    blocker = sqlite3.connect(database.address.path, isolation_level=None, check_same_thread=False)
    blocker.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(1.0, lambda: blocker.execute("ROLLBACK"))
    timer.start()
    began = time.monotonic()
    # Readers never wait.
    assert database.study("mrpc").counts().running == 1
    assert time.monotonic() - began < 0.5
    assert claim.finish(RECORD)
    assert time.monotonic() - began > 0.5
    timer.join()
    blocker.close()
    database.close()
