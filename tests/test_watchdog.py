"""A trial that hangs is ended, by a limit that was asked for or by what other trials took."""

from __future__ import annotations

import time
from pathlib import Path
from typing import cast

from processes import CLEAN
from stored import create, run

from objectives.errors import TIMED_OUT
from storage.claims import Claim
from storage.database import Database
from study.workers import watchdog
from study.workers.watchdog import Watchdog
from study.workers.worker import expected_seconds

QUICK = {"LEAST_SECONDS": 0.2, "LOOK_SECONDS": 0.05}
"""Limits of the watchdog's own that a test can wait for."""


class Recorded:
    """A claim that writes its failure to a file."""

    number, cell = 3, "the cell"

    def __init__(self, path: Path):
        self._path = path

    def fail(self, reason: str) -> bool:
        self._path.write_text(reason)
        return True


def _hang(
    path: Path, limit: float | None, expected: float | None, seconds: float, changes: dict[str, float]
) -> None:
    vars(watchdog).update(QUICK | changes)
    Watchdog(limit, lambda claim: expected).begin(cast(Claim, Recorded(path)))
    time.sleep(seconds)


def code_after_hanging(
    path: Path, limit: float | None, expected: float | None, seconds: float, **changes: float
) -> int | None:
    """The exit code of a process whose trial hangs for so long."""
    process = CLEAN.Process(target=_hang, args=(path, limit, expected, seconds, changes), daemon=True)
    process.start()
    process.join(600)
    return process.exitcode


def test_a_limit_that_was_asked_for_ends_the_trial(tmp_path: Path) -> None:
    assert code_after_hanging(tmp_path / "said", 0.2, None, 600) == TIMED_OUT
    assert (tmp_path / "said").read_text().startswith("timed out: it ran for")


def test_without_a_limit_other_trials_tell_how_long_is_too_long(tmp_path: Path) -> None:
    said = tmp_path / "said"
    assert code_after_hanging(said, None, 0.02, 600) == TIMED_OUT
    assert "the limit is" in said.read_text()
    said.unlink()
    for expected in (600.0, None):
        assert code_after_hanging(said, None, expected, 0.6) == 0, "it may take as long as others took"
        assert not said.exists()


def test_where_no_trial_has_finished_there_is_a_limit_all_the_same(tmp_path: Path) -> None:
    assert watchdog.UNKNOWN_SECONDS == 24 * 3600
    assert code_after_hanging(tmp_path / "said", None, None, 30, UNKNOWN_SECONDS=0.5) == TIMED_OUT
    assert (tmp_path / "said").read_text().startswith("timed out: it ran for")


def test_what_a_trial_should_take_is_what_others_took(sqlite_url: str) -> None:
    database = Database.open(sqlite_url, create=True)
    study = create(database)
    first = study.claim("w")
    assert first is not None
    assert expected_seconds(first) is None
    run(study)
    assert (expected_seconds(first) or 0) > 0
    database.close()
