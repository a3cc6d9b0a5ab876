"""What is unusual about a task's data and is no error: one sentence each, for every page about the study."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from datasets import Dataset

    from objectives.data.task_data import TaskData

IMBALANCED = 0.75
"""From here on a majority class is worth a remark, and macro F1 is the better first metric."""
_SHOWN = 5


def about(data: TaskData) -> Iterator[str]:
    splits = {"training": data.train, **_evaluated(data)}
    if data.task.splits.held_out is not None:
        held = len(data.validation[data.task.validation[0]])
        share = 100 * held / (held + len(data.train))
        yield (
            f"The data have no validation split: {share:.3g} % of the training examples ({held:,}) are held "
            "out as one, drawn with a fixed seed and stratified."
        )
    yield from _repeated(data)
    for name, split in splits.items():
        empty = sum(all(not text.strip() for text in texts) for texts in _texts(data, split))
        if empty:
            yield f"{empty:,} of {len(split):,} {name} texts {'is' if empty == 1 else 'are'} empty."
    if not data.task.regression:
        yield from _labels(data, {name: _counts(data, split) for name, split in splits.items()})


def about_subset(data: TaskData, rows: NDArray[np.int64]) -> str:
    """Which labels a subset of the training examples has lost; nothing where it has them all."""
    if data.task.regression:
        return ""
    whole, drawn = _counts(data, data.train), _counts(data, data.train.select(rows))
    lost = np.flatnonzero((whole > 0) & (drawn == 0))
    if not len(lost):
        return ""
    return (
        f"Of the {len(rows):,} training examples that are drawn, none has the label {_named(data, lost)}: no "
        f"model of them can learn {'it' if len(lost) == 1 else 'them'}."
    )


def _evaluated(data: TaskData) -> dict[str, Dataset]:
    names = data.task.validation
    found = {"validation" if len(names) == 1 else name: data.validation[name] for name in names}
    return found | ({} if data.test is None else {"test": data.test})


def _texts(data: TaskData, split: Dataset) -> list[tuple[str, ...]]:
    from objectives.data.task_data import texts_of

    return texts_of(data.task, split)


def _repeated(data: TaskData) -> Iterator[str]:
    """Examples that a model is trained on and scored by."""
    seen = set(_texts(data, data.train))
    for name, split in _evaluated(data).items():
        again = sum(text in seen for text in _texts(data, split))
        if again:
            yield (
                f"{again:,} of {len(split):,} {name} texts {'is' if again == 1 else 'are'} also in the "
                "training data: scores may be too high."
            )


def _counts(data: TaskData, split: Dataset) -> NDArray[np.int64]:
    """Examples of each label."""
    values: Any = split["label"][:]
    if data.task.multi_label:
        return np.asarray(values, dtype=np.int64).sum(axis=0)
    return np.bincount(np.asarray(values, dtype=np.int64), minlength=len(data.task.labels))


def _labels(data: TaskData, counts: dict[str, NDArray[np.int64]]) -> Iterator[str]:
    train, *others = counts.values()
    unseen = np.flatnonzero((train == 0) & (sum(others) > 0))
    if len(unseen):
        yield (
            f"No training example has the label {_named(data, unseen)}: no model can learn "
            f"{'it' if len(unseen) == 1 else 'them'}."
        )
    first = next(iter(others))
    unasked = np.flatnonzero((train > 0) & (first == 0))
    if len(unasked):
        yield f"No validation example has the label {_named(data, unasked)}: the score leaves it out."
    share = first.max() / max(first.sum(), 1)
    if not data.task.multi_label and share >= IMBALANCED:
        label = data.task.labels[int(first.argmax())]
        yield (
            f"{100 * share:.0f} % of the validation examples have the label {label}: always answering it has "
            "that accuracy."
        )


def _named(data: TaskData, numbers: Sequence[int] | NDArray[np.int64]) -> str:
    shown = ", ".join(data.task.labels[int(i)] for i in numbers[:_SHOWN])
    return shown + (f" and {len(numbers) - _SHOWN} more" if len(numbers) > _SHOWN else "")
