"""What a task scores with no learning, for tables that do not record it.

A table's own `chance` column comes first; then the metric's own, where it is the same for all data; then the
public validation sets of the shipped tasks; the rest is unknown.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from objectives.tasks import metrics
from objectives.tasks.definition import Task, find_task
from objectives.tasks.definition import task_key as task_key

ASSUMED = "majority class of the task's public validation set"
"""Of a table that names the task but may be of other data."""


def known_chance(task: str, metric: str) -> tuple[float, str] | tuple[None, None]:
    """Chance and where it is known from, for a table that does not record it."""
    about = metrics.describe(metric)
    if about.fixed_chance is not None:
        return about.fixed_chance, f"what any constant answer scores in {about.display}"
    found = find_task(task)
    score = _public_chance(found.name, metric.lower()) if found else None
    return (None, None) if score is None else (score, ASSUMED)


def kept_by_chance(metric: str, chance: float | None, full_score: float | None) -> float | None:
    """The share of the full model's quality that no learning at all keeps; None where that is unknown."""
    if chance is None or full_score is None:
        return None
    return metrics.describe(metric).relative(chance, full_score, chance)


@cache
def _public_chance(task: str, metric: str) -> float | None:
    """Of the validation split that the metric's name points at: `accuracy_mismatched`, or the first one."""
    found = find_task(task)
    assert found is not None
    about = metrics.describe(metric)
    split = _split(found, metric, about)
    if split is None or split not in found.label_counts or about.compute is None:
        return None
    labels = np.repeat(np.arange(len(found.labels)), found.label_counts[split])
    return about.chance(labels)


def _split(task: Task, metric: str, about: metrics.Metric) -> str | None:
    """None where the name has a word that is no split of the task."""
    for name in (about.name, *about.other_names):
        word = metric.removeprefix(f"{name}_").removesuffix(f"_{name}")
        if word == name:
            return task.validation[0]
        if word != metric:
            return next((split for split in task.validation if split.endswith(f"_{word}")), None)
    return None
