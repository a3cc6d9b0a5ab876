"""The recorded objective: answers cells from a trial table instead of training. No torch, no pandas."""

from __future__ import annotations

import csv
import hashlib
import math
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TypeVar

from objectives.contract import Cell, CurvePoint, Report, TrialFailed, TrialRecord, UsageError

Number = TypeVar("Number", int, float)

REQUIRED = ("task", "model", "total_layers", "frozen_layers", "learning_rate", "seed", "metric", "score")

MEASURED = {
    f.name: float if "float" in str(f.type) else int
    for f in fields(TrialRecord)
    if str(f.type) in ("float | None", "int | None")
}
"""Optional columns that go into the record as they are."""


@dataclass(frozen=True, kw_only=True)
class RecordedRun:
    """One row: what a trial of this cell once gave."""

    cell: Cell
    state: str
    metric: str
    score: float | None
    protocol: str
    reason: str
    measured: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class RecordedPair:
    """All runs of one model and task, and the grid they span."""

    task: str
    model: str
    total_layers: int
    metric: str
    runs: tuple[RecordedRun, ...]

    @property
    def frozen_layers(self) -> tuple[int, ...]:
        return _distinct(run.cell.frozen_layers for run in self.runs)

    @property
    def learning_rates(self) -> tuple[float, ...]:
        return _distinct(run.cell.learning_rate for run in self.runs)

    @property
    def seeds(self) -> tuple[int, ...]:
        return _distinct(run.cell.seed for run in self.runs)

    @property
    def train_sizes(self) -> tuple[int | None, ...]:
        sizes = {run.cell.train_size for run in self.runs}
        return (*((None,) if None in sizes else ()), *sorted(size for size in sizes if size is not None))

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Each once, in the order of the table."""
        return tuple(dict.fromkeys(run.cell for run in self.runs))

    def fingerprint(self) -> str:
        """Of what the runs say, whatever file they came from."""
        rows = sorted(f"{run.cell} {run.state} {run.metric} {run.score!r}" for run in self.runs)
        return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:16]


def read_table(path: str | Path) -> list[RecordedPair]:
    """The models and tasks of a trial table, in the order in which they first appear."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            missing = [name for name in REQUIRED if name not in (reader.fieldnames or ())]
            if missing:
                raise UsageError(f"{path} is not a trial table: it lacks the columns {', '.join(missing)}")
            rows = [(reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"--recorded {path} cannot be read: {error}") from None
    if not rows:
        raise UsageError(f"{path} is a trial table without trials")
    pairs: dict[tuple[str, str], list[tuple[RecordedRun, int]]] = {}
    for line, row in rows:
        try:
            run, layers = _run(row), int(row["total_layers"])
        except (ValueError, TypeError) as error:
            raise UsageError(f"{path}, line {line}: {error}") from None
        pairs.setdefault((row["task"], row["model"]), []).append((run, layers))
    return [_pair(path, task, model, runs) for (task, model), runs in pairs.items()]


def _pair(path: str | Path, task: str, model: str, runs: Sequence[tuple[RecordedRun, int]]) -> RecordedPair:
    layers = {count for _, count in runs}
    metrics = {run.metric for run, _ in runs if run.metric}
    if len(layers) != 1 or len(metrics) != 1:
        raise UsageError(
            f"{path}: {model} on {task} needs one number of layers and one metric, "
            f"it has {sorted(layers)} and {sorted(metrics)}"
        )
    return RecordedPair(
        task=task,
        model=model,
        total_layers=layers.pop(),
        metric=metrics.pop(),
        runs=tuple(run for run, _ in runs),
    )


def _run(row: dict[str, str]) -> RecordedRun:
    state = row.get("state") or "COMPLETE"
    score = float(row["score"]) if row["score"] else None
    if state == "COMPLETE" and (score is None or not math.isfinite(score)):
        raise ValueError(f"a complete trial with the score {row['score']!r}")
    return RecordedRun(
        cell=Cell(
            frozen_layers=int(row["frozen_layers"]),
            learning_rate=float(row["learning_rate"]),
            seed=int(row["seed"]),
            train_size=int(row["train_size"]) if row.get("train_size") else None,
        ),
        state=state,
        metric=row["metric"],
        score=score,
        protocol=row.get("protocol") or "",
        reason=row.get("reason") or "",
        measured={name: kind(float(row[name])) for name, kind in MEASURED.items() if row.get(name)},
    )


def _distinct(values: Iterable[Number]) -> tuple[Number, ...]:
    return tuple(sorted(set(values)))


@dataclass(kw_only=True)
class RecordedObjective:
    """`objective(cell, report)` from the runs of one model and task.

    Of several complete runs of a cell, one counts: the first that `protocol` ran where the table says so,
    else the first. A cell that only failed fails again, with its reason.
    """

    pair: RecordedPair
    delay_seconds: float = 0.0
    failure_rate: float = 0.0
    """Share of tries that fail; drawn from `seed`, the cell and the attempt, so that workers agree."""
    seed: int = 0
    protocol: str = ""
    attempt: int = 1
    """Set by the worker before each trial."""
    _runs: dict[Cell, RecordedRun] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.delay_seconds < 0:
            raise UsageError(f"--recorded-delay {self.delay_seconds:g} is negative")
        if not 0 <= self.failure_rate <= 1:
            raise UsageError(f"--recorded-failure-rate {self.failure_rate:g} is not between 0 and 1")
        self._runs = {}
        for run in self.pair.runs:
            other = self._runs.get(run.cell)
            if other is None or self._rank(run) > self._rank(other):
                self._runs[run.cell] = run

    def _rank(self, run: RecordedRun) -> tuple[bool, bool]:
        return run.state == "COMPLETE", bool(self.protocol) and run.protocol == self.protocol

    def __call__(self, cell: Cell, report: Report) -> TrialRecord:
        run = self._runs.get(cell)
        if run is None:
            raise TrialFailed(f"the recorded table has no run of {cell}", retry=False)
        if self.delay_seconds:
            time.sleep(self.delay_seconds)
        draw = random.Random(f"{self.seed} {cell} {self.attempt}").random()
        if draw < self.failure_rate:
            raise TrialFailed(f"failed as asked: a failure rate of {self.failure_rate:g}")
        if run.state != "COMPLETE" or run.score is None:
            raise TrialFailed(run.reason or f"recorded as {run.state}", retry=False)
        metrics = {run.metric: run.score}
        report(CurvePoint(epoch=1.0, step=1, train_loss=math.nan, metrics=metrics))
        return TrialRecord(metric=run.metric, score=run.score, metrics=metrics, **run.measured)  # type: ignore[arg-type]
