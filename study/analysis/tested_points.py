"""The test split beside the operating points: what the chosen cells score on data that chose nothing."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from objectives.tasks.metrics import describe
from study.analysis.analyse import Analysis

if TYPE_CHECKING:
    import pandas as pd

    from study.analysis.points import OperatingPoint

PREFIX = "test_"


@dataclass(frozen=True, kw_only=True)
class Tested:
    """An operating point as its validation scores chose it, with its scores on the test split."""

    study: str | None
    model: str
    task: str
    train_size: int | None
    metric: str
    threshold: float
    frozen_layers: int
    runs: int
    score: float
    """Mean over the runs."""
    std: float | None
    full_runs: int
    full_score: float
    full_std: float | None
    relative: float | None
    """The share of the full model's quality; errors are measured from the chance of the validation split."""


def tested(table: pd.DataFrame, analysis: Analysis) -> tuple[Tested, ...]:
    """One for every operating point whose cells were scored on a test split."""
    found = (_tested(table, analysis, point) for point in analysis.points)
    return tuple(point for point in found if point is not None)


def _tested(table: pd.DataFrame, analysis: Analysis, point: OperatingPoint) -> Tested | None:
    column = f"{PREFIX}{point.metric}"
    if column not in table or point.frozen_layers is None:
        return None
    full_rate = _full_rate(analysis, point)
    here = _scores(table, point, column, point.frozen_layers, point.learning_rate)
    full = _scores(table, point, column, 0, full_rate)
    if not here or not full:
        return None
    score, whole = fmean(here), fmean(full)
    about = describe(point.metric)
    measurable = about.higher_is_better or point.chance is not None
    return Tested(
        study=point.study,
        model=point.model,
        task=point.task,
        train_size=point.train_size,
        metric=point.metric,
        threshold=point.threshold,
        frozen_layers=point.frozen_layers,
        runs=len(here),
        score=score,
        std=stdev(here) if len(here) > 1 else None,
        full_runs=len(full),
        full_score=whole,
        full_std=stdev(full) if len(full) > 1 else None,
        relative=about.relative(score, whole, point.chance) if measurable else None,
    )


def _full_rate(analysis: Analysis, point: OperatingPoint) -> float | None:
    key = (point.study, point.model, point.task, point.train_size, point.metric)
    for curve in analysis.curves:
        if (curve.study, curve.model, curve.task, curve.train_size, curve.metric) == key:
            full = curve.at(0)
            return full.learning_rate if full else None
    return None


def _scores(
    table: pd.DataFrame, point: OperatingPoint, column: str, frozen_layers: int, rate: float | None
) -> list[float]:
    if rate is None:
        return []
    same = (table["state"] == "COMPLETE") & (table["model"] == point.model) & (table["task"] == point.task)
    same &= (table["frozen_layers"] == frozen_layers) & table[column].notna()
    same &= (table["learning_rate"] / rate - 1).abs() < 1e-5
    size = table["train_size"]
    same &= size.isna() if point.train_size is None else size.eq(point.train_size).fillna(False)
    if point.study is not None and "study" in table:
        same &= table["study"] == point.study
    return [float(value) for value in table.loc[same, column]]
