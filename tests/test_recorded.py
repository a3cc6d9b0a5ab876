"""The recorded objective: the table's own answers, late or failing as asked, without torch."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from objectives.contract import Attempt, Cell, CurvePoint, TrialFailed, UsageError
from objectives.recorded import RecordedObjective, RecordedPair, read_table

HEADER = "task,model,total_layers,frozen_layers,learning_rate,seed,train_size,state,metric,score,protocol"
ROWS = [
    "mrpc,bert-base,12,0,1e-05,1,,COMPLETE,f1,0.9,paper-search",
    "mrpc,bert-base,12,0,1e-05,1,,COMPLETE,f1,0.8,paper",
    "mrpc,bert-base,12,6,3e-05,2,,,f1,0.85,paper",
    "mrpc,bert-base,12,12,3e-05,2,,FAIL,f1,,paper",
    "rte,bert-base,12,6,3e-05,2,100,COMPLETE,accuracy,0.6,",
    "rte,bert-base,12,-1,3e-05,2,50,COMPLETE,accuracy,0.5,",
]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "trials.csv"
    path.write_text("\n".join([HEADER, *ROWS]))
    return path


@pytest.fixture
def mrpc(table: Path) -> RecordedPair:
    return read_table(table)[0]


def ask(objective: RecordedObjective, cell: Cell) -> tuple[float, list[CurvePoint]]:
    points: list[CurvePoint] = []
    return objective(cell, points.append).score, points


def test_pairs_and_their_grids(table: Path) -> None:
    mrpc, rte = read_table(table)
    assert (mrpc.task, mrpc.model, mrpc.total_layers, mrpc.metric) == ("mrpc", "bert-base", 12, "f1")
    assert mrpc.frozen_layers == (0, 6, 12)
    assert mrpc.learning_rates == (1e-5, 3e-5)
    assert mrpc.seeds == (1, 2)
    assert mrpc.train_sizes == (None,)
    assert rte.frozen_layers == (-1, 6)
    assert rte.train_sizes == (50, 100)
    assert len(mrpc.cells) == 3


def test_answers_are_the_tables(mrpc: RecordedPair) -> None:
    objective = RecordedObjective(pair=mrpc)
    score, points = ask(objective, Cell(6, 3e-5, 2))
    assert score == 0.85
    assert [dict(point.metrics) for point in points] == [{"f1": 0.85}]
    assert ask(objective, Cell(0, 1e-5, 1))[0] == 0.9
    assert ask(RecordedObjective(pair=mrpc, protocol="paper"), Cell(0, 1e-5, 1))[0] == 0.8


def test_cells_that_are_not_there_fail_for_good(mrpc: RecordedPair) -> None:
    with pytest.raises(TrialFailed, match="no run of frozen_layers=3 learning_rate=1e-05 seed=1") as absent:
        ask(RecordedObjective(pair=mrpc), Cell(3, 1e-5, 1))
    assert not absent.value.retry
    with pytest.raises(TrialFailed, match="recorded as FAIL") as failed:
        ask(RecordedObjective(pair=mrpc), Cell(12, 3e-5, 2))
    assert not failed.value.retry


def test_a_complete_run_without_a_score_fails_for_good_unless_another_has_one(tmp_path: Path) -> None:
    path = tmp_path / "trials.csv"
    empty = "mrpc,bert-base,12,6,3e-05,{},,COMPLETE,f1,,paper"
    path.write_text("\n".join([HEADER, empty.format(2), empty.format(3), ROWS[2]]))
    [pair] = read_table(path)
    assert ask(RecordedObjective(pair=pair), Cell(6, 3e-5, 2))[0] == 0.85
    with pytest.raises(TrialFailed, match="recorded without a score") as failed:
        ask(RecordedObjective(pair=pair), Cell(6, 3e-5, 3))
    assert not failed.value.retry


def test_optional_columns_are_measured(tmp_path: Path) -> None:
    path = tmp_path / "trials.csv"
    path.write_text(
        f"{HEADER},train_seconds,trainable_parameters,surprise\n{ROWS[0]},1.5,7087872,x\n{ROWS[2]},,,\n"
    )
    [pair] = read_table(path)
    record = RecordedObjective(pair=pair)(Cell(0, 1e-5, 1), lambda point: None)
    assert (record.train_seconds, record.trainable_parameters) == (1.5, 7087872)
    assert isinstance(record.trainable_parameters, int)
    assert RecordedObjective(pair=pair)(Cell(6, 3e-5, 2), lambda point: None).train_seconds is None


def test_delay(mrpc: RecordedPair) -> None:
    began = time.monotonic()
    ask(RecordedObjective(pair=mrpc, delay_seconds=0.2), Cell(6, 3e-5, 2))
    assert time.monotonic() - began >= 0.2


def test_failures_are_seeded_and_differ_between_attempts(mrpc: RecordedPair) -> None:
    def fails(seed: int, attempt: int) -> bool:
        objective = RecordedObjective(pair=mrpc, failure_rate=0.3, seed=seed)
        try:
            objective(Cell(6, 3e-5, 2), lambda point: None, Attempt(number=attempt))
        except TrialFailed as failure:
            return failure.retry
        return False

    drawn = [fails(seed, attempt) for seed in range(100) for attempt in (1, 2, 3)]
    assert drawn == [fails(seed, attempt) for seed in range(100) for attempt in (1, 2, 3)]
    assert 0.2 < sum(drawn) / len(drawn) < 0.4
    assert any(fails(seed, 1) and not fails(seed, 2) for seed in range(100))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("task,model\nmrpc,bert\n", "has no column total_layers, frozen_layers"),
        (HEADER + "\n", "holds no trials"),
        (f"{HEADER}\n{ROWS[0]}\nmrpc,bert-base,12,six,1e-05,1,,COMPLETE,f1,0.9,\n", "line 3: .*'six'"),
        (f"{HEADER}\n{ROWS[0]}\n{ROWS[2].replace(',12,', ',24,')}\n", "one number of layers and one metric"),
    ],
)
def test_tables_that_are_none(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "trials.csv"
    path.write_text(content)
    with pytest.raises(UsageError, match=words):
        read_table(path)


def test_settings_out_of_range(mrpc: RecordedPair, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--recorded-failure-rate 1\.5"):
        RecordedObjective(pair=mrpc, failure_rate=1.5)
    with pytest.raises(UsageError, match="--recorded-delay -1"):
        RecordedObjective(pair=mrpc, delay_seconds=-1)
    with pytest.raises(UsageError, match="cannot read"):
        read_table(tmp_path / "absent.csv")


def test_fingerprint_is_of_the_content(table: Path, tmp_path: Path) -> None:
    shuffled = tmp_path / "shuffled.csv"
    shuffled.write_text("\n".join([HEADER, *reversed(ROWS)]))
    changed = tmp_path / "changed.csv"
    changed.write_text("\n".join([HEADER, *ROWS]).replace("0.85", "0.86"))
    original = read_table(table)[0].fingerprint()
    assert next(pair for pair in read_table(shuffled) if pair.task == "mrpc").fingerprint() == original
    assert read_table(changed)[0].fingerprint() != original


def test_no_heavy_imports() -> None:
    """Recorded workers and the storage start in a moment, also where torch is not installed."""
    code = "import sys, objectives.recorded, storage.database, study.workers.worker; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"torch", "transformers", "pandas"} & set(loaded.split())
