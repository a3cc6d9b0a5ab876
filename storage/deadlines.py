"""How long anybody waits for the database: for an answer, for a lock, for a process that has stopped.

A process may be frozen (a stopped job, a suspended machine) or its server process may be. Whatever locks it
holds must not hold up the others, and it must find out itself that its connection is of no use any more.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine

from storage.address import Address

READ_ONLY = "elsa_read_only"
"""Execution option of connections that only read: they take no lock that others could wait for."""

LONGEST_LOCK_SECONDS = 5.0
LONGEST_IDLE_SECONDS = 10.0


@dataclass
class Limits:
    """Of all connections of one database; studies with a short grace period lower them."""

    response_seconds: float
    """How long a connection may give no answer before it is given up."""

    @property
    def lock_seconds(self) -> float:
        """How long to wait for a lock, at a time: shorter than `response_seconds`, to tell them apart."""
        return min(LONGEST_LOCK_SECONDS, self.response_seconds / 2)

    @property
    def idle_seconds(self) -> float:
        """How long a transaction may do nothing before the server ends it, and frees what it has locked."""
        return min(LONGEST_IDLE_SECONDS, self.response_seconds)


def limit(engine: Engine, address: Address, limits: Limits) -> None:
    """Have every connection of the engine keep to the limits, as they are when it begins a transaction."""
    if address.kind == "postgresql":
        event.listen(engine, "begin", lambda connection: _limit_transaction(connection, limits))
        if address.url.drivername == "postgresql+psycopg":
            event.listen(engine, "do_connect", lambda _, __, given, named: _connect(limits, given, named))
    elif address.kind == "mysql":
        event.listen(engine, "connect", lambda connection, _: _limit_session(connection, limits))


def _connect(limits: Limits, given: Sequence[Any], named: Mapping[str, Any]) -> Any:
    connection = _impatient().connect(*given, **named)
    connection.limits = limits
    return connection


def _limit_transaction(connection: Connection, limits: Limits) -> None:
    # SET LOCAL, in every transaction: behind PgBouncer each may be in another session.
    if not connection.get_execution_options().get(READ_ONLY):
        connection.exec_driver_sql(
            f"SET LOCAL lock_timeout = {limits.lock_seconds * 1000:.0f}; "
            f"SET LOCAL idle_in_transaction_session_timeout = {limits.idle_seconds * 1000:.0f}"
        )


def _limit_session(connection: Any, limits: Limits) -> None:
    # MySQL ends idle connections, whether inside a transaction or not; the pool makes new ones.
    with connection.cursor() as cursor:
        cursor.execute(
            f"SET SESSION innodb_lock_wait_timeout = {max(1, round(limits.lock_seconds))}, "
            f"SESSION lock_wait_timeout = {max(1, round(limits.lock_seconds))}, "
            f"SESSION wait_timeout = {max(1, round(limits.idle_seconds))}"
        )


@lru_cache
def _impatient() -> Any:
    import psycopg

    class Impatient(psycopg.Connection[Any]):
        """Gives up where the server sends nothing for too long: libpq would wait for ever."""

        limits: Limits | None = None

        def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:  # type: ignore[override]
            return super().wait(self._watched(gen), *arguments, **options)

        def _watched(self, generator: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
            """As `generator`, which is sent 0 whenever nothing came for a moment."""
            heard = time.monotonic()
            try:
                state = next(generator)
                while True:
                    ready = yield state
                    now = time.monotonic()
                    heard = now if ready else heard
                    if self.limits is not None and now - heard > self.limits.response_seconds:
                        self.pgconn.finish()
                        raise psycopg.OperationalError(f"the server sent nothing for {now - heard:.1f} s")
                    state = generator.send(ready)
            except StopIteration as end:
                return end.value

    return Impatient
