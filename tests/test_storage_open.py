"""Opening a database: what is refused, in one line, with nothing written; and what many may do at once."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest
from processes import CLEAN
from servers import MariaDB, Server, free_port
from sqlalchemy import text

import storage.address
import storage.engine
from objectives.contract import StorageError, UsageError
from storage.address import Address, check_sqlite_file, file_system
from storage.database import Database


def refused(url: str, kind: type[Exception] = StorageError, *, create: bool = True) -> str:
    with pytest.raises(kind) as caught:
        Database.open(url, create=create)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    "url",
    ["postgresql+psycopg2://h/x", "postgresql+asyncpg://h/x", "mysql+mysqldb://h/x", "mysql+nosuch://h/x"],
)
def test_a_driver_that_is_not_there_is_one_line(url: str) -> None:
    with pytest.raises(UsageError, match=r"driver is missing or cannot be used: write (postgresql|mysql)://"):
        Address.parse(url)


def test_drivers_are_chosen() -> None:
    assert Address.parse("postgresql://u@h/d").url.drivername == "postgresql+psycopg"
    assert Address.parse("mysql://u@h/d").url.drivername == "mysql+pymysql"
    assert Address.parse("mariadb://u@h/d").url.drivername == "mysql+pymysql"
    assert Address.parse("postgresql+psycopg://u@h/d").url.drivername == "postgresql+psycopg"


def test_password_is_never_shown() -> None:
    address = Address.parse("postgresql://u:secret@h/d")
    assert address.display == "postgresql://u:***@h/d"
    assert "secret" in address.text
    for url in (
        "postgresql://db/elsa?user=u&password=secret",
        "mysql://u@db/e?passwd=secret&charset=utf8mb4",
    ):
        shown = Address.parse(url).display
        assert "secret" not in shown
        assert "=***" in shown
        assert "secret" in Address.parse(url).text
    for url in ("postgresql://u:secret@db:54x2/elsa", "postgresql//u:secret@db/elsa", "db?password=secret"):
        message = refused(url, UsageError)
        assert "secret" not in message
        scheme = "postgresql" if url.startswith("postgresql") else ""
        assert message.startswith(f"--storage {scheme}… is not a database URL")
    assert "secret" not in refused("postgresql://u:secret@db?password=secret", UsageError)


@pytest.mark.parametrize(("scheme", "module"), [("postgresql", "psycopg"), ("mysql", "pymysql")])
def test_missing_driver_names_the_extra(scheme: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage.address, "find_spec", lambda name: None)
    message = refused(f"{scheme}://u@h/d", UsageError)
    assert message == f"{scheme}:// needs {module}: pip install 'elsa-study[{scheme}]'"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("study.db", "is not a database URL: use sqlite:///FILE"),
        ("oracle://u@h/d", "oracle://… is not supported: use sqlite, postgresql or mysql"),
        ("sqlite://", "in-memory SQLite database cannot be shared"),
        ("sqlite:///:memory:", "in-memory SQLite database cannot be shared"),
        ("postgresql://u@h", "names no database"),
    ],
)
def test_wrong_urls(url: str, words: str) -> None:
    assert words in refused(url, UsageError)


def test_unreachable_servers() -> None:
    port = free_port()
    assert f"port {port} failed" in refused(f"postgresql://u:secret@127.0.0.1:{port}/d")
    message = refused(f"mysql://u:secret@127.0.0.1:{port}/d")
    assert "Can't connect to MySQL server" in message
    assert "secret" not in message


def test_absent_databases(postgresql: Server, mariadb: Server) -> None:
    assert 'database "absent" does not exist' in refused(
        f"postgresql://elsa@127.0.0.1:{postgresql.port}/absent"
    )
    assert "Unknown database 'absent'" in refused(f"mysql://root@127.0.0.1:{mariadb.port}/absent")


def test_sqlite_paths(tmp_path: Path) -> None:
    assert "is a folder" in refused(f"sqlite:///{tmp_path}")
    assert "does not exist: create it" in refused(f"sqlite:///{tmp_path}/no/such/study.db")
    assert "launch a study first" in refused(f"sqlite:///{tmp_path}/study.db", create=False)
    assert list(tmp_path.iterdir()) == []


def test_unwritable_sqlite_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Root may write anywhere, but not here.
    message = refused("sqlite:////proc/study.db")
    assert "/proc/study.db" in message
    # Even where the check sees no harm and SQLite itself fails half-way.
    real = os.access
    monkeypatch.setattr(storage.address.os, "access", lambda path, mode: real(path, mode))
    monkeypatch.setattr(storage.engine, "_write_ahead", _fail)
    assert "cannot keep a write-ahead log" in refused(f"sqlite:///{tmp_path}/study.db")
    assert list(tmp_path.iterdir()) == []


def _fail(connection: sqlite3.Connection, _: object) -> None:
    connection.execute("CREATE TABLE half (done)")
    raise StorageError("SQLite cannot keep a write-ahead log here")


def test_other_files_are_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    path.write_text("not a database, but somebody's notes " * 100)
    before = path.read_bytes()
    assert "is not a database" in refused(f"sqlite:///{path}")
    assert path.read_bytes() == before


def test_network_file_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        f"/dev/sda / ext4 rw 0 0\nserver:/x {tmp_path}/shared nfs4 rw 0 0\n"
        f"disk {tmp_path}/shared/local\\040disk ext4 rw 0 0\nhost {tmp_path}/wsl 9p rw 0 0\n"
    )
    (tmp_path / "shared").mkdir()
    assert file_system(tmp_path / "shared" / "study.db", mounts) == "nfs4"
    assert file_system(tmp_path / "shared" / "local disk" / "study.db", mounts) == "ext4"
    assert file_system(tmp_path / "sharedness.db", mounts) == "ext4"
    assert file_system(tmp_path / "wsl" / "study.db", mounts) == "9p"
    mounts.write_text("root / 9p rw 0 0\n")
    assert file_system(tmp_path, mounts) is None
    assert file_system(tmp_path, tmp_path / "absent") is None
    monkeypatch.setattr(storage.address, "file_system", lambda path: "nfs4")
    with pytest.raises(StorageError, match=r"lies on a network file system \(nfs4\)"):
        check_sqlite_file(tmp_path / "shared" / "study.db", create=True)


def test_database_without_studies(database_url: str) -> None:
    refused(database_url, create=False)
    Database.open(database_url, create=True).close()
    Database.open(database_url, create=False).close()


def test_wrong_collation(mariadb: Server) -> None:
    assert isinstance(mariadb, MariaDB)
    for collation in ("utf8mb4_general_ci", "latin1_bin"):
        url = mariadb.create(f"wrong_{collation}", collation)
        message = refused(url)
        assert f"collation {collation}" in message
        assert f"CREATE DATABASE wrong_{collation} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin" in message
        with mariadb.connect() as connection, connection.cursor() as cursor:
            assert cursor.execute(f"SHOW TABLES IN wrong_{collation}") == 0


def test_incompatible_schema(database_url: str) -> None:
    database = Database.open(database_url, create=True)
    with database.write() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = 'v9.9.9.a'"))
    database.close()
    assert "tables of another Optuna version" in refused(database_url)


def _open(url: str) -> None:
    Database.open(url, create=True).create_study("one", {"spec": "x"})


def test_eight_processes_create_the_schema_at_once(database_url: str) -> None:
    processes = [CLEAN.Process(target=_open, args=(database_url,)) for _ in range(8)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(600)
    assert [process.exitcode for process in processes] == [0] * 8
    database = Database.open(database_url)
    assert database.study_names() == ["one"]
    assert database.study("one").attributes()["spec"] == "x"
    database.close()
