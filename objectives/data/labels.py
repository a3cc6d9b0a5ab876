"""Labels of data as numbers: the class of an example, its row of 0 and 1, or its value."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from objectives.data.readers import Table
from objectives.errors import UsageError
from objectives.settings import shortened
from objectives.tasks.definition import Task

_SHOWN = 12
"""Labels that a message names."""
_NUMPY_GAP = re.compile(r"(?<=['\"])\s+(?=['\"])")
"""Between the texts of a NumPy array, which pandas writes without commas."""
_YES = {"1": 1, "true": 1, "yes": 1, "0": 0, "false": 0, "no": 0}


def spelled(label: Any) -> str:
    """One spelling per label: `true`, `3` for 3.0, a text without the blanks around it."""
    if isinstance(label, bool):
        return str(label).lower()
    if isinstance(label, float) and label.is_integer():
        return str(int(label))
    return str(label).strip()


def numbers(task: Task, split: str, table: Table) -> list[Any]:
    """What a trial trains on, in the order of the examples; a UsageError names the first bad one."""
    for column in task.label:
        check_missing(table, column, numeric=_numeric(task))
    if len(task.label) > 1:
        columns = [[_flag(task, split, i, v) for i, v in enumerate(table.column(n))] for n in task.label]
        return [list(row) for row in zip(*columns, strict=True)]
    values = table.column(task.label[0])
    if task.multi_label and vector_length(values) == len(task.labels):
        return [[int(one) for one in as_list(value) or ()] for value in values]
    names = table.class_names.get(task.label[0], ())
    if names and set(names) <= set(task.labels):
        # The source gives the numbers of names; a name may be another number.
        values = [_name_of(value, names) for value in values]
    if task.regression:
        return [_number(task, split, row, label) for row, label in enumerate(values)]
    place = _places(task)
    if task.multi_label:
        return [_vector(task, split, row, label, place) for row, label in enumerate(values)]
    return [_class(task, split, row, label, place) for row, label in enumerate(values)]


def _name_of(value: Any, names: Sequence[str]) -> Any:
    if isinstance(value, list):
        return [_name_of(one, names) for one in value]
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else value


def as_list(label: Any) -> list[Any] | None:
    """The labels of one example of a multi-label task; None where the value is no list."""
    if isinstance(label, list | tuple):
        return list(label)
    if isinstance(label, str) and label.strip().startswith("["):
        found = _parsed(label.strip())
        return found if isinstance(found, list) else None
    return None


def _parsed(text: str) -> Any:
    """A list as JSON or as Python writes it, which is what pandas puts into a CSV file."""
    for read, spelling in ((json.loads, text), (ast.literal_eval, _NUMPY_GAP.sub(", ", text))):
        try:
            return read(spelling)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
    return None


def vector_length(values: Sequence[Any]) -> int | None:
    """Of labels that are given as vectors such as [0, 1, 0, 0], one place per label; None where they are not.

    Lists of numbers of labels differ in length, or would name a label twice.
    """
    first = as_list(values[0]) if len(values) else None
    if first is None or len(first) < 2:
        return None
    only_both = True
    for value in values:
        found = as_list(value)
        if found is None or len(found) != len(first) or not all(_is_bit(one) for one in found):
            return None
        only_both = only_both and found == [0, 1]
    return None if only_both else len(first)


def _is_bit(value: Any) -> bool:
    return isinstance(value, int | float) and value in (0, 1)


def is_missing(label: Any, *, numeric: bool) -> bool:
    """Nothing, a blank text, NaN; and the text "NaN" where the column is `numeric`."""
    if isinstance(label, str):
        text = label.strip().lower()
        return not text or (numeric and text == "nan")
    return label is None or (isinstance(label, float) and math.isnan(label))


def check_missing(table: Table, column: str, *, numeric: bool) -> None:
    values = table.column(column)
    row = next((row for row, value in enumerate(values) if is_missing(value, numeric=numeric)), None)
    if row is not None:
        raise UsageError(
            f"{table.place}: example {row + 1} has no {column}: the label is missing; add it, or leave the "
            "example out"
        )


def _numeric(task: Task) -> bool:
    return task.regression or all(name.lstrip("-").isdigit() for name in task.labels)


def _places(task: Task) -> Callable[[Any], int | None]:
    """The number of a label by its name; by its number, too, unless the names are numbers themselves."""
    names = {name: number for number, name in enumerate(task.labels)}
    numbered = any(name.lstrip("-").isdigit() for name in names)

    def place(label: Any) -> int | None:
        text = spelled(label)
        if text in names:
            return names[text]
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
        return number if not numbered and 0 <= number < len(names) else None

    return place


def _class(task: Task, split: str, row: int, label: Any, place: Callable[[Any], int | None]) -> int:
    number = place(label)
    if number is None:
        raise _refused(task, split, row, label, _allowed(task))
    return number


def _vector(task: Task, split: str, row: int, label: Any, place: Callable[[Any], int | None]) -> list[int]:
    found = as_list(label)
    if found is None:
        raise _refused(task, split, row, label, 'a list such as ["first", "second"]')
    vector = [0] * len(task.labels)
    for one in found:
        number = place(one)
        if number is None:
            raise _refused(task, split, row, one, _allowed(task))
        vector[number] = 1
    return vector


def _flag(task: Task, split: str, row: int, value: Any) -> int:
    found = _YES.get(spelled(value).lower())
    if found is None:
        raise _refused(task, split, row, value, "0 and 1")
    return found


def _number(task: Task, split: str, row: int, label: Any) -> float:
    try:
        value = float(label)
    except (TypeError, ValueError):
        value = math.nan
    low, high = task.range or (-1e30, 1e30)
    if not low <= value <= high:
        raise _refused(task, split, row, label, f"{low:g} to {high:g}" if task.range else "a number")
    return value


def _allowed(task: Task) -> str:
    shown = ", ".join(f"{i}={name}" for i, name in enumerate(task.labels[:_SHOWN]))
    return shown + (f" and {len(task.labels) - _SHOWN} more" if len(task.labels) > _SHOWN else "")


def _refused(task: Task, split: str, row: int, label: Any, allowed: str) -> UsageError:
    verb = "are" if allowed.count("=") > 1 or "and" in allowed else "is"
    return UsageError(
        f"{task.name} {split} data: example {row + 1} has label {shortened(label)}; allowed {verb} {allowed}"
    )


def names_of(values: Sequence[Any]) -> tuple[str, ...]:
    """The names of labels as they are found in data, numbers in their own order."""
    found = {spelled(value) for value in values}
    if all(name.lstrip("-").isdigit() for name in found):
        return tuple(sorted(found, key=int))
    return tuple(sorted(found))
