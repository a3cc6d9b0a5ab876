"""Which run of a study is exported: the depth that a threshold asks for, its rate, and one of its seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from objectives.contract import Cell, TrialRecord, UsageError
from study.analysis.choices import THRESHOLDS
from study.models.wanted import Wanted
from study.reporting.content import analyse_studies

if TYPE_CHECKING:
    from storage.reading import StoredTrial
    from study.analysis.analyse import Analysis
    from study.analysis.points import OperatingPoint
    from study.analysis.quality import Curve
    from study.specs.study_spec import StudySpec
    from study.trials.sources import Reading


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One run, and why it."""

    cell: Cell
    record: TrialRecord
    runs: int
    """How many there were to choose from."""
    why: str
    curve: Curve
    point: OperatingPoint | None
    """None where a depth was named, and no threshold."""
    analysis: Analysis


def choose(reading: Reading, spec: StudySpec, trials: Sequence[StoredTrial], wanted: Wanted) -> Choice:
    """The run of the operating point; the median one of its seeds, unless told otherwise."""
    if not any(trial.record is not None for trial in trials):
        raise UsageError("the study has no complete trial yet: run it first")
    share = wanted.threshold or THRESHOLDS[0]
    given = {} if wanted.threshold is None and wanted.frozen_layers is not None else {"thresholds": [share]}
    analysis = analyse_studies(reading, **given)
    curve = _curve(analysis, wanted.train_size)
    point = None if wanted.frozen_layers is not None else _point(analysis, curve, share)
    depth = wanted.frozen_layers if point is None else point.frozen_layers
    rate = _rate(curve, depth) if point is None else point.learning_rate
    assert depth is not None
    assert rate is not None
    runs = [
        (trial.cell, trial.record)
        for trial in trials
        if trial.record is not None
        and trial.cell.frozen_layers == depth
        and abs(trial.cell.learning_rate / rate - 1) < 1e-5
        and trial.cell.train_size == curve.train_size
    ]
    # The best of a search flatters the rate that it chose: the analysis leaves its runs out, too.
    reported = [run for run in runs if run[0].seed not in spec.search_seeds] or runs
    (cell, record), why = _of_seeds(runs if wanted.seed is not None else reported, spec, wanted)
    asked = f"--frozen-layers {depth}" if point is None else f"the operating point at {100 * share:.4g} %"
    return Choice(
        cell=cell,
        record=record,
        runs=len(reported),
        why=f"{asked}, {why}",
        curve=curve,
        point=point,
        analysis=analysis,
    )


def _curve(analysis: Analysis, train_size: int | None) -> Curve:
    """Of the train size that was asked for; else of all data, or of the most."""
    if train_size is not None:
        found = [curve for curve in analysis.curves if curve.train_size == train_size]
        if not found:
            sizes = ", ".join(str(curve.train_size or "all") for curve in analysis.curves)
            raise UsageError(f"--train-size {train_size} was not studied: choose from {sizes}")
        return found[0]
    return max(analysis.curves, key=lambda curve: (curve.train_size is None, curve.train_size or 0))


def _point(analysis: Analysis, curve: Curve, share: float) -> OperatingPoint:
    found = next(p for p in analysis.points if p.train_size == curve.train_size and p.threshold == share)
    if found.frozen_layers is None:
        why = found.notes[0] if found.notes else "no measured depth keeps it"
        raise UsageError(
            f"there is no operating point at {100 * share:.4g} % ({why}): name a depth with --frozen-layers"
        )
    return found


def _rate(curve: Curve, depth: int | None) -> float:
    found = None if depth is None else curve.at(depth)
    if found is None or found.learning_rate is None:
        known = ", ".join(str(d.frozen_layers) for d in curve.depths if d.learning_rate is not None)
        raise UsageError(f"--frozen-layers {depth} has no complete trial: choose from {known}")
    return found.learning_rate


def _of_seeds(
    runs: Sequence[tuple[Cell, TrialRecord]], spec: StudySpec, wanted: Wanted
) -> tuple[tuple[Cell, TrialRecord], str]:
    if wanted.seed is not None:
        found = next((run for run in runs if run[0].seed == wanted.seed), None)
        if found is None:
            seeds = ", ".join(str(cell.seed) for cell, _ in runs)
            raise UsageError(f"--seed {wanted.seed} has no complete trial there: choose from {seeds}")
        return found, f"seed {wanted.seed} as asked"
    ordered = sorted(runs, key=lambda run: (spec.quality(run[1].score), -run[0].seed))
    if wanted.best:
        return ordered[-1], f"the best of {len(runs)} seeds"
    middle = ordered[(len(ordered) - 1) // 2]
    return middle, f"the median of {len(runs)} seeds" if len(runs) > 1 else "its only seed"
