"""Opens the shared database and its studies; refuses one that cannot be reached, written or trusted."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakSet

import filelock
import optuna
import sqlalchemy.exc
from optuna.storages import RDBStorage
from optuna.study import StudyDirection
from sqlalchemy import insert, select
from sqlalchemy.engine import Connection, Engine

from objectives.contract import StorageError, UsageError
from storage import schema
from storage.address import Address, check_sqlite_file
from storage.engine import READ_ONLY, make_engine
from storage.lease import Lease
from storage.locks import database_lock
from storage.outage import LONGEST_PAUSE_SECONDS, Patience, one_line
from storage.schema import DIRECTIONS, STUDIES, STUDY_ATTRIBUTES
from storage.studies import StoredStudy

T = TypeVar("T")

HEARTBEAT_SECONDS = 15.0
GRACE_SECONDS = 60.0
OUTAGE_SECONDS = 600.0


class Database:
    """Made by `Database.open`. Safe to use from several threads."""

    def __init__(
        self,
        address: Address,
        engine: Engine,
        patience: Patience,
        *,
        heartbeat_seconds: float,
        grace_seconds: float,
    ):
        self.address = address
        self.engine = engine
        self.heartbeat_seconds = heartbeat_seconds
        self.grace_seconds = grace_seconds
        self.leases: WeakSet[Lease] = WeakSet()
        self._patience = patience

    @classmethod
    def open(
        cls,
        url: str,
        *,
        create: bool = False,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
        grace_seconds: float = GRACE_SECONDS,
        outage_seconds: float = OUTAGE_SECONDS,
        patience_seconds: float = 0.0,
    ) -> Database:
        """`create` makes Optuna's tables where there are none.

        `outage_seconds` is how long operations wait for a database that went away; `patience_seconds`
        how long opening does (a worker may start during a restart; people want to know at once).
        """
        if heartbeat_seconds <= 0 or grace_seconds < 2.999 * heartbeat_seconds:
            raise UsageError(
                f"a grace period of {grace_seconds:g} s is too short for a heartbeat every "
                f"{heartbeat_seconds:g} s: make it at least three times as long"
            )
        address = Address.parse(url)
        patience = Patience(
            address.display, patience_seconds, min(LONGEST_PAUSE_SECONDS, heartbeat_seconds / 4)
        )
        engine = patience.retry(lambda: _open(address, create=create))
        patience.seconds = outage_seconds
        return cls(
            address,
            engine,
            patience,
            heartbeat_seconds=heartbeat_seconds,
            grace_seconds=grace_seconds,
        )

    @cached_property
    def optuna_storage(self) -> RDBStorage:
        """For Optuna's own tools. Workers do without it, and without its connections."""
        return self.retry(lambda: schema.optuna_storage(self.address, create=False))

    @property
    def display_url(self) -> str:
        """For people: the password is hidden."""
        return self.address.display

    def lock(self, name: str) -> AbstractContextManager[None]:
        """One holder at a time among all processes of this database. Not to be nested."""
        return database_lock(self.engine, self.address, name)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        with self.engine.connect().execution_options(**{READ_ONLY: True}) as connection:
            yield connection

    def write(self) -> AbstractContextManager[Connection]:
        """One transaction, committed when the block ends."""
        return self.engine.begin()

    def retry(self, operation: Callable[[], T], *, seconds: float | None = None) -> T:
        """`operation`, repeated while the database is away; it must be safe to repeat."""
        return self._patience.retry(operation, seconds=seconds)

    def hurry(self) -> None:
        """The process is being stopped: nobody waits for the database any more."""
        self._patience.hurry()

    def study_names(self) -> list[str]:
        def read() -> list[str]:
            with self.read() as connection:
                return list(connection.scalars(select(STUDIES.c.study_name).order_by(STUDIES.c.study_id)))

        return self.retry(read)

    def study(self, name: str) -> StoredStudy:
        found = self.retry(lambda: self._find(name))
        if found is None:
            names = ", ".join(self.study_names()) or "none yet"
            raise StorageError(f"there is no study {name!r} in {self.display_url}; it has: {names}")
        return found

    def create_study(self, name: str, attributes: Mapping[str, Any]) -> StoredStudy:
        """The study with its attributes, at once; one that exists is returned as it is."""

        def locked() -> StoredStudy:
            with self.lock("studies"):
                found = self._find(name)
                if found is None:
                    self._insert(name, attributes)
                    found = self._find(name)
                assert found is not None
                return found

        return self.retry(locked)

    def _find(self, name: str) -> StoredStudy | None:
        with self.read() as connection:
            study_id = connection.scalar(select(STUDIES.c.study_id).where(STUDIES.c.study_name == name))
        return None if study_id is None else StoredStudy(self, study_id, name)

    def _insert(self, name: str, attributes: Mapping[str, Any]) -> None:
        with self.write() as connection:
            connection.execute(insert(STUDIES).values(study_name=name))
            study_id = connection.scalar(select(STUDIES.c.study_id).where(STUDIES.c.study_name == name))
            connection.execute(
                insert(DIRECTIONS).values(study_id=study_id, objective=0, direction=StudyDirection.MAXIMIZE)
            )
            if attributes:
                connection.execute(
                    insert(STUDY_ATTRIBUTES),
                    [
                        {"study_id": study_id, "key": key, "value_json": json.dumps(value)}
                        for key, value in attributes.items()
                    ],
                )

    def close(self) -> None:
        """Claims that are still open end as those of a dead worker do."""
        for lease in list(self.leases):
            lease.stop()
        if "optuna_storage" in self.__dict__:
            self.optuna_storage.remove_session()
            self.optuna_storage.engine.dispose()
        self.engine.dispose()


def _open(address: Address, *, create: bool) -> Engine:
    fresh_file = None
    if address.kind == "sqlite":
        check_sqlite_file(address.path, create=create)
        fresh_file = None if address.path.exists() else address.path
    engine = make_engine(address)
    try:
        schema.check_collation(engine, address)
        _make_or_check(engine, address, create=create)
        return engine
    except BaseException as error:
        engine.dispose()
        if fresh_file is not None:
            with suppress(OSError, sqlite3.Error):
                _remove_unfinished(fresh_file)
        raise _explained(error, address) from error


SIDE_FILES = ("", "-wal", "-shm", "-journal", ".lock")


def _remove_unfinished(path: Path) -> None:
    """What a failed opening began, unless another process is making a database of it, or has made one."""
    if not path.exists():
        return
    with filelock.FileLock(f"{path}.lock", timeout=0):
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            made = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'studies'").fetchone()
        if not made:
            for end in SIDE_FILES:
                path.with_name(path.name + end).unlink(missing_ok=True)


def _make_or_check(engine: Engine, address: Address, *, create: bool) -> None:
    with engine.connect() as connection:
        if schema.is_ready(connection, address):
            return
        begun = schema.exists(connection)
    if not create and not begun:
        raise StorageError(f"{address.display} holds no studies yet: launch one first, or check --storage")
    with database_lock(engine, address, "schema"):
        schema.optuna_storage(address, create=True).engine.dispose()


def _explained(error: BaseException, address: Address) -> BaseException:
    """In one line, unless it may pass and is to be tried again."""
    if isinstance(error, optuna.exceptions.StorageInternalError) and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, sqlalchemy.exc.DBAPIError):
        return error
    if isinstance(error, OSError):
        return StorageError(f"{address.display}: {one_line(error)}")
    return error
