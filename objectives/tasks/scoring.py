"""How metrics are computed from labels and outputs, with scikit-learn and SciPy; and constant answers.

Labels tell the kind of task: whole numbers are classes, a matrix of 0 and 1 is multi-label, other numbers a
regression. Outputs are logits, one column per label; a regression's are its predictions.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_MOST_SETS = 24
"""Of labels that are tried as the same answer for every example of a multi-label task."""


def predicted(labels: Array, outputs: Array) -> Array:
    """The class of each example, or the labels that it has, or its number."""
    if labels.ndim == 2:
        return (outputs > 0).astype(np.int64)
    if _is_regression(labels):
        return outputs.reshape(len(outputs))
    return outputs.argmax(axis=1)


def accuracy(labels: Array, outputs: Array) -> float:
    """Of multi-label tasks: the share of examples with all labels right."""
    right = labels == predicted(labels, outputs)
    return float(np.mean(right.all(axis=1) if labels.ndim == 2 else right))


def binary_f1(labels: Array, outputs: Array) -> float:
    """Of the second class. Without scikit-learn, which takes seconds to import: every report of MRPC asks."""
    found = predicted(labels, outputs) == 1
    wanted = labels == 1
    either = found.sum() + wanted.sum()
    return float(2 * (found & wanted).sum() / either) if either else 0.0


def f1(average: Literal["macro", "micro", "weighted"]) -> Callable[[Array, Array], float]:
    """Over the labels that occur; labels without examples are skipped."""

    def compute(labels: Array, outputs: Array) -> float:
        from sklearn import metrics

        answers = predicted(labels, outputs)
        # Answers of a class that no example has count as misses of the others.
        return float(
            metrics.f1_score(labels, answers, average=average, labels=_present(labels), zero_division=0)
        )

    return compute


def balanced_accuracy(labels: Array, outputs: Array) -> float:
    from sklearn import metrics

    return float(
        metrics.recall_score(
            labels, predicted(labels, outputs), average="macro", labels=_present(labels), zero_division=0
        )
    )


def matthews(labels: Array, outputs: Array) -> float:
    from sklearn import metrics

    return float(metrics.matthews_corrcoef(labels, predicted(labels, outputs)))


def roc_auc(labels: Array, outputs: Array) -> float:
    """Of two classes that of the second; of more, and of labels, the mean of each against the rest."""
    from sklearn import metrics

    return _mean_over_labels(metrics.roc_auc_score, labels, outputs, without=0.5)


def average_precision(labels: Array, outputs: Array) -> float:
    """Of two classes that of the second; of more, and of labels, the mean of each against the rest."""
    from sklearn import metrics

    return _mean_over_labels(metrics.average_precision_score, labels, outputs, without=0.0)


def spearman(labels: Array, outputs: Array) -> float:
    from scipy import stats

    return _correlation(stats.spearmanr, labels, outputs)


def pearson(labels: Array, outputs: Array) -> float:
    from scipy import stats

    return _correlation(stats.pearsonr, labels, outputs)


def mean_absolute_error(labels: Array, outputs: Array) -> float:
    return float(np.abs(predicted(labels, outputs) - labels).mean())


def root_mean_squared_error(labels: Array, outputs: Array) -> float:
    return float(np.sqrt(np.square(predicted(labels, outputs) - labels).mean()))


def constant_answers(labels: Array, classes: int | None = None) -> Iterator[Array]:
    """Outputs that are the same for every example, the best of them for every metric among them."""
    examples = len(labels)
    if labels.ndim == 2:
        for chosen in _likely_sets(labels):
            yield np.tile(np.where(chosen, 1.0, -1.0), (examples, 1))
    elif _is_regression(labels):
        yield np.full(examples, labels.mean())
        yield np.full(examples, np.median(labels))
    else:
        counts = np.bincount(labels.astype(np.int64), minlength=max(2, classes or 2))
        best = {int(counts.argmax())} | ({1} if len(counts) == 2 else set())
        for label in sorted(best):
            yield np.tile(np.arange(len(counts)) == label, (examples, 1)).astype(np.float64)


def _likely_sets(labels: Array) -> Iterator[NDArray[np.bool_]]:
    """The most frequent labels, more and more of them, and the most frequent combination."""
    order = np.argsort(-labels.sum(axis=0), kind="stable")
    sizes = np.unique(np.geomspace(1, len(order), _MOST_SETS).astype(np.int64))
    for size in sizes:
        chosen = np.zeros(labels.shape[1], dtype=bool)
        chosen[order[:size]] = True
        yield chosen
    sets, counts = np.unique(labels, axis=0, return_counts=True)
    yield sets[counts.argmax()].astype(bool)


def _is_regression(labels: Array) -> bool:
    return labels.dtype.kind == "f"


def _present(labels: Array) -> Array:
    """The labels that some example has."""
    return np.flatnonzero(labels.any(axis=0)) if labels.ndim == 2 else np.unique(labels)


def _mean_over_labels(
    metric: Callable[[Array, Array], float], labels: Array, outputs: Array, *, without: float
) -> float:
    """Over labels that some examples have and others do not; `without` where there is none."""
    if labels.ndim == 2:
        pairs = [(labels[:, i], outputs[:, i]) for i in range(labels.shape[1])]
    elif outputs.shape[1] == 2:
        pairs = [(labels == 1, outputs[:, 1] - outputs[:, 0])]
    else:
        from scipy.special import softmax

        shares = softmax(outputs, axis=1)
        pairs = [(labels == i, shares[:, i]) for i in range(outputs.shape[1])]
    scores = [metric(truth, score) for truth, score in pairs if 0 < truth.sum() < len(truth)]
    return float(np.mean(scores)) if scores else without


def _correlation(correlate: Callable[..., Any], labels: Array, outputs: Array) -> float:
    from scipy import stats

    predictions = predicted(labels, outputs)
    if np.ptp(predictions) == 0 or np.ptp(labels) == 0:
        # No order was predicted, which is worth what chance is worth; SciPy would say NaN.
        return 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("error", stats.NearConstantInputWarning)
        try:
            return float(correlate(labels, predictions)[0])
        except stats.NearConstantInputWarning:
            return 0.0
