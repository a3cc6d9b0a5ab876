"""Sources are told apart in one place; a study is read once, and never mistaken for a file of its name."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import stored

from objectives.contract import UsageError
from storage.database import Database
from storage.studies import StoredStudy
from study import launch
from study.reporting.publish import publish_last
from study.trials import sources
from study.trials.sources import Source, read, read_studies, source

HEADER = "task,model,total_layers,frozen_layers,learning_rate,seed,metric,score"


def rows(score: float) -> str:
    cells = [f"rte,m,4,{depth},1e-05,{seed},accuracy,{score}" for depth in (0, 2) for seed in (1, 2)]
    return "\n".join((HEADER, *cells)) + "\n"


@pytest.fixture
def database(sqlite_url: str) -> Iterator[Database]:
    opened = Database.open(sqlite_url, create=True)
    yield opened
    opened.close()


def test_every_kind_of_source(tmp_path: Path, database: Database, sqlite_url: str) -> None:
    path = sqlite_url.removeprefix("sqlite:///")
    table = tmp_path / "trials"
    table.write_text(rows(0.8))
    assert source("postgresql://u@h/d") == Source("storage", "postgresql://u@h/d")
    assert source(path) == Source("storage", f"sqlite:///{path}")
    assert source(str(table)) == Source("table", str(table))
    assert source("mrpc-bert") == Source("study", "mrpc-bert")
    assert source("x" * 300) == Source("study", "x" * 300)
    assert source("a\0b") == Source("study", "a\0b")
    for absent in ("absent.csv", "absent.csv.gz", "absent.db"):
        with pytest.raises(UsageError, match=f"no such file: {absent}"):
            source(absent)


def test_a_reading_has_table_and_provenance_of_the_same_trials(database: Database, sqlite_url: str) -> None:
    first, second = stored.create(database), stored.create(database, "again")
    stored.run(first)
    stored.run(second, cells=10)
    found = read_studies([first, second])
    assert Counter(found.table["study"]) == {"mrpc-tiny": 36, "again": 36}
    assert [name for name, _ in found.provenance.studies] == ["mrpc-tiny", "again"]
    assert len(found.outcomes["again"]) == 36
    own = found.of("again")
    assert set(own.table["study"]) == {"again"}
    assert {curve.study for curve in own.provenance.curves} == {"again"}
    complete = (found.table["state"] == "COMPLETE").sum()
    assert len(found.provenance.curves) == complete
    assert len(read(["mrpc-tiny", "again"], sqlite_url).table) == 72


def test_studies_without_trials_give_an_empty_reading(database: Database) -> None:
    study = database.create_study("empty", {"spec": stored.make_spec().to_json()})
    found = read_studies([study])
    assert len(found.table) == 0
    assert found.outcomes == {"empty": []}


@pytest.mark.slow
def test_a_study_is_read_once_for_note_table_and_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("optuna_dashboard", reason="optuna-dashboard is not installed")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trials.csv").write_text(rows(0.8))
    read_trials, reads, published = StoredStudy.trials, Counter[str](), []

    def counted(self: StoredStudy) -> list[object]:
        reads[self.name] += 1
        return list(read_trials(self))

    def publishing(*arguments: object) -> None:
        published.append(arguments)
        reads.clear()
        publish_last(*arguments)  # type: ignore[arg-type]

    readings = []

    def reading(studies: list[StoredStudy]) -> sources.Reading:
        reads.clear()
        readings.append(read_studies(studies))
        assert set(reads.values()) == {1}
        return readings[-1]

    monkeypatch.setattr(StoredStudy, "trials", counted)
    # The note is also kept up to date while workers run, which is not the end of a launch.
    monkeypatch.setattr("study.launching.running.publishing", lambda _studies: nullcontext())
    monkeypatch.setattr("study.reporting.publish.publish_last", publishing)
    monkeypatch.setattr("study.trials.sources.read_studies", reading)
    assert launch.main(["--recorded", "trials.csv", "--protocol", "grid", "--workers", "1"]) == 0
    assert len(published) == 1
    assert len(readings) == 1
    assert not reads, "nothing was read again for the note, the table or the report"
    assert (tmp_path / "report").is_dir()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["same", "same.csv"])
def test_a_file_with_the_studys_name_is_never_reported_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trials.csv").write_text(rows(0.8))
    (tmp_path / name).write_text(rows(0.1))
    assert launch.main(["--recorded", "trials.csv", "--study", name, "--protocol", "grid"]) == 0
    (written,) = tmp_path.glob("report/*/tables/trials.csv")
    found = list(csv.DictReader(written.open()))
    assert {row["score"] for row in found} == {"0.8"}
    assert {row["study"] for row in found} == {name}
