"""What the workers of this machine do now, from their events, and how their studies stand."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING

from study.cli.command import duration
from study.cli.wording import counted
from study.progress.standing import Standing, brief, read_standing

if TYPE_CHECKING:
    from objectives.contract import Cell
    from storage.studies import StoredStudy
    from study.workers.events import Event

REFRESH_SECONDS = 5.0
ESTIMATE_SECONDS = 0.2


@dataclass
class Row:
    """What one worker does now."""

    study: str = ""
    cell: Cell | None = None
    began: float = 0.0
    steps: tuple[int, int] | None = None
    """Training steps done, of how many."""
    done: float = 0.0
    """The share of the cell's training that is done."""
    loss: float | None = None
    score: float | None = None
    doing: str = "starting"
    finished: int = 0


class Board:
    """The state behind the displays. Its cost per event does not depend on the size of the study."""

    def __init__(self, studies: Sequence[StoredStudy], workers: int):
        self._studies = {study.name: study for study in studies}
        self._workers = workers
        self._standings: Mapping[str, Standing] = {}
        self.rows: dict[str, Row] = {}
        self._untracked: set[str | None] = set()
        """What trackers could not do: all workers say the same."""
        self._told = ("", float("-inf"))
        """The last estimate of the time left, and when it was made."""
        self._refresh()
        self._finished = self._complete
        """Complete cells at the start, and those that finished here since: ahead of the last look."""
        threading.Thread(target=self._keep_fresh, name="standings", daemon=True).start()

    @property
    def several(self) -> bool:
        return len(self._studies) > 1

    @property
    def metric(self) -> str:
        metrics = {s.spec.metric for s in self._standings.values() if s.spec is not None}
        return metrics.pop() if len(metrics) == 1 else "score"

    def _refresh(self) -> None:
        self._standings = {name: read_standing(study) for name, study in self._studies.items()}

    @property
    def _complete(self) -> int:
        return sum(standing.overview.counts.complete for standing in self._standings.values())

    def _keep_fresh(self) -> None:
        """In a thread: workers elsewhere send no events to this process, and the database may be away."""
        while True:
            time.sleep(REFRESH_SECONDS)
            try:
                self._refresh()
            except Exception:
                # The workers report what is wrong with the database; here the old numbers stay.
                continue

    def update(self, event: Event) -> str | None:
        """Take an event in; the line to keep on the screen, if any."""
        row = self.rows.setdefault(event.worker, Row())
        line = self._line(event, row)
        return None if line is None else (f"{event.study}: " if self.several else "") + line

    def _line(self, event: Event, row: Row) -> str | None:
        cell = "" if event.cell is None else brief(event.cell)
        match event.kind:
            case "claimed":
                row.study, row.cell, row.began = event.study, event.cell, time.monotonic()
                row.steps, row.done, row.loss, row.score = None, 0.0, None, None
            case "stepped" if event.steps:
                row.steps = (event.step or 0, event.steps)
                row.done = row.steps[0] / event.steps
                row.loss = row.loss if event.loss is None else event.loss
            case "reported" if event.point is not None:
                self._reported(event, row)
            case "finished" if event.record is not None:
                self._finished += 1
                row.cell, row.doing, row.finished = None, "looking for a cell", row.finished + 1
                score = f"{event.record.metric} {event.record.score:.4f}"
                saved = event.record.resumed_seconds
                resumed = "" if saved is None else f" ({duration(saved)} saved by a checkpoint)"
                return f"{self.tally()}  {cell}  {score}  {duration(event.seconds or 0)}{resumed}"
            case "failed":
                row.cell, row.doing = None, "looking for a cell"
                return f"{cell}  failed: {event.reason}"
            case "lost":
                row.cell = None
                return f"{cell}  was given to another worker; this result is not kept"
            case "released":
                row.cell, row.doing = None, "stopped"
                return f"{cell}  released; another worker can pick it up"
            case "planned":
                return f"planned {counted(event.trials or 0, 'more cell')}"
            case "reaped":
                return f"{counted(event.trials or 0, 'trial')} of dead workers will be run again"
            case "unwatched":
                return event.reason
            case "untracked" if event.reason not in self._untracked:
                self._untracked.add(event.reason)
                return event.reason
            case "idle" if event.counts is not None:
                row.doing = f"waiting, {counted(event.counts.running, 'cell')} running elsewhere"
            case "left":
                row.doing = "done"
        return None

    def _reported(self, event: Event, row: Row) -> None:
        spec = self._standings[event.study].spec
        assert event.point is not None
        if spec is not None:
            row.done = max(row.done, event.point.epoch / spec.recipe.epochs)
            row.loss = event.point.train_loss if isfinite(event.point.train_loss) else None
            row.score = event.point.metrics.get(spec.metric)

    def state(self, worker: str, text: str) -> None:
        """What the supervisor knows of a worker that sends no events."""
        row = self.rows.setdefault(worker, Row())
        row.cell, row.doing = None, text

    def tally(self) -> str:
        """`[12/40, 1 failed, 3m20s left]`."""
        standings = self._standings.values()
        done = max(self._finished, self._complete)
        failed = sum(s.overview.counts.failed for s in standings)
        total = max(done, sum(s.total for s in standings))
        left = "0s left" if done + failed == total else self._time_left()
        return f"[{done}/{total}, {f'{failed} failed, ' if failed else ''}{left}]"

    def _time_left(self) -> str:
        """Worked out at most a few times a second, however many cells finish."""
        text, made = self._told
        if time.monotonic() - made > ESTIMATE_SECONDS:
            left = [standing.seconds_left(self._workers) for standing in self._standings.values()]
            known = [seconds for seconds in left if seconds is not None]
            phase = " of this phase" if any(s.phased for s in self._standings.values()) else ""
            least = "" if len(known) == len(left) else "more than "
            text = f"{least}{duration(sum(known))} left{phase}" if sum(known) else "time left unknown"
            self._told = (text, time.monotonic())
        return text

    def seconds_left(self, row: Row) -> float | None:
        """Of the cell at hand: by its own progress once there is some, else by other cells."""
        if row.cell is None:
            return None
        spent = time.monotonic() - row.began
        if row.done:
            return max(0.0, spent / row.done * (1 - row.done))
        timing = self._standings[row.study].timing
        return None if timing is None else max(0.0, timing.seconds(row.cell) - spent)
