"""One SQLAlchemy engine per database, with the settings under which Optuna's tables are safe to share."""

from __future__ import annotations

from typing import Any

import sqlalchemy
from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine, ExceptionContext

from objectives.contract import StorageError
from storage.address import Address, Kind
from storage.deadlines import READ_ONLY, Limits, limit

CONNECT_SECONDS = 5

CONNECT_ARGUMENTS: dict[Kind, dict[str, Any]] = {
    # Longer waits are the callers', who can break them off.
    "sqlite": {"timeout": 5.0, "isolation_level": None, "check_same_thread": False},
    "postgresql": {
        "connect_timeout": CONNECT_SECONDS,
        "application_name": "elsa",
        "keepalives": 1,
        # A worker whose network comes back must find out before its lease is in doubt.
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 2,
        "tcp_user_timeout": 10_000,
        # Server-side prepared statements do not survive PgBouncer's transaction pooling.
        "prepare_threshold": None,
    },
    "mysql": {
        "connect_timeout": CONNECT_SECONDS,
        "read_timeout": 30,
        "write_timeout": 30,
        "charset": "utf8mb4",
        "init_command": "SET time_zone = '+00:00'",
    },
}

SILENCE_UNITS = {"read_timeout": 1, "write_timeout": 1, "tcp_user_timeout": 1000}
"""Of one second, in the arguments that end a connection which has gone silent."""


def engine_settings(address: Address) -> dict[str, Any]:
    """For `create_engine`: one connection kept per process, a few more when threads need them at once."""
    settings: dict[str, Any] = {
        "connect_args": _own_arguments(address),
        "poolclass": sqlalchemy.pool.QueuePool,
        "pool_size": 1,
        "max_overflow": 4,
        "pool_timeout": 30,
        "pool_pre_ping": address.kind != "sqlite",
        "pool_recycle": 1800,
    }
    if address.kind == "mysql":
        # The default, REPEATABLE READ, locks gaps between rows: deadlocks among workers.
        settings["isolation_level"] = "READ COMMITTED"
    return settings


def _own_arguments(address: Address) -> dict[str, Any]:
    return {name: value for name, value in CONNECT_ARGUMENTS[address.kind].items() if _fits(address, name)}


def _fits(address: Address, argument: str) -> bool:
    """What the URL's own query says wins, and a driver chosen by hand gets only what it knows."""
    if argument in address.url.query:
        return False
    chosen = address.url.drivername
    if argument == "prepare_threshold":
        return chosen == "postgresql+psycopg"
    if argument in ("read_timeout", "write_timeout"):
        return chosen == "mysql+pymysql"
    return True


def make_engine(address: Address, limits: Limits) -> Engine:
    engine = sqlalchemy.create_engine(address.url, **engine_settings(address))
    prepare(engine, address, limits)
    return engine


def prepare(engine: Engine, address: Address, limits: Limits) -> None:
    """On every connection: the limits, and UTC; on SQLite write-ahead logging and transactions that lock when
    they begin."""
    own = {name: unit for name, unit in SILENCE_UNITS.items() if name in _own_arguments(address)}

    @event.listens_for(engine, "do_connect")
    def shorten(dialect: Any, record: Any, positional: Any, named: dict[str, Any]) -> None:
        seconds = limits.response_seconds
        named.update({name: min(named[name], int(seconds * unit)) for name, unit in own.items()})

    limit(engine, address, limits)
    if address.kind == "postgresql":
        event.listen(engine, "connect", _utc)
        event.listen(engine, "handle_error", _leave_demoted)
    if address.kind == "sqlite":
        event.listen(engine, "connect", _write_ahead)
        event.listen(engine, "begin", _begin)


def _utc(connection: Any, _: Any) -> None:
    # A plain SET, not a start-up option: PgBouncer follows it and accepts it in every version.
    cursor = connection.cursor()
    cursor.execute("SET TIME ZONE 'UTC'")
    cursor.close()
    connection.commit()


def _leave_demoted(context: ExceptionContext) -> None:
    """A server that has become a standby: the next connection finds the one that took its place."""
    if "read-only transaction" in str(context.original_exception):
        context.is_disconnect = True


def _write_ahead(connection: Any, _: Any) -> None:
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise StorageError(
            f"SQLite cannot keep a write-ahead log here (journal mode {mode!r}): use a local folder"
        )
    # A power cut may lose the last trials (they are run again), never the file.
    connection.execute("PRAGMA synchronous = NORMAL")


def _begin(connection: Connection) -> None:
    read_only = connection.get_execution_options().get(READ_ONLY)
    connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")
