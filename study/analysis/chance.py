"""What a task scores with no learning: the majority class (F1: the positive one), or 0 for a correlation.

A table's own `chance` column comes first; the official GLUE validation sets are known; the rest is unknown.
"""

from __future__ import annotations

CORRELATIONS = ("matthews_correlation", "matthews", "mcc", "spearman", "spearmanr", "pearson", "pearsonr")

GLUE_MAJORITY: dict[tuple[str, str], float] = {
    ("cola", "accuracy"): 721 / 1043,
    ("sst2", "accuracy"): 444 / 872,
    ("mrpc", "accuracy"): 279 / 408,
    ("mrpc", "f1"): 2 * 279 / (408 + 279),
    ("qqp", "accuracy"): 25545 / 40430,
    ("qqp", "f1"): 2 * 14885 / (40430 + 14885),
    ("mnli", "accuracy"): 3479 / 9815,
    ("mnli", "accuracy_matched"): 3479 / 9815,
    ("mnli", "matched_accuracy"): 3479 / 9815,
    ("mnli", "accuracy_mismatched"): 3463 / 9832,
    ("mnli", "mismatched_accuracy"): 3463 / 9832,
    ("qnli", "accuracy"): 2761 / 5463,
    ("rte", "accuracy"): 146 / 277,
    ("wnli", "accuracy"): 40 / 71,
}
"""Majority class of the public GLUE validation sets; for F1 the positive class, which scores more."""
ASSUMED = "majority class of GLUE's validation set"
"""Of a table that names the task but may be of other data."""


def task_key(task: str) -> str:
    """One spelling per task: SST-2, sst_2 and sst2 are the same."""
    return task.lower().replace("-", "").replace("_", "").replace(" ", "")


def known_chance(task: str, metric: str) -> tuple[float, str] | tuple[None, None]:
    """Chance and where it is known from, for a table that does not record it."""
    name = metric.lower()
    if name in CORRELATIONS:
        return 0.0, "a correlation's zero"
    majority = GLUE_MAJORITY.get((task_key(task), name))
    if majority is None:
        return None, None
    return majority, ASSUMED
