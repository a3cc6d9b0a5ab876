"""Fixtures: a fresh, empty database of each kind; servers start once per session, when first wanted.

Also the order in which `pytest -n` hands tests out.
"""

from __future__ import annotations

import gc
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from servers import KINDS, Absent, Server, running

FAST_FAMILIES = ("bert", "gpt2")
"""Of tests that every family of models must pass: those that `scripts/test.sh --fast` runs."""
ALL_DATABASES = ("sqlite", "postgresql", "mariadb")

# Whoever starts the tests with nohup ignores hang-ups for all their processes, too.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Until all tests are collected: their imports make no garbage, and looking for it takes a while.
gc.disable()

# The same examples in every run, on a machine of any speed; scripts/fuzz.py tries others.
settings.register_profile(
    "fixed", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("fixed")


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def _group(nodeid: str) -> str:
    """What one process runs in one go: the tests of a file that makes something once, else one test."""
    path = nodeid.partition("::")[0]
    return path if 'scope="module"' in _source(path) else nodeid


@cache
def _source(path: str) -> str:
    return (Path(__file__).parent.parent / path).read_text()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`--dist loadgroup` would do, but xdist 3.8 cannot mark groups with pytest 9.2."""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _group(nodeid)

    return ByGroup(config, log)


def _is_one_more(item: pytest.Item) -> bool:
    """Whether it repeats for a family of models or a database what --fast tests for others."""
    callspec = getattr(item, "callspec", None)
    given = {} if callspec is None else callspec.params
    return given.get("family", "bert") not in FAST_FAMILIES or "mariadb" in map(str, given.values())


def _is_slow(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is not None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What `scripts/test.sh` leaves out with --fast, and in which order it hands out the rest.

    Groups with slow tests come first, the largest before the others, so that none is left alone at the end.
    """
    for item in items:
        if _is_one_more(item):
            item.add_marker(pytest.mark.slow)
    if os.environ.get("PYTEST_XDIST_WORKER"):
        slow = Counter(_group(item.nodeid) for item in items if _is_slow(item))
        items.sort(key=lambda item: (-slow[_group(item.nodeid)], _group(item.nodeid)))


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
