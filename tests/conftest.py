"""Fixtures: a fresh, empty database of each kind; servers start once per session, when first wanted."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from servers import KINDS, Absent, Server, running

ALL_DATABASES = ("sqlite", "postgresql", "mariadb")

# Whoever starts the tests with nohup ignores hang-ups for all their processes, too.
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def server_of() -> Iterator[Callable[[str], Server]]:
    """A running server by kind; skips, with the reason, where its programs are absent."""
    with ExitStack() as stack:
        started: dict[str, Server | str] = {}

        def get(kind: str) -> Server:
            if kind not in started:
                try:
                    started[kind] = stack.enter_context(running(KINDS[kind]))
                except Absent as absent:
                    started[kind] = str(absent)
            found = started[kind]
            if isinstance(found, str):
                pytest.skip(found)
            return found

        yield get


@pytest.fixture
def postgresql(server_of: Callable[[str], Server]) -> Server:
    return server_of("postgresql")


@pytest.fixture
def mariadb(server_of: Callable[[str], Server]) -> Server:
    return server_of("mariadb")


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/study.db"


@pytest.fixture(scope="session", params=ALL_DATABASES)
def shared_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database of each kind that all tests share: making the tables takes longer than most tests."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path_factory.mktemp('shared')}/study.db"
    server: Server = request.getfixturevalue("server_of")(request.param)
    return server.new_url()


@pytest.fixture(params=ALL_DATABASES)
def database_url(request: pytest.FixtureRequest) -> str:
    """An empty database of each kind in turn."""
    if request.param == "sqlite":
        return str(request.getfixturevalue("sqlite_url"))
    server: Server = request.getfixturevalue("server_of")(request.param)
    return server.new_url()
