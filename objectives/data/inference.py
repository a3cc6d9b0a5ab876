"""A task inferred from data: which columns are text and label, what kind of task it is, how it is scored.

Every inference is printed and can be overruled; where two are equally good, it asks instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from objectives.data import labels
from objectives.data.data_remarks import IMBALANCED
from objectives.data.readers import Table, hub_parts
from objectives.errors import UsageError
from objectives.locations import is_hub
from objectives.tasks import metrics
from objectives.tasks.definition import Kind, Splits, Task

HELD_OUT = 0.2
"""Of the training data, where they have no validation split."""
MOST_INTEGER_CLASSES = 20
"""Whole numbers with more different values are numbers, unless they count classes from 0."""
_LABELS = (
    "label",
    "labels",
    "category",
    "categories",
    "class",
    "target",
    "y",
    "topic",
    "intent",
    "tag",
    "tags",
    "sentiment",
    "emotion",
    "stars",
    "rating",
    "score",
    "grade",
)
_NO_LABELS = ("id", "idx", "index", "guid", "uuid", "split", "")
"""Columns that number the rows or divide them."""
_TEXTS = (
    "text",
    "sentence",
    "review",
    "content",
    "body",
    "document",
    "comment",
    "message",
    "utterance",
    "tweet",
    "abstract",
    "question",
    "query",
    "description",
    "title",
)
_PAIRS = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("question", "answer"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("query", "passage"),
    ("query", "document"),
)
_LOOK = 20_000
"""Examples that decide what a column is."""


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What a person has said about the task."""

    text: tuple[str, ...] = ()
    label: tuple[str, ...] = ()
    kind: Kind | None = None
    metrics: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.text or self.label or self.kind or self.metrics)


def infer(name: str, tables: Mapping[str, Table], wishes: Wishes, source: str | None = None) -> Task:
    """The task that these data are most likely made for."""
    train = tables["train"]
    label = wishes.label or _label_column(train, wishes.text)
    for column in (*label, *wishes.text):
        train.column(column)
    text = wishes.text or _text_columns(train, label)
    kind = wishes.kind or _kind(train, label)
    if kind == "regression" and len(set(map(labels.spelled, _present(train.column(label[0]))))) == 1:
        raise UsageError(
            f"{train.place}: the {label[0]} of every example is the same number: there is nothing to learn"
        )
    test = "test" if "test" in tables and _has_labels(tables["test"], label) else None
    found = {split: table for split, table in tables.items() if split != "test" or test}
    task = Task(
        name=name,
        text=text,
        label=label,
        kind=kind,
        labels=() if kind == "regression" else _names(found, label, kind),
        metrics=("accuracy",),
        source=source,
        splits=Splits(test=test, held_out=None if "validation" in tables else HELD_OUT),
    )
    return with_metrics(task, wishes.metrics or _metrics(task, train))


def with_metrics(task: Task, names: Sequence[str]) -> Task:
    from objectives.tasks.task_file import from_dict, to_dict

    return from_dict({**to_dict(task), "metrics": list(metrics.check(task, names))})


def task_name(source: str) -> str:
    """Of data without one: the file's, the folder's, or the hub's."""
    if is_hub(source):
        return hub_parts(source)[-1]
    path = Path(source).resolve()
    return path.stem if path.is_file() else path.name


def _label_column(table: Table, text: Sequence[str]) -> tuple[str, ...]:
    others = [name for name in table.columns if name not in text and name.lower() not in _NO_LABELS]
    by_name = {name.lower(): name for name in others}
    for known in _LABELS:
        if known in by_name:
            return (by_name[known],)
    if len(others) == 2 - bool(text):
        texts = [name for name in others if _mean_length(table, name) > 0]
        left = [name for name in others if name not in texts] or sorted(
            others, key=lambda name: _mean_length(table, name)
        )
        return (left[0],)
    flags = [name for name in others if _is_flag(table, name)]
    if len(flags) > 1 and len(others) - len(flags) <= 2:
        return tuple(flags)
    raise UsageError(
        f"{table.place}: which column is the label? Say so with --label (it has {', '.join(table.columns)})"
    )


def _text_columns(table: Table, label: Sequence[str]) -> tuple[str, ...]:
    others = [name for name in table.columns if name not in label]
    by_name = {name.lower(): name for name in others}
    for pair in _PAIRS:
        if all(part in by_name for part in pair):
            return tuple(by_name[part] for part in pair)
    for known in _TEXTS:
        if known in by_name:
            return (by_name[known],)
    lengths = sorted(((_mean_length(table, name), name) for name in others), reverse=True)
    written = [(length, name) for length, name in lengths if length > 0]
    if written and (len(written) == 1 or written[0][0] >= 2 * written[1][0]):
        return (written[0][1],)
    raise UsageError(
        f"{table.place}: which column is the text? Say so with --text, or --text FIRST,SECOND for pairs "
        f"(it has {', '.join(table.columns)})"
    )


def _mean_length(table: Table, name: str) -> float:
    """Characters of the column's texts; 0 where it holds something else."""
    values = table.columns[name][:_LOOK]
    if not all(isinstance(value, str) for value in values) or _all_numbers(values):
        return 0.0
    return sum(map(len, values)) / len(values)


def _is_flag(table: Table, name: str) -> bool:
    found = {labels.spelled(value).lower() for value in table.columns[name][:_LOOK]}
    return found <= {"0", "1", "true", "false"}


def _kind(table: Table, label: Sequence[str]) -> Kind:
    if len(label) > 1:
        return "multi-label"
    name = label[0]
    values = _present(table.columns[name][:_LOOK])
    if values and all(labels.as_list(value) is not None for value in values):
        return "multi-label"
    if name in table.class_names or not _all_numbers(values):
        return "classes"
    numbers = [float(value) for value in values]
    if any(not number.is_integer() for number in numbers):
        return "regression"
    distinct = set(numbers)
    counted = distinct == set(range(len(distinct))) and len(values) >= 5 * len(distinct)
    return "classes" if len(distinct) <= MOST_INTEGER_CLASSES or counted else "regression"


def _present(values: Sequence[Any]) -> list[Any]:
    """Without missing ones; the text "NaN" is one among numbers."""
    found = [value for value in values if not labels.is_missing(value, numeric=True)]
    if _all_numbers(found):
        return found
    return [value for value in values if not labels.is_missing(value, numeric=False)]


def _all_numbers(values: Sequence[Any]) -> bool:
    if not values or any(isinstance(value, bool) for value in values):
        return False
    try:
        return all(abs(float(value)) < 1e30 for value in values)
    except (TypeError, ValueError):
        return False


def _has_labels(table: Table, label: Sequence[str]) -> bool:
    """Public test sets often have none, or -1 for all."""
    return all(
        name in table.columns and any(value not in (-1, "-1") for value in _present(table.columns[name]))
        for name in label
    )


def _names(tables: Mapping[str, Table], label: Sequence[str], kind: Kind) -> tuple[str, ...]:
    if len(label) > 1:
        return tuple(label)
    for table in tables.values():
        if label[0] in table.class_names:
            return table.class_names[label[0]]
    values = [value for table in tables.values() for value in table.column(label[0])]
    numeric = _all_numbers(_present(values))
    for table in tables.values():
        labels.check_missing(table, label[0], numeric=numeric)
    if kind == "multi-label":
        length = labels.vector_length(values)
        if length is not None:
            return tuple(map(str, range(length)))
        values = [one for value in values for one in labels.as_list(value) or ()]
        if not values:
            place = next(iter(tables.values())).place
            raise UsageError(
                f"{place}: the {label[0]} of every example are an empty list: there is nothing to learn"
            )
    found = labels.names_of(values)
    if kind == "classes" and len(found) > max(2, len(values) // 2):
        raise UsageError(
            f"label {label[0]} has {len(found):,} different values in {len(values):,} examples: is it the "
            "label? Name another with --label, or say --kind regression"
        )
    return found


def _metrics(task: Task, train: Table) -> tuple[str, ...]:
    if task.regression:
        return ("spearman", "pearson", "mae", "rmse")
    if task.multi_label:
        return ("micro_f1", "macro_f1", "average_precision")
    counts = Counter(labels.spelled(value) for value in train.column(task.label[0]))
    imbalanced = counts.most_common(1)[0][1] >= IMBALANCED * sum(counts.values())
    return ("macro_f1", "accuracy") if imbalanced else ("accuracy", "macro_f1")


def told(task: Task) -> str:
    """The task in a line: `text: "text", label: "category" (5 classes: business …), metric: accuracy`."""
    kinds = {
        "classes": f"{len(task.labels)} classes",
        "multi-label": "1 label, on or off"
        if len(task.labels) == 1
        else f"{len(task.labels)} labels, any number each",
        "regression": "a number",
    }
    shown = ", ".join(task.labels[:3]) + (" …" if len(task.labels) > 3 else "")
    what = kinds[task.kind] + (f": {shown}" if task.labels else "")
    columns = task.label if len(task.label) <= 3 else (*task.label[:2], f"… {len(task.label)} columns")
    quoted = " and ".join(f'"{name}"' for name in task.text)
    return (
        f"text: {quoted}, label: {', '.join(_quoted(name) for name in columns)} ({what}), "
        f"metric: {', '.join(task.metrics)}"
    )


def _quoted(name: str) -> str:
    return name if name.startswith("…") else f'"{name}"'
