"""What a person sees while workers run: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, TextIO

from study.cli.command import duration
from study.progress.board import Board, Row
from study.progress.standing import brief

if TYPE_CHECKING:
    from rich.table import Table

    from study.workers.events import Event


class PlainLines:
    """A line for each thing that ended; for logs and pipes."""

    def __init__(self, board: Board, out: TextIO | None = None):
        self._board = board
        self._out = out or sys.stdout

    def __enter__(self) -> PlainLines:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def event(self, event: Event) -> None:
        line = self._board.update(event)
        if line is not None:
            self.note(f"{_short(event.worker)}  {line}")

    def state(self, worker: str, text: str) -> None:
        self._board.state(worker, text)

    def note(self, text: str) -> None:
        self._out.write(f"{text}\n")
        self._out.flush()


class LiveTable(PlainLines):
    """One row per worker, renewed in place, with the kept lines above it."""

    def __init__(self, board: Board):
        from rich.console import Console
        from rich.live import Live

        super().__init__(board)
        self._live = Live(
            get_renderable=self._table, console=Console(), refresh_per_second=4, vertical_overflow="ellipsis"
        )

    def __enter__(self) -> LiveTable:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def note(self, text: str) -> None:
        self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _table(self) -> Table:
        from rich.table import Table

        board = self._board
        table = Table(
            title=board.tally(), title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0)
        )
        table.add_column("worker", no_wrap=True)
        if board.several:
            table.add_column("study", overflow="ellipsis", no_wrap=True)
        table.add_column("trains", overflow="fold")
        for name in ("step", "loss", board.metric, "for", "left", "cells"):
            table.add_column(name, justify="right", no_wrap=True)
        for worker, row in board.rows.items():
            table.add_row(*_texts(board, worker, row))
        return table


def _texts(board: Board, worker: str, row: Row) -> list[str]:
    left = board.seconds_left(row)
    running = row.cell is not None
    return [
        _short(worker),
        *([row.study] if board.several else []),
        brief(row.cell) if row.cell is not None else row.doing,
        _progress(row) if running else "",
        f"{row.loss:.3f}" if running and row.loss is not None else "",
        f"{row.score:.4f}" if running and row.score is not None else "",
        duration(time.monotonic() - row.began) if running else "",
        duration(left) if left is not None else "",
        str(row.finished),
    ]


def _progress(row: Row) -> str:
    return f"{row.done:.0%}" if row.steps is None else f"{row.steps[0]}/{row.steps[1]}"


def _short(worker: str) -> str:
    """Host and process are the same for all workers of one table."""
    return worker.rsplit("-", 1)[-1]


def display(board: Board) -> PlainLines:
    return LiveTable(board) if sys.stdout.isatty() else PlainLines(board)
