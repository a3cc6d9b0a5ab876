"""A database that goes away and comes back costs nobody a result."""

from __future__ import annotations

import contextlib
import itertools
import socket
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
    study.plan(lambda outcomes: CELLS, space=SPACE)
    return database


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_outage_longer_than_the_grace_period(kind: str, server_of: Callable[[str], Server]) -> None:
    server = server_of(kind)
    database = open_planned(server.new_url())
    study = database.study("mrpc")
    running, finishing = study.claim("a"), study.claim("b")
    assert running is not None
    assert finishing is not None
    study.reap()
    server.stop()
    answers: list[bool] = []
    finish = threading.Thread(target=lambda: answers.append(finishing.finish(RECORD)))
    finish.start()
    # A report must not hold up the training: it does not wait for the database, which is away until later.
    running.report(0, 0.25)
    time.sleep(3.0)
    assert answers == []
    server.start()
    finish.join(600)
    assert answers == [True]
    deadline = time.monotonic() + 2.5
    while time.monotonic() < deadline:
        assert study.reap() == 0, "everybody's heartbeat is old after an outage, and everybody is alive"
        time.sleep(0.1)
    assert not running.lost
    assert running.finish(RECORD)
    assert study.optuna_study.trials[running.number].intermediate_values == {0: 0.25}
    assert study.counts().complete == 2
    database.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_outage_without_end(kind: str, server_of: Callable[[str], Server]) -> None:
    server = server_of(kind)
    url = server.new_url()
    database, patient = open_planned(url, outage_seconds=1.0), Database.open(url, outage_seconds=3600.0)
    claim, other = database.study("mrpc").claim("a"), patient.study("mrpc").claim("b")
    assert claim is not None
    assert other is not None
    server.stop()
    try:
        with pytest.raises(StorageError) as caught:
            claim.finish(RECORD)
        assert "\n" not in str(caught.value)
        # A worker that is told to stop does not wait for the database.
        patient.hurry()
        with pytest.raises(StorageError):
            other.release()
    finally:
        server.start()
        database.close()
        patient.close()


class Network:
    """Between client and server; connections of before `forget` go silent, as when a router loses them."""

    def __init__(self, port: int):
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open: list[threading.Event] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def forget(self) -> None:
        for silent in self._open:
            silent.set()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            server = socket.create_connection(("127.0.0.1", self._port))
            silent = threading.Event()
            self._open.append(silent)
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self._pass_on, args=(source, target, silent), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, silent: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not silent.is_set():
                    target.sendall(data)


def test_a_silent_connection_is_given_up_before_the_lease_is(mariadb: Server) -> None:
    """PostgreSQL's are ended by the operating system; MySQL's drivers wait for an answer."""
    url, network = mariadb.new_url(), Network(mariadb.port)
    watcher = Database.open(url, create=True, heartbeat_seconds=1, grace_seconds=6)
    watched = watcher.create_study("mrpc", {})
    watched.plan(lambda outcomes: CELLS, space=SPACE)
    # It knows of the study's terms only after it has connected.
    database = Database.open(url.replace(f":{mariadb.port}/", f":{network.port}/"))
    claim = database.study("mrpc").claim("a")
    assert claim is not None
    time.sleep(1.2)
    network.forget()
    [first] = watched._reaper._read()[1].values()
    while watched._reaper._read()[1][claim.trial_id] == first:
        assert watched.reap() == 0, "the lease is lost"
        time.sleep(0.1)
    assert claim.finish(RECORD)
    database.close()
    watcher.close()


def test_a_demoted_server_is_left(postgresql: Server) -> None:
    """Its connections go on, and refuse to write; a new one may find the server that took its place."""
    url = postgresql.new_url()
    database = open_planned(url, outage_seconds=5.0)
    study = database.study("mrpc")

    def read_only(state: str) -> None:
        with postgresql.connect() as owner:
            owner.execute(
                f'ALTER DATABASE "{url.rsplit("/", 1)[1]}" SET default_transaction_read_only = {state}'
            )

    read_only("on")
    database.engine.dispose()
    assert study.counts().waiting == len(CELLS)
    read_only("off")
    claim = study.claim("a")
    assert claim is not None
    assert claim.finish(RECORD)
    database.close()


def test_busy_sqlite_is_waited_for(sqlite_url: str) -> None:
    database = open_planned(sqlite_url)
    claim = database.study("mrpc").claim("a")
    assert claim is not None
    blocker = sqlite3.connect(database.address.path, isolation_level=None, check_same_thread=False)
    blocker.execute("BEGIN IMMEDIATE")
    # Readers never wait.
    assert database.study("mrpc").counts().running == 1
    answers: list[bool] = []
    finish = threading.Thread(target=lambda: answers.append(claim.finish(RECORD)))
    finish.start()
    finish.join(1.0)
    assert answers == []
    blocker.execute("ROLLBACK")
    finish.join(600)
    assert answers == [True]
    blocker.close()
    database.close()
