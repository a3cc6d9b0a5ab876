"""How one study stands: counts, best score, pace, time left, who runs what, what failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from textwrap import fill
from typing import TYPE_CHECKING, Any

from objectives.contract import Cell
from storage.terms import Terms
from study import protocols
from study.cli.command import duration
from study.cli.wording import columns, counted
from study.progress.pace import Timing
from study.specs.study_spec import StudySpec

if TYPE_CHECKING:
    from storage.overview import Overview, Running
    from storage.studies import StoredStudy

HOUR = 3600.0
SILENT_SECONDS = Terms.grace_seconds
"""The default grace period: a worker that sent no heartbeat for longer is taken for dead."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """One study as it stands now."""

    name: str
    spec: StudySpec | None
    """None for a study that other software made."""
    overview: Overview
    grace_seconds: float = SILENT_SECONDS

    @property
    def total(self) -> int:
        counts = self.overview.counts
        return counts.open + counts.complete + counts.failed

    @property
    def phased(self) -> bool:
        """Whether the protocol may want more cells once these are done."""
        known = self.spec is not None and self.spec.protocol in protocols.known()
        return self.spec is not None and known and protocols.get(self.spec.protocol).phased

    @property
    def cells_per_hour(self) -> float:
        """Over the last hour, or since the oldest of the trials that are looked at."""
        within = [trial for trial in self.overview.recent if trial.seconds_ago <= HOUR]
        if not within:
            return 0.0
        from storage.overview import RECENT

        began = max(trial.seconds_ago + trial.elapsed_seconds for trial in within)
        oldest = max(trial.seconds_ago for trial in within)
        span = oldest if len(within) >= RECENT else min(HOUR, began)
        return len(within) * HOUR / max(span, 1.0)

    @cached_property
    def timing(self) -> Timing | None:
        """Seconds by depth, from the newest trials; None before the first."""
        if self.spec is None or not self.overview.recent:
            return None
        trains = not self.spec.recorded
        return Timing(
            self.spec,
            [
                (t.cell, t.work_seconds if trains and t.work_seconds is not None else t.elapsed_seconds)
                for t in self.overview.recent
            ],
        )

    def seconds_left(self, workers: int = 0) -> float | None:
        """By the work that is left, shared by those who run now or by `workers`; None where it is unknown."""
        if self.overview.counts.open == 0:
            return 0.0
        at_work = max(workers, len(self.alive))
        timing = self.timing
        if self.spec is None or timing is None or not at_work:
            return None
        rate, seed = self.spec.learning_rates[0], self.spec.seeds[0]
        left = sum(
            count * timing.seconds(Cell(depth, rate, seed, size))
            for depth, size, count in self.overview.open_cells
        )
        spent = sum(min(trial.seconds, timing.seconds(trial.cell)) for trial in self.alive)
        return max(0.0, left - spent) / at_work

    @property
    def alive(self) -> list[Running]:
        """Trials whose worker sent a heartbeat within the grace period."""
        return [
            trial
            for trial in self.overview.running
            if trial.silent_seconds is not None and trial.silent_seconds <= self.grace_seconds
        ]

    def epoch(self, trial: Running) -> float | None:
        if self.spec is None:
            return None
        recipe = self.spec.recipe
        return min(float(recipe.epochs), trial.evaluations / recipe.evaluations_per_epoch)

    def to_dict(self) -> dict[str, Any]:
        found = self.overview
        spec = self.spec
        left = self.seconds_left()
        about: dict[str, Any] = {"study": self.name}
        if spec is not None:
            about |= {name: getattr(spec, name) for name in ("task", "model", "protocol", "metric")}
            about |= {"demo": spec.demo, "recorded": spec.recorded}
        return {
            **about,
            "cells": {"total": self.total, **asdict(found.counts)},
            "best": None if found.best is None else {"score": found.best[1], **found.best[0].parameters()},
            "cells_per_hour": round(self.cells_per_hour, 2),
            "seconds_left": None if left is None else round(left, 1),
            "running": [{**_flat(trial), "epoch": self.epoch(trial)} for trial in found.running],
            "failed_trials": found.failed_trials,
            "failures": [_flat(failure) for failure in found.failures],
        }

    def __str__(self) -> str:
        """As `elsa status` prints it."""
        return self.render()

    def render(self, width: int = 80) -> str:
        found = self.overview
        counts = found.counts
        lines = [
            f"{self.name}{self._marks()}",
            f"  {counted(self.total, 'cell')}: {counts.complete} done, {counts.running} running, "
            f"{counts.waiting} waiting, {counts.failed} failed",
        ]
        if found.best is not None:
            metric = self.spec.metric if self.spec else "value"
            lines.append(f"  best {metric} {found.best[1]:.4f} at {found.best[0]}")
        lines.append(f"  {self._pace()}")
        lines += columns(self._workers(), indent="    ", width=width)
        if found.failures:
            lines.append(f"  {counted(found.failed_trials, 'failed trial')}, the newest first:")
            told = (
                f"{duration(failure.seconds_ago or 0)} ago, trial {failure.number} ({failure.cell}), "
                f"try {failure.attempt} on {failure.worker}, "
                f"{'no more retries' if failure.final else 'will be retried'}: {failure.reason}"
                for failure in found.failures
            )
            lines += [fill(text, width, initial_indent="    ", subsequent_indent="      ") for text in told]
        return "\n".join(lines)

    def _marks(self) -> str:
        if self.spec is None:
            return "  (not a study of this software)"
        return "".join(f"  ({mark})" for mark in self.spec.marks)

    def _pace(self) -> str:
        if self.overview.counts.open == 0:
            return "no cell is waiting or running"
        pace = self.cells_per_hour
        rate = f"{pace:,.0f} cells per hour" if pace >= 10 else f"{pace:.2g} cells per hour"
        left = self.seconds_left()
        if not self.alive:
            return f"{rate}; no worker is running a cell now"
        return f"{rate}, time left unknown" if left is None else f"{rate}, about {duration(left)} left"

    def _workers(self) -> list[list[str]]:
        if not self.overview.running:
            return []
        metric = self.spec.metric if self.spec else "value"
        table = [["worker", "cell", "try", "for", "epoch", metric, "heartbeat"]]
        for trial in self.overview.running:
            epoch = self.epoch(trial)
            table.append(
                [
                    trial.worker,
                    brief(trial.cell),
                    str(trial.attempt),
                    duration(trial.seconds),
                    "" if not trial.evaluations or epoch is None else f"{epoch:g}",
                    "" if trial.score is None else f"{trial.score:.4f}",
                    _heard(trial.silent_seconds, self.grace_seconds),
                ]
            )
        return table


def brief(cell: Cell) -> str:
    """A cell in few enough characters for one line of a narrow terminal."""
    size = "" if cell.train_size is None else f", {cell.train_size} examples"
    return f"{cell.frozen_layers} frozen, {cell.learning_rate:g}, seed {cell.seed}{size}"


def _heard(silent_seconds: float | None, grace_seconds: float) -> str:
    if silent_seconds is None:
        return "none: started by another tool"
    lost = "" if silent_seconds <= grace_seconds else ": lost, to be retried"
    return f"{duration(silent_seconds)} ago{lost}"


def _flat(item: Any) -> Mapping[str, Any]:
    fields = asdict(item)
    return {**fields.pop("cell"), **fields}


def read_standing(study: StoredStudy) -> Standing:
    """From the database, in a few small reads."""
    from storage.overview import read_overview

    text = study.attributes().get("spec")
    return Standing(
        name=study.name,
        spec=None if text is None else StudySpec.from_json(text),
        overview=read_overview(study),
        grace_seconds=study.terms.grace_seconds,
    )
