"""The recorded objective: answers cells from a trial table instead of training. No torch, no pandas."""

from __future__ import annotations

import hashlib
import math
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from objectives import table_contract
from objectives.contract import FIRST, Attempt, Cell, CurvePoint, Report, TrialFailed, TrialRecord, UsageError

Number = TypeVar("Number", int, float)


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
    def chance(self) -> float | None:
        """As the first run that knows it says."""
        return next((run.measured["chance"] for run in self.runs if "chance" in run.measured), None)

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
    raw = table_contract.read(path)
    columns = table_contract.normalise(raw.columns, str(path), raw.lines)
    for name in ("protocol", "reason"):
        columns[name] = raw.columns.get(name, [""] * len(raw.lines))
    pairs: dict[tuple[str, str], list[tuple[RecordedRun, int]]] = {}
    for values in zip(*columns.values(), strict=True):
        row = dict(zip(columns, values, strict=True))
        pairs.setdefault((row["task"], row["model"]), []).append((_run(row), row["total_layers"]))
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


def _run(row: Mapping[str, Any]) -> RecordedRun:
    return RecordedRun(
        cell=Cell(
            frozen_layers=row["frozen_layers"],
            learning_rate=row["learning_rate"],
            seed=row["seed"],
            train_size=row["train_size"],
        ),
        state=row["state"],
        metric=row["metric"],
        score=row["score"],
        protocol=row["protocol"],
        reason=row["reason"],
        measured={
            name: kind(row[name])
            for name, kind in table_contract.MEASURED.items()
            if row.get(name) is not None
        },
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
        return run.state == "COMPLETE" and run.score is not None, bool(
            self.protocol
        ) and run.protocol == self.protocol

    def __call__(self, cell: Cell, report: Report, attempt: Attempt = FIRST) -> TrialRecord:
        run = self._runs.get(cell)
        if run is None:
            raise TrialFailed(f"the recorded table has no run of {cell}", retry=False)
        if self.delay_seconds:
            time.sleep(self.delay_seconds)
        draw = random.Random(f"{self.seed} {cell} {attempt.number}").random()
        if draw < self.failure_rate:
            raise TrialFailed(f"failed as asked: a failure rate of {self.failure_rate:g}")
        if run.state != "COMPLETE" or run.score is None:
            told = "recorded without a score" if run.state == "COMPLETE" else f"recorded as {run.state}"
            raise TrialFailed(run.reason or told, retry=False)
        metrics = {run.metric: run.score}
        report(CurvePoint(epoch=1.0, step=1, train_loss=math.nan, metrics=metrics))
        return TrialRecord(metric=run.metric, score=run.score, metrics=metrics, **run.measured)  # type: ignore[arg-type]
