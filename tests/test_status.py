"""How a study stands, read on every database while somebody works on it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from sqlalchemy import event

from objectives.contract import Cell, Recipe, StorageError, TrialRecord
from storage.database import Database
from storage.overview import SHOWN_FAILURES, Finished, Overview, Running, read_overview
from storage.reading import Counts
from storage.studies import StoredStudy
from study import status
from study.progress.standing import SILENT_SECONDS, Standing, read_standing
from study.protocols.plan import plan_study
from study.specs.study_spec import StudySpec


def make_spec(**changes: object) -> StudySpec:
    fields: dict[str, object] = {
        "task": "mrpc",
        "metric": "f1",
        "model": "bert-base",
        "model_fingerprint": "m",
        "data": "d",
        "data_fingerprint": "d",
        "total_layers": 12,
        "protocol": "grid",
        "frozen_layers": (0, 6, 12),
        "learning_rates": (3e-5,),
        "seeds": (1, 2, 3, 4),
        "recipe": Recipe(epochs=3, evaluations_per_epoch=2),
    }
    return StudySpec(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    opened = Database.open(database_url, create=True)
    yield opened
    opened.close()


def planned(database: Database, spec: StudySpec | None = None, name: str = "mrpc-grid") -> StoredStudy:
    spec = spec or make_spec()
    study = database.create_study(name, {"spec": spec.to_json()})
    plan_study(study, spec)
    return study


def busy(database: Database) -> StoredStudy:
    """Six cells done, one failed and waiting again, one given up, one in its second epoch."""
    study = planned(database)
    for number in range(6):
        claim = study.claim("first")
        assert claim is not None
        claim.finish(TrialRecord(metric="f1", score=0.5 + number / 100))
    for reason, retry in (("out of memory: 3 GiB", True), ("diverged: the loss is nan", False)):
        claim = study.claim("second")
        assert claim is not None
        claim.fail(reason, retry=retry)
    claim = study.claim("third")
    assert claim is not None
    for index, score in enumerate((0.25, 0.5, 0.75)):
        claim.report(index, score)
    return study


def test_everything_about_a_study_at_work(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    study = busy(database)
    url = database.address.text
    assert status.main(["--storage", url, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["study"] == study.name
    assert found["cells"] == {"total": 12, "waiting": 4, "running": 1, "complete": 6, "failed": 1}
    assert found["best"]["score"] == pytest.approx(0.55)
    (running,) = found["running"]
    assert (running["worker"], running["epoch"], running["score"]) == ("third", 1.5, 0.75)
    assert running["silent_seconds"] < 30
    assert found["failed_trials"] == 2
    reasons = {failure["reason"]: failure["final"] for failure in found["failures"]}
    assert reasons == {"out of memory: 3 GiB": False, "diverged: the loss is nan": True}
    assert found["seconds_left"] is not None
    assert found["cells_per_hour"] > 100

    assert status.main(["--storage", url, study.name]) == 0
    text = capsys.readouterr().out
    assert "12 cells: 6 done, 1 running, 4 waiting, 1 failed" in text
    assert "best f1 0.5500" in text
    assert "no more retries: diverged: the loss is nan" in text
    assert "will be retried: out of memory: 3 GiB" in text
    assert "third" in text


def test_the_number_of_selects_does_not_grow_with_the_study(database: Database) -> None:
    small = planned(database, make_spec(seeds=(1,)), "small")
    large = planned(database, make_spec(seeds=tuple(range(1, 301))), "large")
    claims = [large.claim("w") for _ in range(20)]
    for claim in claims:
        assert claim is not None
        claim.fail("no", retry=False)
    statements: list[str] = []
    event.listen(database.engine, "before_cursor_execute", lambda *arguments: statements.append(arguments[2]))
    read_overview(small)
    few = len(statements)
    overview = read_overview(large)
    assert overview.counts.waiting == 880
    assert len(overview.failures) == SHOWN_FAILURES
    # One more: how many of the failed ones are final.
    assert len(statements) - few <= few + 1


def test_a_study_that_is_done_and_one_of_other_software(
    sqlite_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    database = Database.open(sqlite_url, create=True)
    study = planned(database, make_spec(frozen_layers=(0,), seeds=(1,), demo=True))
    claim = study.claim("w")
    assert claim is not None
    claim.finish(TrialRecord(metric="f1", score=0.5))
    database.create_study("foreign", {})
    database.close()
    assert status.main(["--storage", sqlite_url]) == 0
    text = capsys.readouterr().out
    assert "mrpc-grid  (demo)" in text
    assert "no cell is waiting or running" in text
    assert "foreign  (not a study of this software)" in text


def test_unknown_study_and_absent_database(sqlite_url: str) -> None:
    with pytest.raises(StorageError, match="study"):
        status.main(["--storage", sqlite_url])
    Database.open(sqlite_url, create=True).close()
    with pytest.raises(StorageError, match="no study 'nope'"):
        status.main(["--storage", sqlite_url, "nope"])


@pytest.mark.slow
def test_watch_looks_again_until_it_is_interrupted(sqlite_url: str) -> None:
    database = Database.open(sqlite_url, create=True)
    study = planned(database)
    watcher = subprocess.Popen(
        [sys.executable, "-m", "study.status", "--storage", sqlite_url, "--watch", "0.2", "--json"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert watcher.stdout is not None
    assert json.loads(watcher.stdout.readline())[0]["cells"]["complete"] == 0
    claim = study.claim("w")
    assert claim is not None
    claim.finish(TrialRecord(metric="f1", score=0.5))
    while json.loads(watcher.stdout.readline())[0]["cells"]["complete"] == 0:
        pass
    watcher.send_signal(signal.SIGINT)
    watcher.communicate(timeout=600)
    assert watcher.returncode == 0
    database.close()


def standing(*, running: int = 2, silent_seconds: float = 1.0, recent: int = 10) -> Standing:
    """Cells of the full depth that took 100 s each, one every 60 s; 10 wait."""
    cell = Cell(12, 3e-5, 1)
    overview = Overview(
        counts=Counts(waiting=10, running=running, complete=recent, failed=0),
        best=None,
        recent=tuple(
            Finished(cell=cell, elapsed_seconds=100.0, work_seconds=None, seconds_ago=60.0 * number)
            for number in range(recent)
        ),
        open_cells=((12, None, 10 + running),),
        running=tuple(
            Running(
                number=number,
                cell=cell,
                worker=f"w{number}",
                attempt=1,
                seconds=50.0,
                silent_seconds=silent_seconds,
                evaluations=0,
                score=None,
            )
            for number in range(running)
        ),
        failures=(),
        failed_trials=0,
    )
    return Standing(name="s", spec=make_spec(), overview=overview)


def test_time_left_is_shared_by_those_who_run() -> None:
    assert standing(running=1).seconds_left() == pytest.approx(11 * 100 - 50)
    assert standing(running=2).seconds_left() == pytest.approx((12 * 100 - 2 * 50) / 2)
    assert standing(running=0).seconds_left() is None
    assert standing(recent=0).seconds_left() is None


def test_who_is_silent_does_not_count() -> None:
    lost = standing(silent_seconds=SILENT_SECONDS + 1)
    assert lost.seconds_left() is None
    assert "no worker is running a cell now" in lost.render()
    assert "lost, to be retried" in lost.render(width=100)
    assert max(map(len, lost.render(width=80).splitlines())) <= 80


def test_rate_over_the_last_hour() -> None:
    assert standing(recent=10).cells_per_hour == pytest.approx(10 * 3600 / 640)
    assert standing(recent=100).cells_per_hour == pytest.approx(61)


def test_the_best_of_an_error_is_the_lowest(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    spec = make_spec(metric="mae", chance=2.0)
    study = database.create_study("prices", {"spec": spec.to_json()}, metric="mae", minimize=True)
    plan_study(study, spec)
    for score in (0.9, 0.4, 1.7):
        claim = study.claim("w")
        assert claim is not None
        claim.finish(TrialRecord(metric="mae", score=score))
    claim = study.claim("w")
    assert claim is not None
    claim.fail("out of memory", retry=False)
    url = database.address.text
    assert status.main(["--storage", url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["best"]["score"] == pytest.approx(0.4)
    assert status.main(["--storage", url]) == 0
    text = capsys.readouterr().out
    assert "best mae 0.4000" in text
    assert "1 failed trial, the newest first" in text
    assert str(read_standing(study)) in text
