"""What a person sees while many workers run: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from study.command import duration
from study.estimate import Pace

if TYPE_CHECKING:
    from rich.table import Table

    from objectives.contract import Cell
    from storage.reading import Counts
    from study.workers.events import Event
    from study.workers.worker import Job

COUNT_SECONDS = 5.0


@dataclass
class Row:
    """What one worker does now."""

    study: str = ""
    cell: Cell | None = None
    began: float = 0.0
    epoch: float | None = None
    score: float | None = None
    doing: str = "starting"
    finished: int = 0


class Board:
    """The state behind both displays, kept by the workers' events and by counts from the database."""

    def __init__(self, jobs: Sequence[Job], workers: int):
        self.jobs = {job.study.name: job for job in jobs}
        self.pace = {job.study.name: Pace.of(job.study, job.spec) for job in jobs}
        self.rows: dict[str, Row] = {}
        self._workers = workers
        self._counts: Mapping[str, Counts] = {job.study.name: job.study.counts() for job in jobs}
        threading.Thread(target=self._count, name="counts", daemon=True).start()

    def _count(self) -> None:
        """Workers on other machines tell this process nothing; a thread, because the database may be away."""
        while True:
            time.sleep(COUNT_SECONDS)
            try:
                self._counts = {name: job.study.counts() for name, job in self.jobs.items()}
            except Exception:
                # The workers speak of such things; here the old numbers stay.
                continue

    def update(self, event: Event) -> str | None:
        """Take an event in; the line worth keeping of it, if any."""
        row = self.rows.setdefault(event.worker, Row())
        study = f"{event.study}: " if len(self.jobs) > 1 else ""
        match event.kind:
            case "claimed":
                row.study, row.cell, row.began = event.study, event.cell, time.monotonic()
                row.epoch = row.score = None
            case "reported" if event.point is not None:
                row.epoch = event.point.epoch
                row.score = event.point.metrics.get(self.jobs[event.study].spec.metric)
            case "finished" if event.record is not None and event.cell is not None:
                self.pace[event.study].finished(event.cell, event.record, event.seconds or 0.0)
                row.cell, row.doing, row.finished = None, "looks for a cell", row.finished + 1
                score = f"{event.record.metric} {event.record.score:.4f}"
                return f"{self.tally()}  {study}{event.cell}  {score}  {duration(event.seconds or 0)}"
            case "failed":
                row.cell, row.doing = None, "looks for a cell"
                return f"{study}{event.cell}  failed: {event.reason}"
            case "lost":
                row.cell = None
                return f"{study}{event.cell}  was given to another worker; this result is not kept"
            case "released":
                row.cell, row.doing = None, "stopped"
                return f"{study}{event.cell}  released, for whoever comes next"
            case "planned":
                self.pace[event.study].planned(event.trials or 0)
                return f"{study}planned {event.trials} more cells"
            case "reaped":
                return f"{study}{event.trials} trials of dead workers taken back"
            case "unwatched":
                return f"{study}{event.reason}"
            case "idle" if event.counts is not None:
                row.doing = f"nothing to claim, {event.counts.running} running elsewhere"
            case "left":
                row.doing = "done"
        return None

    def state(self, worker: str, text: str) -> None:
        """What the supervisor knows of a worker that says nothing itself."""
        row = self.rows.setdefault(worker, Row())
        row.cell, row.doing = None, text

    def tally(self) -> str:
        """`[12/40, 1 failed, 3m20s left]`."""
        done, total, failed, running = 0, 0, 0, 0
        seconds: float | None = 0.0
        for name, counts in self._counts.items():
            pace = self.pace[name]
            # The counts are a little old, and this process's own cells are not all there are.
            complete = max(counts.complete, pace.done)
            total_here = max(pace.total, counts.complete + counts.open)
            done, total = done + complete, total + total_here + counts.failed
            failed, running = failed + counts.failed, running + counts.running
            left = pace.seconds_left(self.pace.values())
            known = pace.total - pace.done
            share = (total_here - complete) / known if known else 1.0
            seconds = None if left is None or seconds is None else seconds + left * share
        phase = " of this phase" if any(pace.in_phases for pace in self.pace.values()) else ""
        estimate = (
            "time left unknown"
            if seconds is None
            else f"{duration(seconds / self._at_work(running))} left{phase}"
        )
        return f"[{done}/{total}, {f'{failed} failed, ' if failed else ''}{estimate}]"

    def _at_work(self, running: int) -> int:
        """Workers among which the rest is divided, those on other machines included."""
        return max(1, self._workers, running)

    def seconds_left(self, row: Row) -> float | None:
        """Of the cell at hand: by its own epochs once there are some, else by other cells."""
        if row.cell is None:
            return None
        spent = time.monotonic() - row.began
        if row.epoch:
            epochs = self.jobs[row.study].spec.recipe.epochs
            return max(0.0, spent / row.epoch * (epochs - row.epoch))
        expected = self.pace[row.study].seconds_of(row.cell)
        return None if expected is None else max(0.0, expected - spent)


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

    def tick(self) -> None:
        pass


class LiveTable:
    """One row per worker, renewed in place, with kept lines above it."""

    def __init__(self, board: Board):
        from rich.console import Console
        from rich.live import Live

        self._board = board
        self._live = Live(
            get_renderable=self._table, console=Console(), refresh_per_second=4, vertical_overflow="ellipsis"
        )

    def __enter__(self) -> LiveTable:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def event(self, event: Event) -> None:
        line = self._board.update(event)
        if line is not None:
            self.note(f"{_short(event.worker)}  {line}")

    def state(self, worker: str, text: str) -> None:
        self._board.state(worker, text)

    def note(self, text: str) -> None:
        self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def tick(self) -> None:
        pass

    def _table(self) -> Table:
        from rich.table import Table

        board = self._board
        metrics = {job.spec.metric for job in board.jobs.values()}
        table = Table(title=board.tally(), title_justify="left", title_style="bold", expand=False)
        table.add_column("worker", no_wrap=True)
        if len(board.jobs) > 1:
            table.add_column("study", overflow="ellipsis", no_wrap=True)
        table.add_column("cell", overflow="fold")
        for name in ("epoch", metrics.pop() if len(metrics) == 1 else "score", "for", "left", "done"):
            table.add_column(name, justify="right", no_wrap=True)
        for worker, row in board.rows.items():
            table.add_row(*_texts(board, worker, row, several=len(board.jobs) > 1))
        return table


def _texts(board: Board, worker: str, row: Row, *, several: bool) -> list[str]:
    left = board.seconds_left(row)
    running = row.cell is not None
    return [
        _short(worker),
        *([row.study] if several else []),
        str(row.cell) if running else row.doing,
        f"{row.epoch:g}" if running and row.epoch is not None else "",
        f"{row.score:.4f}" if running and row.score is not None else "",
        duration(time.monotonic() - row.began) if running else "",
        duration(left) if left is not None else "",
        str(row.finished),
    ]


def _short(worker: str) -> str:
    """Host and process are the same for all that this table shows."""
    return worker.rsplit("-", 1)[-1]


def display(board: Board) -> LiveTable | PlainLines:
    return LiveTable(board) if sys.stdout.isatty() else PlainLines(board)
