"""Task metrics from scikit-learn and SciPy, and the score of knowing nothing."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from objectives.tasks import Task

CORRELATIONS = ("matthews_correlation", "spearman", "pearson")


def _metric(name: str, labels: NDArray, predictions: NDArray) -> float:
    from scipy import stats
    from sklearn import metrics

    match name:
        case "accuracy":
            return float(np.mean(labels == predictions))
        case "f1":
            return float(metrics.f1_score(labels, predictions, zero_division=0))
        case "matthews_correlation":
            return float(metrics.matthews_corrcoef(labels, predictions))
        case "spearman" | "pearson":
            if np.ptp(predictions) == 0 or np.ptp(labels) == 0:
                # No order was predicted, which is worth what chance is worth; SciPy would say NaN.
                return 0.0
            correlate = stats.spearmanr if name == "spearman" else stats.pearsonr
            with warnings.catch_warnings():
                warnings.simplefilter("error", stats.NearConstantInputWarning)
                try:
                    return float(correlate(labels, predictions)[0])
                except stats.NearConstantInputWarning:
                    return 0.0
    raise KeyError(name)


def evaluate(task: Task, logits: Mapping[str, NDArray], labels: Mapping[str, NDArray]) -> dict[str, float]:
    """All metrics over all validation splits; those of a second split carry its suffix."""
    scores: dict[str, float] = {}
    for split, values in logits.items():
        predictions = values[:, 0] if task.regression else values.argmax(axis=1)
        suffix = "_mismatched" if split.endswith("_mismatched") else ""
        for name in task.metrics:
            scores[name + suffix] = _metric(name, labels[split], predictions)
    return scores


def chance(metric: str, labels: NDArray) -> float:
    """What always answering the majority class scores (F1: the positive class); 0 for correlations."""
    if metric in CORRELATIONS:
        return 0.0
    if metric == "f1":
        return _metric("f1", labels, np.ones_like(labels))
    return float(np.bincount(labels.astype(np.int64)).max() / len(labels))
