"""One holder at a time, whatever the machine: named locks kept by the database, or by a file for SQLite."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import filelock
from sqlalchemy import text
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from objectives.contract import StorageError
from storage.address import Address

LONGEST_WAIT_SECONDS = 300.0
SIGN_OF_LIFE_SECONDS = 0.5
"""Between two; the server ends the connection of a holder that gives none, and its lock with it."""


@contextmanager
def database_lock(engine: Engine, address: Address, name: str) -> Iterator[None]:
    """Held until the block ends or the process or its connection dies."""
    taken = {"sqlite": _file_lock, "postgresql": _advisory_lock, "mysql": _named_lock}[address.kind]
    with taken(engine, address, name):
        yield


@contextmanager
def _file_lock(engine: Engine, address: Address, name: str) -> Iterator[None]:
    # A file of its own: opening and closing the database file would drop SQLite's locks on it.
    try:
        with filelock.FileLock(f"{address.path}.lock", timeout=LONGEST_WAIT_SECONDS):
            yield
    except filelock.Timeout:
        raise _too_long(address, name) from None


@contextmanager
def _advisory_lock(engine: Engine, address: Address, name: str) -> Iterator[None]:
    key = int.from_bytes(_digest(name)[:8], "big", signed=True)
    # Bound to a transaction, not to the session, which PgBouncer may share.
    with engine.connect() as connection:
        deadline = time.monotonic() + LONGEST_WAIT_SECONDS
        while not connection.scalar(text("SELECT pg_try_advisory_xact_lock(:key)"), {"key": key}):
            if time.monotonic() > deadline:
                raise _too_long(address, name)
            # Behind PgBouncer an open transaction keeps a server connection, and the holder needs one more.
            connection.rollback()
            time.sleep(0.05)
        try:
            with _signs_of_life(connection):
                yield
        finally:
            # A connection that died has taken its lock along.
            with suppress(DBAPIError):
                connection.rollback()


@contextmanager
def _named_lock(engine: Engine, address: Address, name: str) -> Iterator[None]:
    # Such locks belong to the server, not to one database of it.
    key = f"elsa-{_digest(f'{address.url.database}/{name}').hex()[:32]}"
    with engine.connect() as connection:
        deadline = time.monotonic() + LONGEST_WAIT_SECONDS
        while connection.scalar(text("SELECT GET_LOCK(:key, 1)"), {"key": key}) != 1:
            if time.monotonic() > deadline:
                raise _too_long(address, name)
        try:
            with _signs_of_life(connection):
                yield
        finally:
            with suppress(DBAPIError):
                connection.execute(text("DO RELEASE_LOCK(:key)"), {"key": key})


@contextmanager
def _signs_of_life(connection: Connection) -> Iterator[None]:
    """Uses the connection now and then while the block runs, which must not: a holder that is at work for
    long differs in this from one that is frozen."""
    over = threading.Event()

    def tell() -> None:
        with suppress(SQLAlchemyError):
            while not over.wait(SIGN_OF_LIFE_SECONDS):
                connection.execute(text("SELECT 1"))

    thread = threading.Thread(target=tell, name="lock holder", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _digest(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def _too_long(address: Address, name: str) -> StorageError:
    return StorageError(
        f"{address.display}: somebody has held the lock {name!r} for {LONGEST_WAIT_SECONDS:.0f} s: "
        "look for a launcher that hangs"
    )
