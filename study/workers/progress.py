"""What a person sees while one worker runs: a line that says what is done, what runs, and the time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

from study.command import duration
from study.estimate import Pace, seconds_left

if TYPE_CHECKING:
    from study.workers.events import Event
    from study.workers.worker import Job


class ProgressLine:
    """On a terminal one line that renews itself, with a line kept per finished cell; else only those."""

    def __init__(self, jobs: Sequence[Job], pace: Mapping[str, Pace], out: TextIO | None = None):
        self._jobs = {job.study.name: job for job in jobs}
        self._pace = pace
        self._out = out or sys.stdout
        self._live = self._out.isatty()
        self._several = len(jobs) > 1
        self._began = time.monotonic()

    def __call__(self, event: Event) -> None:
        study = f"{event.study}: " if self._several else ""
        match event.kind:
            case "claimed":
                self._show(f"{self._tally()}  {study}{event.cell}")
            case "reported" if event.point is not None:
                metric = self._jobs[event.study].spec.metric
                score = event.point.metrics[metric]
                self._show(
                    f"{self._tally()}  {study}{event.cell}  epoch {event.point.epoch:g} {metric} {score:.4f}"
                )
            case "finished" if event.record is not None and event.cell is not None:
                self._pace[event.study].finished(event.cell, event.record, event.seconds or 0.0)
                self._keep(
                    f"{self._tally()}  {study}{event.cell}  {event.record.metric} {event.record.score:.4f}"
                    f"  {duration(event.seconds or 0)}"
                )
            case "failed":
                self._keep(f"{study}{event.cell}  failed: {event.reason}")
            case "lost":
                self._keep(f"{study}{event.cell}  was given to another worker; this result is not kept")
            case "released":
                self._keep(f"{study}{event.cell}  released, for whoever comes next")
            case "planned":
                self._pace[event.study].planned(event.trials or 0)
                self._keep(f"{study}planned {event.trials} more cells")
            case "reaped":
                self._keep(f"{study}{event.trials} trials of dead workers taken back")
            case "unwatched":
                self._keep(f"{study}{event.reason}")
            case "idle" if event.counts is not None:
                self._show(
                    f"{self._tally()}  {study}waiting for {event.counts.running} cells that run elsewhere"
                )

    def _tally(self) -> str:
        done = sum(pace.done for pace in self._pace.values())
        total = sum(pace.total for pace in self._pace.values())
        left = seconds_left(self._pace.values())
        phases = " of this phase" if any(pace.in_phases for pace in self._pace.values()) else ""
        estimate = "time left unknown" if left is None else f"{duration(left)} left{phases}"
        return f"[{done}/{total}, {estimate}]"

    def _show(self, text: str) -> None:
        if self._live:
            self._out.write(f"\r\x1b[2K{text}")
            self._out.flush()

    def _keep(self, text: str) -> None:
        self._out.write(f"\r\x1b[2K{text}\n" if self._live else f"{text}\n")
        self._out.flush()
