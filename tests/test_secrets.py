"""A database's password is shown to nobody: not in errors, not in the arguments of other processes."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from launches import environment, processes, start, wait_until, write_table
from servers import MariaDB, Server

from objectives.contract import UsageError
from objectives.errors import one_line
from storage.address import Address
from storage.database import Database

PASSWORD = "p@ss/w0rd"
PIECES = ("p@ss", "ss/", "w0rd")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:p@ss/w0rd@host/x",
        "postgresql://u:p@ssw0rd@host/x",
        "mysql://u:w0rd@a:b@host/x",
        "postgresql://u:p@ss/w0rd@host:54x2/x?password=w0rd",
    ],
)
def test_a_password_that_is_not_encoded_is_refused_and_no_part_of_it_shown(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        Address.parse(url)
    message = str(caught.value)
    assert "%40" in message
    assert not [piece for piece in PIECES if piece in message]


def test_an_encoded_password_is_taken_and_hidden() -> None:
    address = Address.parse("postgresql://u:p%40ss%2Fw0rd@host/x")
    assert address.url.password == PASSWORD
    assert address.display == "postgresql://u:***@host/x"
    assert Address.parse("sqlite:////tmp/a@b/c@d.db").path == Path("/tmp/a@b/c@d.db")


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("cannot open postgresql://u:p@ss/w0rd@host/x now", "cannot open postgresql://***@host/x now"),
        ("mysql://u:w0rd@host/x", "mysql://***@host/x"),
        ("postgresql+psycopg://u:***@host/x: refused", "postgresql+psycopg://u:***@host/x: refused"),
        ("postgresql://elsa@db/elsa and x@y", "postgresql://elsa@db/elsa and x@y"),
        ("https://example.org/a", "https://example.org/a"),
        ("https://example.org/a:b, then x@y", "https://example.org/a:b, then x@y"),
        ("postgresql://u:w0rd/db: refused", "postgresql://… refused"),
        ("no folder postgresql:/u:w0rd", "no folder postgresql:…"),
        ("'postgresql:/u:w0rd@h/x' is no file", "'postgresql:***@h/x' is no file"),
        ("POSTGRESQL:u:w0rd@h/x", "POSTGRESQL:***@h/x"),
        ("there is no study 'u:w0rd@h/x' here", "there is no study '***@h/x' here"),
        ("//u:w0rd@h/x", "***@h/x"),
        ("mysql://u:my w0rd@h/x: refused", "mysql://***@h/x: refused"),
        ("redis://u:w0rd@h/0", "redis://***@h/0"),
        ("sqlite://u:w0rd@h/x", "sqlite://***@h/x"),
        ("postgresql://h/x?pwd=w0rd&sslmode=bad", "postgresql://h/x?pwd=***&sslmode=bad"),
        ("postgresql://h:5432/x?options=-cw0rd", "postgresql://h:5432/x?options=***"),
        ("hub:owner/name@main and sqlite:////tmp/a@b.db", "hub:owner/name@main and sqlite:////tmp/a@b.db"),
    ],
)
def test_no_error_shows_what_is_between_the_scheme_and_the_last_at_sign(said: str, shown: str) -> None:
    assert one_line(said) == shown
    assert str(UsageError(said)) == shown


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["launch", "postgresql://u:p@ss/w0rd@host/x"],
        ["launch", "--demo", "--task", "mrpc", "--storage", "postgresql://u:p@ss/w0rd@host/x"],
        ["status", "--storage", "postgresql://u:w0rd@127.0.0.1:9/x"],
        ["status", "--watch", "postgresql://u:p@ss/w0rd@host/x"],
        ["operating_points", "postgresql://u:p@ss/w0rd@host/x"],
        ["report", "--storage", "mysql://u:w0rd@127.0.0.1:9/x?read_timeout=abc"],
        ["work", "x", "--storage", "mysql://u:w0rd@127.0.0.1:9/x?charset=none"],
        ["status", "--storage", "postgresql://u:w0rd/db"],
        ["status", "--storage", "postgresql://u@127.0.0.1:9/x?pwd=w0rd"],
        ["status", "--storage", "postgresql://u:my w0rd@127.0.0.1:9/x"],
        ["report", "postgresql:/u:w0rd@h/x"],
        ["report", "u:w0rd@h/x"],
        ["table", "x.csv", "--out", "postgresql://u:w0rd/db"],
        ["launch", "--demo", "--task", "mrpc", "--study", "postgresql://u:w0rd/db"],
        ["launch", "--demo", "--task", "mrpc", "--study", "u:w0rd@h/x"],
        ["cache", "--remove", "postgresql://u:w0rd/db", "--cache-dir", "."],
    ],
)
def test_no_command_shows_any_part_of_a_password(words: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", f"study.{words[0]}", *words[1:]]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=600, check=False)
    assert ended.returncode in (2, 4)
    assert ended.stderr.count("\n") == 1
    assert not [piece for piece in PIECES if piece in ended.stdout + ended.stderr]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite:///{folder}/x.db?timeout=abc", "timeout=abc"),
        ("sqlite:///{folder}/x.db?mode=ro", "unknown option mode"),
        ("sqlite://u:w0rd@host/x.db", "names a host"),
        ("mysql://u@127.0.0.1:9/x?read_timeout=abc", "read_timeout=abc"),
        ("mysql://u@127.0.0.1:9/x?charset=none", "charset=none"),
    ],
)
def test_an_option_that_makes_no_sense_is_one_line_and_nothing_is_written(
    url: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as caught:
        Database.open(url.format(folder=tmp_path), create=True)
    assert said in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_workers_have_the_password_in_no_argument(mariadb: Server, tmp_path: Path) -> None:
    """Arguments of processes are open to every user of a machine; their environment is not."""
    assert isinstance(mariadb, MariaDB)
    (tmp_path / "url").write_text(f"{mariadb.new_url()}\n")
    table = write_table(tmp_path / "table.csv", depths=2, seeds=2)
    launcher = start(
        ["--recorded", table, "--recorded-delay", "60", "--workers", "2", "--storage-file", tmp_path / "url"],
        tmp_path,
    )

    def own() -> dict[int, list[str]]:
        found = {**processes("-m", "study.work"), **processes("-m", "study.launch")}
        return {pid: words for pid, words in found.items() if any(str(tmp_path) in word for word in words)}

    try:
        wait_until(lambda: len(own()) >= 3, "a launcher and two workers run")
        started = own()
        assert not [
            words for words in started.values() if any("let" in word and "go" in word for word in words)
        ]
        named = [pid for pid in started if any("let%20" in value for value in environment(pid))]
        assert len(named) >= 2, "they find it in their environment"
    finally:
        launcher.send_signal(signal.SIGINT)
        output, _ = launcher.communicate(timeout=600)
    assert "go%" not in output


def test_what_people_are_shown_of_a_url_has_values_of_harmless_options_only() -> None:
    shown = Address.parse("postgresql://u@h/x?pwd=w0rd&options=w0rd&sslmode=require").display
    assert shown == "postgresql://u@h/x?options=***&pwd=***&sslmode=require"
