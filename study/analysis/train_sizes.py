"""Quality by train size and depth: mean, median, std, min and max of the replicates, the best marked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, median, stdev

from objectives.tasks.metrics import describe
from study.analysis.quality import Curve


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The replicates of one train size and depth, at the chosen learning rate."""

    study: str | None
    model: str
    task: str
    metric: str
    train_size: int | None
    frozen_layers: int
    learning_rate: float
    replicates: int
    mean: float
    median: float
    std: float | None
    """Sample standard deviation (n - 1); None with one replicate."""
    min: float
    max: float
    best: bool
    """The best mean at this train size; all of them where several are equal."""
    chance: float | None


def summaries(curves: Iterable[Curve]) -> tuple[Summary, ...]:
    """One row per train size and depth that has runs, in the order of the curves."""
    return tuple(row for curve in curves for row in _rows(curve))


def sized(curves: Iterable[Curve]) -> list[Curve]:
    """The curves of pairs (model, task) that were measured at more than one train size."""
    by_pair: dict[tuple[str | None, str, str, str], list[Curve]] = {}
    for curve in curves:
        by_pair.setdefault((curve.study, curve.model, curve.task, curve.metric), []).append(curve)
    return [curve for group in by_pair.values() if len(group) > 1 for curve in group]


def _rows(curve: Curve) -> list[Summary]:
    measured = [depth for depth in curve.depths if depth.scores and depth.learning_rate is not None]
    better = max if describe(curve.metric).higher_is_better else min
    best = better((fmean(depth.scores) for depth in measured), default=0.0)
    return [
        Summary(
            study=curve.study,
            model=curve.model,
            task=curve.task,
            metric=curve.metric,
            train_size=curve.train_size,
            frozen_layers=depth.frozen_layers,
            learning_rate=depth.learning_rate or 0.0,
            replicates=len(depth.scores),
            mean=fmean(depth.scores),
            median=median(depth.scores),
            std=stdev(depth.scores) if len(depth.scores) > 1 else None,
            min=min(depth.scores),
            max=max(depth.scores),
            best=abs(fmean(depth.scores) - best) <= 1e-12,
            chance=curve.chance,
        )
        for depth in measured
    ]
