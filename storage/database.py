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
from storage.deadlines import READ_ONLY, Limits
from storage.engine import make_engine
from storage.lease import Lease
from storage.locks import database_lock
from storage.outage import Patience, one_line
from storage.schema import DIRECTIONS, METRIC_NAMES, STUDIES, STUDY_ATTRIBUTES, STUDY_SYSTEM_ATTRIBUTES
from storage.studies import StoredStudy
from storage.terms import Terms, Wishes, read_terms

T = TypeVar("T")

OUTAGE_SECONDS = 600.0


class Database:
    """Made by `Database.open`. Safe to use from several threads."""

    def __init__(
        self,
        address: Address,
        engine: Engine,
        patience: Patience,
        limits: Limits,
        wishes: Wishes,
    ):
        self.address = address
        self.engine = engine
        self.leases: WeakSet[Lease] = WeakSet()
        self._patience = patience
        self._limits = limits
        self._wishes = wishes

    @classmethod
    def open(
        cls,
        url: str,
        *,
        create: bool = False,
        heartbeat_seconds: float | None = None,
        grace_seconds: float | None = None,
        max_retries: int | None = None,
        outage_seconds: float = OUTAGE_SECONDS,
        patience_seconds: float = 0.0,
    ) -> Database:
        """`create` makes Optuna's tables where there are none.

        Heartbeat, grace period and retries are those of studies that are created here; one that exists must
        have the same, where they are given.

        `outage_seconds` is how long operations wait for a database that went away; `patience_seconds`
        how long opening does (a worker may start during a restart; people want to know at once).
        """
        wishes = Wishes(
            heartbeat_seconds=heartbeat_seconds, grace_seconds=grace_seconds, max_retries=max_retries
        )
        limits = Limits(wishes.terms().response_seconds)
        address = Address.parse(url)
        patience = Patience(address.display, patience_seconds)
        engine = patience.retry(lambda: _open(address, limits, create=create))
        patience.seconds = outage_seconds
        return cls(address, engine, patience, limits, wishes)

    @cached_property
    def optuna_storage(self) -> RDBStorage:
        """For Optuna's own tools. Workers do without it, and without its connections."""
        return self.retry(lambda: schema.optuna_storage(self.address, self._limits, create=False))

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

    def create_study(
        self, name: str, attributes: Mapping[str, Any], *, metric: str | None = None, minimize: bool = False
    ) -> StoredStudy:
        """The study with its attributes, at once; one that exists is returned as it is.

        Of the trials' values the highest is the best, with `minimize` the lowest. Optuna and its dashboard
        call the value `metric`.
        """
        direction = StudyDirection.MINIMIZE if minimize else StudyDirection.MAXIMIZE

        def locked() -> StoredStudy:
            with self.lock("studies"):
                found = self._find(name)
                if found is None:
                    self._insert(name, attributes, direction, metric)
                    found = self._find(name)
                assert found is not None
                return found

        return self.retry(locked)

    def delete_study(self, name: str) -> None:
        """With all of its trials; open claims of it are lost."""
        found = self.study(name)
        self.retry(lambda: self.optuna_storage.delete_study(found.study_id))

    def _find(self, name: str) -> StoredStudy | None:
        with self.read() as connection:
            study_id = connection.scalar(select(STUDIES.c.study_id).where(STUDIES.c.study_name == name))
            if study_id is None:
                return None
            terms = read_terms(connection, study_id)
        self._wishes.check(terms, f"{name} in {self.display_url}")
        self._adopt(terms)
        return StoredStudy(self, study_id, name, terms)

    def _adopt(self, terms: Terms) -> None:
        """Nothing may hang or pause for so long that a lease of this study is in doubt."""
        self._patience.longest_pause = min(self._patience.longest_pause, terms.heartbeat_seconds / 4)
        if terms.response_seconds < self._limits.response_seconds:
            self._limits.response_seconds = terms.response_seconds
            self.engine.dispose()
            if "optuna_storage" in self.__dict__:
                self.optuna_storage.engine.dispose()

    def _insert(
        self, name: str, attributes: Mapping[str, Any], direction: StudyDirection, metric: str | None
    ) -> None:
        attributes = {**attributes, **self._wishes.terms().attributes()}
        with self.write() as connection:
            connection.execute(insert(STUDIES).values(study_name=name))
            study_id = connection.scalar(select(STUDIES.c.study_id).where(STUDIES.c.study_name == name))
            connection.execute(insert(DIRECTIONS).values(study_id=study_id, objective=0, direction=direction))
            connection.execute(
                insert(STUDY_ATTRIBUTES),
                [
                    {"study_id": study_id, "key": key, "value_json": json.dumps(value)}
                    for key, value in attributes.items()
                ],
            )
            if metric is not None:
                named = {"key": METRIC_NAMES, "value_json": json.dumps([metric])}
                connection.execute(insert(STUDY_SYSTEM_ATTRIBUTES).values(study_id=study_id, **named))

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Claims that are still open end as those of a dead worker do."""
        for lease in list(self.leases):
            lease.stop()
        if "optuna_storage" in self.__dict__:
            self.optuna_storage.remove_session()
            self.optuna_storage.engine.dispose()
        self.engine.dispose()


def _open(address: Address, limits: Limits, *, create: bool) -> Engine:
    fresh_file = None
    if address.kind == "sqlite":
        check_sqlite_file(address.path, create=create)
        fresh_file = None if address.path.exists() else address.path
    engine = None
    try:
        engine = make_engine(address, limits)
        schema.check_collation(engine, address)
        _make_or_check(engine, address, limits, create=create)
        return engine
    except BaseException as error:
        if engine is not None:
            engine.dispose()
        if fresh_file is not None:
            with suppress(OSError, sqlite3.Error):
                _remove_unfinished(fresh_file)
        raise _explained(error, address) from error


WRONG_OPTION = (ValueError, TypeError, AttributeError, LookupError, sqlalchemy.exc.ArgumentError)
"""What drivers answer to an option of the URL that makes no sense to them."""

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


def _make_or_check(engine: Engine, address: Address, limits: Limits, *, create: bool) -> None:
    with engine.connect().execution_options(**{READ_ONLY: True}) as connection:
        if schema.is_ready(connection, address):
            return
        begun = schema.exists(connection)
    if not create and not begun:
        raise StorageError(f"{address.display} holds no studies yet: launch one first, or check --storage")
    with database_lock(engine, address, "schema"):
        schema.optuna_storage(address, limits, create=True).engine.dispose()


def _explained(error: BaseException, address: Address) -> BaseException:
    """In one line, unless it may pass and is to be tried again."""
    if isinstance(error, optuna.exceptions.StorageInternalError) and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, sqlalchemy.exc.DBAPIError):
        return error
    if isinstance(error, OSError):
        return StorageError(f"{address.display}: {one_line(error)}")
    if isinstance(error, WRONG_OPTION) and address.url.query:
        return UsageError(f"--storage {address.display}: check the options after the ?: {one_line(error)}")
    return error
