"""The trial table: what is read, what is refused, and that nothing is lost between database and CSV."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import optuna
import pandas as pd
import pytest
from servers import Server

from objectives.contract import Cell, Recipe, StorageError, TrialRecord, UsageError
from storage.database import Database
from study import table as table_command
from study.specs.study_spec import StudySpec
from study.trials import trial_table

HEADER = "task,model,total_layers,frozen_layers,learning_rate,seed,train_size,state,metric,score"


def write(folder: Path, *lines: str, header: str = HEADER, name: str = "trials.csv") -> str:
    path = folder / name
    path.write_text("\n".join((header, *lines)) + "\n", encoding="utf-8")
    return str(path)


def test_empty_state_is_complete_and_empty_train_size_is_all_data(tmp_path: Path) -> None:
    path = write(tmp_path, "rte,m,12,0,3e-05,1,,,accuracy,0.7", "rte,m,12,9,3e-05,1,500,FAIL,accuracy,")
    table = trial_table.load([path])
    assert table["state"].tolist() == ["COMPLETE", "FAIL"]
    assert table["train_size"].isna().tolist() == [True, False]
    assert table["train_size"].iloc[1] == 500
    assert table["score"].iloc[0] == 0.7
    assert pd.isna(table["score"].iloc[1])


def test_columns_in_any_order_with_blanks_and_a_byte_order_mark(tmp_path: Path) -> None:
    header = "\ufeffscore, metric,seed,learning_rate,frozen_layers,total_layers,model,task"
    path = write(tmp_path, "0.5, f1 ,2,0.00002,-1,12,m,mrpc", header=header)
    row = trial_table.load([path]).iloc[0]
    assert (row["metric"], row["frozen_layers"], row["learning_rate"]) == ("f1", -1, 2e-5)
    assert row["state"] == "COMPLETE"


def test_unknown_columns_are_kept(tmp_path: Path) -> None:
    path = write(tmp_path, "rte,m,12,0,3e-05,1,,,accuracy,0.7,blue,4", header=HEADER + ",colour,weight")
    table = trial_table.load([path])
    assert table["colour"].tolist() == ["blue"]
    assert table["weight"].tolist() == [4]


@pytest.mark.parametrize("missing", ["task", "seed", "score", "total_layers"])
def test_a_missing_column_is_named(tmp_path: Path, missing: str) -> None:
    names = HEADER.split(",")
    values = ["rte", "m", "12", "0", "3e-05", "1", "", "", "accuracy", "0.7"]
    kept = [i for i, name in enumerate(names) if name != missing]
    path = write(tmp_path, ",".join(values[i] for i in kept), header=",".join(names[i] for i in kept))
    with pytest.raises(UsageError, match=f"has no column {missing}:"):
        trial_table.load([path])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("rte,m,12,0,3e-05,1,,,accuracy,good", "line 3: score is 'good'"),
        ("rte,m,12,0,fast,1,,,accuracy,0.7", "line 3: learning_rate is 'fast'"),
        ("rte,m,12,1.5,3e-05,1,,,accuracy,0.7", "line 3: frozen_layers is '1.5'"),
        ("rte,m,12,13,3e-05,1,,,accuracy,0.7", "line 3: frozen_layers is '13'"),
        ("rte,m,12,0,3e-05,,,,accuracy,0.7", "line 3: seed is"),
        ("rte,m,12,0,3e-05,1,,DONE,accuracy,0.7", "line 3: state is 'DONE'"),
        (",m,12,0,3e-05,1,,,accuracy,0.7", "line 3: task is ''"),
        ("rte,m,12,0,3e-05,1,,,,0.7", "line 3: metric is ''"),
    ],
)
def test_a_bad_value_is_named_with_its_line(tmp_path: Path, line: str, said: str) -> None:
    path = write(tmp_path, "rte,m,12,0,3e-05,1,,,accuracy,0.7", line)
    with pytest.raises(UsageError) as caught:
        trial_table.load([path])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_no_table_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ELSA_STORAGE", raising=False)
    with pytest.raises(UsageError, match=r"no such file: absent\.csv"):
        trial_table.load(["absent.csv"])
    with pytest.raises(UsageError, match="'mrpc-study' is neither a file nor a storage URL"):
        trial_table.load(["mrpc-study"])
    with pytest.raises(UsageError, match="nothing to analyse"):
        trial_table.load([])
    with pytest.raises(UsageError, match="holds no trials"):
        trial_table.load([write(tmp_path)])
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(UsageError, match="cannot read"):
        trial_table.load(["empty.csv"])


SPEC = StudySpec(
    task="mrpc",
    metric="f1",
    model="tiny",
    model_fingerprint="a",
    data="d",
    data_fingerprint="b",
    total_layers=2,
    protocol="grid",
    frozen_layers=(0, 2),
    learning_rates=(1e-5,),
    seeds=(1, 2),
    recipe=Recipe(selection_split=0.1),
    demo=True,
)
SPACE = {"frozen_layers": [0, 2], "learning_rate": [1e-5], "seed": [1, 2]}
CELLS = [Cell(frozen, 1e-5, seed) for frozen in (0, 2) for seed in (1, 2)]


@pytest.fixture
def database(sqlite_url: str) -> Iterator[Database]:
    """A study of four cells: two complete, one failed, one waiting; and one of another program."""
    opened = Database.open(sqlite_url, create=True)
    study = opened.create_study("mine", {"spec": SPEC.to_json()})
    study.plan(lambda outcomes: CELLS, space=SPACE)
    done = 0
    while done < 3:
        claim = study.claim("w1")
        assert claim is not None
        if done == 2:
            claim.fail("loss is nan: diverged", retry=False)
        else:
            claim.finish(
                TrialRecord(
                    metric="f1",
                    score=0.8 + claim.cell.seed / 100 - claim.cell.frozen_layers / 10,
                    metrics={"f1": 0.8, "accuracy": 0.75},
                    selection_score=0.7,
                    chance=0.6,
                    trainable_parameters=10,
                    total_parameters=20,
                    train_seconds=1.5,
                    peak_memory_bytes=1000,
                )
            )
        done += 1
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    optuna.create_study(storage=sqlite_url, study_name="theirs")
    yield opened
    opened.close()


def test_every_trial_of_a_study_is_in_the_table(database: Database, sqlite_url: str) -> None:
    table = trial_table.load(["mine"], sqlite_url)
    assert sorted(table["state"]) == ["COMPLETE", "COMPLETE", "FAIL", "WAITING"]
    complete = table[table["state"] == "COMPLETE"]
    expected = 0.8 + complete["seed"] / 100 - complete["frozen_layers"] / 10
    assert complete["score"].tolist() == pytest.approx(expected.tolist())
    assert complete["accuracy"].tolist() == [0.75, 0.75]
    assert complete["selection_score"].tolist() == [0.7, 0.7]
    assert complete["chance"].tolist() == [0.6, 0.6]
    assert complete["train_seconds"].tolist() == [1.5, 1.5]
    assert set(table["study"]) == {"mine"}
    assert set(table["protocol"]) == {"grid"}
    assert table["demo"].all()
    failed = table[table["state"] == "FAIL"].iloc[0]
    assert "diverged" in failed["reason"]
    assert pd.isna(failed["score"])


def test_a_whole_storage_names_what_it_skipped(database: Database, sqlite_url: str) -> None:
    for table in (trial_table.load([sqlite_url]), trial_table.load([], sqlite_url)):
        assert len(table) == 4
        assert table.attrs["skipped"] == ["theirs"]


def test_a_study_of_another_program_or_none_is_refused(database: Database, sqlite_url: str) -> None:
    with pytest.raises(StorageError, match=r"'theirs'.*has no spec"):
        trial_table.load(["theirs"], sqlite_url)
    with pytest.raises(StorageError, match="absent"):
        trial_table.load(["absent"], sqlite_url)


def test_storage_comes_from_the_environment_or_the_file_itself(
    database: Database, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELSA_STORAGE", sqlite_url)
    assert len(trial_table.load(["mine"])) == 4
    monkeypatch.delenv("ELSA_STORAGE")
    assert len(trial_table.load([sqlite_url.removeprefix("sqlite:///")])) == 4


def test_the_table_command_writes_what_load_reads_again(
    database: Database, sqlite_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.csv"
    assert table_command.main(["mine", "--storage", sqlite_url, "--out", str(out)]) == 0
    assert "4 trials written" in capsys.readouterr().out
    stored, read = trial_table.load(["mine"], sqlite_url), trial_table.load([str(out)])
    contract = list(trial_table.REQUIRED)
    pd.testing.assert_frame_equal(stored[contract], read[contract])
    assert trial_table.ORIGIN not in out.read_text()
    assert list(read.columns[:10]) == contract

    assert table_command.main([str(out)]) == 0
    assert capsys.readouterr().out == out.read_text()


def test_the_table_command_refuses_a_place_it_cannot_write(tmp_path: Path) -> None:
    path = write(tmp_path, "rte,m,12,0,3e-05,1,,,accuracy,0.7")
    with pytest.raises(UsageError, match="cannot be written"):
        table_command.main([path, "--out", str(tmp_path / "absent" / "out.csv")])


def test_reading_and_analysing_never_imports_torch(tmp_path: Path) -> None:
    path = write(tmp_path, "rte,m,12,0,3e-05,1,,,accuracy,0.7", "rte,m,12,9,3e-05,1,,,accuracy,0.68")
    code = f"""
import sys
from study import operating_points, table
from study.analysis.analyse import analyse
from study.analysis import costs, paper_claims, train_sizes
from study.trials import trial_table
assert operating_points.main([{path!r}]) == 0
assert table.main([{path!r}]) == 0
loaded = trial_table.load([{path!r}])
analysis = analyse(loaded)
paper_claims.claims(analysis), costs.costs(loaded, analysis), train_sizes.summaries(analysis.curves)
import storage.database
print("torch" in sys.modules, "transformers" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False False"


def test_an_empty_storage_is_named_without_its_password(postgresql: Server) -> None:
    url = postgresql.new_url().replace("elsa@", "elsa:secret@")
    database = Database.open(url, create=True)
    database.create_study("mine", {"spec": SPEC.to_json()})
    database.close()
    with pytest.raises(UsageError, match=r"no trials yet in postgresql://elsa:\*\*\*@"):
        trial_table.load([url])
