"""What a launch shows while its workers run: steps, loss and the time left, within 80 columns."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest
import stored
from rich.console import Console

from objectives.contract import Cell, CurvePoint, TrialRecord
from storage.database import Database
from study.progress import board as boards
from study.progress.board import Board
from study.progress.live_table import LiveTable
from study.progress.standing import Standing
from study.workers.events import Event

CELL = Cell(12, 3e-5, 12)


@pytest.fixture
def board(tmp_path: Path) -> Board:
    database = Database.open(f"sqlite:///{tmp_path / 'a.db'}", create=True)
    return Board([stored.create(database)], 1)


def tell(board: Board, kind: str, **details: object) -> None:
    board.update(Event(kind=kind, worker="host-1-w0", study="mrpc-tiny", cell=CELL, **details))  # type: ignore[arg-type]


def shown(board: Board, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(LiveTable(board)._table())
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines() if line.strip()]


def test_a_step_shows_its_number_the_loss_and_the_score_on_one_line_of_80_columns(board: Board) -> None:
    tell(board, "claimed")
    tell(board, "stepped", step=1234, steps=36000, loss=0.5671)
    tell(board, "reported", point=CurvePoint(epoch=0.1, step=1200, train_loss=0.45, metrics={"f1": 0.8765}))
    title, _, row = shown(board, 80)
    assert title.startswith("[0/36")
    assert "12 frozen, 3e-05, seed 12" in row
    for value in ("1234/36000", "0.450", "0.8765"):
        assert value in row
    assert len(row) <= 80


def test_the_time_left_of_a_cell_moves_with_its_steps(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()
    monkeypatch.setattr(boards.time, "monotonic", lambda: now)
    tell(board, "claimed")
    row = board.rows["host-1-w0"]
    assert board.seconds_left(row) is None, "no cell was timed yet"
    now += 10
    tell(board, "stepped", step=10, steps=100)
    assert board.seconds_left(row) == pytest.approx(90)
    now += 10
    tell(board, "stepped", step=50, steps=100)
    assert board.seconds_left(row) == pytest.approx(20)


def test_a_worker_between_two_cells_says_what_it_does(board: Board) -> None:
    tell(board, "claimed")
    tell(board, "failed", reason="out of memory")
    assert "looking for a cell" in shown(board, 80)[-1]


def test_the_time_left_is_not_worked_out_at_every_event(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It walks all waiting cells, and a large study has hundreds of events a second."""
    asked = []

    def walk(standing: Standing, workers: int) -> float:
        asked.append(workers)
        return 1.0

    monkeypatch.setattr(Standing, "seconds_left", walk)
    monkeypatch.setattr(boards, "ESTIMATE_SECONDS", 3600.0)
    for _ in range(20):
        tell(board, "finished", record=TrialRecord(metric="f1", score=0.5), seconds=1.0)
    assert len(asked) == 1


def test_where_only_some_studies_were_timed_the_time_left_is_a_lower_bound(
    board: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database.open(f"sqlite:///{tmp_path / 'a.db'}")
    two = Board([database.study("mrpc-tiny"), stored.create(database, name="rte-tiny")], 1)
    monkeypatch.setattr(Standing, "seconds_left", lambda self, _: 90.0 if self.name == "rte-tiny" else None)
    assert two.tally().endswith(", more than 1m30s left]")
    monkeypatch.setattr(Standing, "seconds_left", lambda self, _: None)
    assert Board([database.study("mrpc-tiny")], 1).tally().endswith(", time left unknown]")


def test_what_a_tracker_cannot_do_is_shown_once_for_all_workers(board: Board) -> None:
    reason = "tracker wandb failed (OSError: no key); trials go on"
    lines = [
        board.update(Event(kind="untracked", worker=f"w{i}", study="mrpc-tiny", reason=reason))
        for i in range(3)
    ]
    assert lines == [reason, None, None]
