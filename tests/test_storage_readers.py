"""Who only looks at a study waits for nobody, and can show whatever a trial left behind."""

from __future__ import annotations

import io
import sqlite3
from collections.abc import Callable
from contextlib import closing, redirect_stdout
from pathlib import Path

import pytest
from sqlalchemy import update
from stored import create, run

from storage.database import Database
from storage.schema import USER_ATTRIBUTES
from study import operating_points, report, status, table

HALF = "cannot open 'caf\udce9.txt' \x1b[31m\x00"
"""Half a character, as in names of files that are not UTF-8, and what moves a terminal's cursor."""


def said(*commands: tuple[Callable[[list[str]], int], list[str]]) -> bytes:
    """What commands print, to a stream that is strict about it, as a terminal is."""
    raw = io.BytesIO()
    with redirect_stdout(io.TextIOWrapper(raw, encoding="utf-8", write_through=True)):
        for main, arguments in commands:
            assert main(arguments) == 0
        return raw.getvalue()


def test_status_does_not_wait_for_a_writer(sqlite_url: str) -> None:
    with closing(Database.open(sqlite_url, create=True)) as database:
        create(database)
        path = database.address.path
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        assert b"36 cells: 0 done" in said((status.main, ["--storage", sqlite_url]))


@pytest.mark.slow
def test_every_reader_shows_reasons_that_cannot_be_printed(database_url: str, tmp_path: Path) -> None:
    with closing(Database.open(database_url, create=True)) as database:
        study = create(database)
        ours, theirs = study.claim("tester"), study.claim("another tool")
        assert ours is not None
        assert theirs is not None
        assert ours.fail(HALF, retry=False)
        assert theirs.fail("plain", retry=False)
        own = USER_ATTRIBUTES.c.trial_id == theirs.trial_id
        told = (own, USER_ATTRIBUTES.c.key.in_(["reason", "worker"]))
        with database.write() as connection:
            text = r'"cannot read \udce9 \u001b[31m"'
            connection.execute(update(USER_ATTRIBUTES).where(*told).values(value_json=text))
        written = database.optuna_storage.get_trial(ours.trial_id).user_attrs["reason"]
        assert written.isprintable(), "other tools show it, too"
        run(study)
    where = ["--storage", database_url]
    shown = said(
        (status.main, where),
        (status.main, [*where, "--json"]),
        (table.main, where),
        (operating_points.main, where),
        (report.main, [*where, "--no-images", "--out", str(tmp_path / "report")]),
    )
    shown += (tmp_path / "report" / "report.html").read_bytes()
    for words in (b"cannot open", b"cannot read"):
        assert shown.count(words) >= 3
    assert b"\x1b" not in shown
    assert b"\x00" not in shown
