"""How many connections a worker takes: what a budget for hundreds of them rests on."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from servers import Server
from test_status import planned

from storage.database import Database

WORKERS = 5


@pytest.fixture
def server(postgresql: Server) -> Iterator[tuple[str, Any]]:
    """A fresh database, and a connection of the server's owner to look at the others with."""
    with postgresql.connect() as looking:
        yield postgresql.new_url(), looking


def states(looking: Any, url: str) -> list[str]:
    found = looking.execute(
        "SELECT state FROM pg_stat_activity WHERE datname = %s", (url.rsplit("/", 1)[1],)
    ).fetchall()
    return [row[0] for row in found]


def test_a_worker_that_trains_holds_one_connection(server: tuple[str, Any]) -> None:
    url, looking = server
    with ExitStack() as stack:
        made = stack.enter_context(closing(Database.open(url, create=True)))
        planned(made)
        workers = [stack.enter_context(closing(Database.open(url))) for _ in range(WORKERS)]
        claims = [worker.study("mrpc-grid").claim("w") for worker in workers]
        assert all(claims)
        assert states(looking, url) == ["idle"] * (WORKERS + 1)


def test_who_waits_for_the_lock_keeps_no_transaction_open(server: tuple[str, Any]) -> None:
    url, looking = server
    with (
        closing(Database.open(url, create=True)) as holder,
        closing(Database.open(url)) as waiter,
    ):

        def wait() -> None:
            with waiter.lock("plan"):
                pass

        with holder.lock("plan"):
            waiting = threading.Thread(target=wait)
            waiting.start()
            time.sleep(0.3)
            seen = [states(looking, url) for _ in range(40) if time.sleep(0.01) is None]
            assert waiting.is_alive()
            # The holder is always in its transaction; a waiter only while it asks.
            alone = [look.count("idle in transaction") == 1 for look in seen]
            assert sum(alone) > len(seen) / 2
        waiting.join(600)
        assert not waiting.is_alive()
