"""Metrics: each is one object with its name, direction, bounds, computation and its value at chance.

A new metric is one entry of METRICS. No torch, so that the analysis can ask for names and directions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from objectives.errors import UsageError, did_you_mean
from objectives.tasks import scoring
from objectives.tasks.definition import Kind, Task

Score = TypeVar("Score", float, NDArray[np.float64])
CLASSES: tuple[Kind, ...] = ("classes",)
LABELS: tuple[Kind, ...] = ("classes", "multi-label")
NUMBERS: tuple[Kind, ...] = ("regression",)
_LOWER = frozenset({"error", "err", "mse", "rmse", "mae", "mape", "msle", "brier", "wer", "cer"})
_LOWER |= {"loss", "nll", "entropy", "perplexity", "ppl"}
"""Words in the name of an unknown metric that is better the lower it is."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    name: str
    display: str
    """As people write it."""
    kinds: tuple[Kind, ...] = ()
    """The kinds of task that have it; none for a metric of somebody else's table."""
    low: float = -math.inf
    high: float = math.inf
    higher_is_better: bool = True
    fixed_chance: float | None = None
    """What any constant answer scores, whatever the labels are; None where that depends on them."""
    compute: Callable[[NDArray[Any], NDArray[Any]], float] | None = None
    """From labels and a model's outputs: logits, or numbers for a regression."""
    other_names: tuple[str, ...] = ()
    """As other software calls it."""

    def __call__(self, labels: NDArray[Any], outputs: NDArray[Any]) -> float:
        if self.compute is None:
            raise UsageError(f"{self.name} cannot be computed: choose from {', '.join(METRICS)}")
        return float(self.compute(labels, outputs))

    def chance(self, labels: NDArray[Any], classes: int | None = None) -> float:
        """What the best answer scores that is the same for every example.

        `classes` is the number of them, where the labels may lack the last ones.
        """
        if self.fixed_chance is not None:
            return self.fixed_chance
        scores = [self(labels, outputs) for outputs in scoring.constant_answers(labels, classes)]
        return max(scores) if self.higher_is_better else min(scores)

    def quality(self, score: Score, chance: float | None) -> Score:
        """A number of which more is better and zero is worth nothing; shares are taken of it.

        Of a metric that is better the higher it is, the score itself, as in the paper. Of an error, what the
        model takes off the error at chance: `chance - score`.
        """
        if self.higher_is_better:
            return score
        if chance is None:
            raise UsageError(
                f"{self.name} is better the lower it is, and its quality is what it takes off the error of a "
                "constant answer: that error is needed as chance"
            )
        return chance - score

    def score(self, quality: Score, chance: float | None) -> Score:
        """The score of which `quality` makes this."""
        return self.quality(quality, chance)

    def relative(self, score: float, full: float, chance: float | None) -> float | None:
        """The share of the full model's quality that this score keeps; None where that has none."""
        whole = self.quality(full, chance)
        return self.quality(score, chance) / whole if whole > 0 else None

    def better(self, score: float, other: float) -> bool:
        return score > other if self.higher_is_better else score < other


_UNIT: dict[str, Any] = {"low": 0.0, "high": 1.0}
_CORRELATION: dict[str, Any] = {"low": -1.0, "high": 1.0, "fixed_chance": 0.0}
_ERROR: dict[str, Any] = {"low": 0.0, "higher_is_better": False, "kinds": NUMBERS}

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(name="accuracy", display="accuracy", kinds=LABELS, compute=scoring.accuracy, **_UNIT),
        Metric(
            name="balanced_accuracy",
            display="balanced accuracy",
            kinds=CLASSES,
            compute=scoring.balanced_accuracy,
            **_UNIT,
        ),
        Metric(name="f1", display="F1", kinds=CLASSES, compute=scoring.binary_f1, **_UNIT),
        Metric(name="macro_f1", display="macro F1", kinds=LABELS, compute=scoring.f1("macro"), **_UNIT),
        Metric(name="micro_f1", display="micro F1", kinds=LABELS, compute=scoring.f1("micro"), **_UNIT),
        Metric(
            name="weighted_f1", display="weighted F1", kinds=LABELS, compute=scoring.f1("weighted"), **_UNIT
        ),
        Metric(
            name="matthews_correlation",
            display="Matthews correlation",
            kinds=CLASSES,
            compute=scoring.matthews,
            other_names=("matthews", "mcc"),
            **_CORRELATION,
        ),
        Metric(
            name="roc_auc",
            display="ROC AUC",
            kinds=LABELS,
            compute=scoring.roc_auc,
            fixed_chance=0.5,
            other_names=("auc", "auroc"),
            **_UNIT,
        ),
        Metric(
            name="average_precision",
            display="average precision",
            kinds=LABELS,
            compute=scoring.average_precision,
            **_UNIT,
        ),
        Metric(
            name="spearman",
            display="Spearman correlation",
            kinds=NUMBERS,
            compute=scoring.spearman,
            other_names=("spearmanr",),
            **_CORRELATION,
        ),
        Metric(
            name="pearson",
            display="Pearson correlation",
            kinds=NUMBERS,
            compute=scoring.pearson,
            other_names=("pearsonr",),
            **_CORRELATION,
        ),
        Metric(
            name="mae",
            display="mean absolute error",
            compute=scoring.mean_absolute_error,
            other_names=("mean_absolute_error",),
            **_ERROR,
        ),
        Metric(
            name="rmse",
            display="root mean squared error",
            compute=scoring.root_mean_squared_error,
            other_names=("root_mean_squared_error",),
            **_ERROR,
        ),
    )
}
_BY_NAME = METRICS | {other: metric for metric in METRICS.values() for other in metric.other_names}


def get(name: str) -> Metric:
    """A metric that trials can be scored by."""
    found = _BY_NAME.get(name.lower().replace("-", "_"))
    if found is None:
        raise UsageError(f"unknown metric {name!r}: {did_you_mean(name.lower(), METRICS)}")
    return found


@lru_cache(maxsize=1000)
def describe(name: str) -> Metric:
    """What is known of any metric by its name, as it stands in a table: `accuracy_mismatched`, `test_f1`.

    Of one that is not known, the words of its name say whether less is better.
    """
    key = name.lower()
    if key in _BY_NAME:
        return _BY_NAME[key]
    words = set(re.split(r"[^a-z0-9]+", key))
    negated = bool(words & {"neg", "negative"})
    for known in sorted(_BY_NAME, key=len, reverse=True):
        if not negated and (key.startswith(f"{known}_") or key.endswith(f"_{known}")):
            return _BY_NAME[known]
    return Metric(
        name=name, display=name.replace("_", " "), higher_is_better=negated or words.isdisjoint(_LOWER)
    )


def display_name(name: str) -> str:
    """`F1`, `Matthews correlation`; `accuracy, mismatched` and `test F1` for those of another split."""
    key, metric = name.lower(), describe(name)
    for known in (metric.name, *metric.other_names):
        if key == known:
            return metric.display
        if key.startswith(f"{known}_"):
            return f"{metric.display}, {name[len(known) + 1 :].replace('_', ' ')}"
        if key.endswith(f"_{known}"):
            return f"{name[: -len(known) - 1].replace('_', ' ')} {metric.display}"
    return metric.display


def check(task: Task, names: Sequence[str]) -> tuple[str, ...]:
    """The names of metrics that this task can be scored by, as METRICS spells them."""
    found = [get(name) for name in names]
    for metric in found:
        if task.kind not in metric.kinds:
            fitting = ", ".join(other.name for other in METRICS.values() if task.kind in other.kinds)
            raise UsageError(f"metric {metric.name} is not for {task.kind}: choose from {fitting}")
        if metric.name == "f1" and len(task.labels) != 2:
            raise UsageError(
                f"metric f1 is for two classes, and {task.name} has {len(task.labels)}: use macro_f1, "
                "micro_f1 or weighted_f1"
            )
    if not found:
        raise UsageError(f"{task.name} has no metric: choose from {', '.join(METRICS)}")
    return tuple(dict.fromkeys(metric.name for metric in found))


def evaluate(
    task: Task, outputs: Mapping[str, NDArray[Any]], labels: Mapping[str, NDArray[Any]]
) -> dict[str, float]:
    """All metrics of the task over these splits; those of a further split carry its suffix."""
    return {
        name + task.suffix(split): get(name)(labels[split], values)
        for split, values in outputs.items()
        for name in task.metrics
    }


def chance(name: str, labels: NDArray[Any], classes: int | None = None) -> float:
    return get(name).chance(labels, classes)
