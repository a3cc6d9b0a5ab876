"""Task files: a Task as TOML and back. tasks/README.md says how to write one."""

from __future__ import annotations

import json
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Literal

from objectives.errors import UsageError, did_you_mean
from objectives.locations import is_hub
from objectives.settings import shortened
from objectives.tasks import toml_text
from objectives.tasks.definition import Splits, Task

TABLES = ("splits", "tsv", "label_counts")
_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false", tuple: "a list"}


def read(path: str | Path) -> Task:
    """The task of a file; its source is taken from the file's own folder."""
    try:
        values = tomllib.loads(Path(path).read_bytes().decode("utf-8-sig"))
        task = from_dict(values)
    except OSError as error:
        raise UsageError(f"--task {path}: {error.strerror}") from None
    except RecursionError:
        raise UsageError(f"--task {path}: its values are nested too deeply") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, UsageError) as error:
        raise UsageError(f"--task {path}: {error}") from None
    if task.source and "://" not in task.source and not is_hub(task.source):
        return from_dict({**values, "source": str(Path(path).resolve().parent / task.source)})
    return task


def from_dict(values: Mapping[str, Any]) -> Task:
    """From parsed TOML or JSON; a UsageError names the key at fault."""
    from objectives.tasks import metrics

    found = dict(values)
    if "splits" in found:
        found["splits"] = Splits(**_typed(Splits, found["splits"], "splits."))
    task = Task(**_typed(Task, found))
    _check(task)
    metrics.check(task, task.metrics)
    return task


def to_dict(task: Task) -> dict[str, Any]:
    """As JSON gives it back; what is as usual is left out."""
    found = _changed(Task, asdict(task)) | {"splits": _changed(Splits, asdict(task.splits))}
    return dict(json.loads(json.dumps(found)))


def to_toml(task: Task) -> str:
    values = to_dict(task)
    tables = {name: values.pop(name) for name in TABLES if values.get(name)}
    parts = [toml_text.pairs(values), *(toml_text.table(name, found) for name, found in tables.items())]
    return "\n".join(parts)


def _changed(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    usual = {item.name: item.default for item in fields(kind)}
    always = ("text", "label", "kind", "metrics", "train", "validation")
    return {
        name: value
        for name, value in values.items()
        if name in always or (value != usual[name] and value is not None and value != {})
    }


def _typed(kind: type, values: Any, place: str = "") -> dict[str, Any]:
    """Each value with the type of its field: lists become tuples, and one text a list of one."""
    if not isinstance(values, Mapping):
        raise UsageError(f"{place.rstrip('.')} is {shortened(values)}: use a table")
    hints = typing.get_type_hints(kind)
    missing = [name for name in ("name", "text", "metrics") if name in hints and name not in values]
    if missing:
        raise UsageError(f"{missing[0]} is missing: a task needs name, text, labels and metrics")
    found = {}
    for name, value in values.items():
        if name not in hints:
            raise UsageError(f"unknown key {place}{name}: {did_you_mean(name, hints)}")
        found[name] = _convert(hints[name], value, place + name)
    return found


def _convert(hint: Any, value: Any, name: str) -> Any:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        hint = next(part for part in typing.get_args(hint) if part is not type(None))
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        if value not in parts:
            raise UsageError(f"{name} is {shortened(value)}: use {', '.join(map(str, parts))}")
        return value
    if origin is tuple:
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, list | tuple) or (parts[-1] is not ... and len(listed) != len(parts)):
            raise UsageError(f"{name} is {shortened(value)}: use a list")
        return tuple(_convert(parts[0], item, name) for item in listed)
    if origin is not None or not isinstance(hint, type) or hint is Splits:
        return _mapping(parts, value, name) if parts else value
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise UsageError(f"{name} is {shortened(value)}: use {_WORDS.get(hint, 'another value')}")
    return value


def _mapping(parts: tuple[Any, ...], value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise UsageError(f"{name} is {shortened(value)}: use a table")
    if typing.get_origin(parts[1]) is tuple:
        return {key: _convert(parts[1], item, f"{name}.{key}") for key, item in value.items()}
    return dict(value)


def _check(task: Task) -> None:
    if not task.name.strip() or not task.name.isprintable() or len(task.name) > 200:
        raise UsageError(f"name is {shortened(task.name)}: use 1 to 200 printable characters")
    if not 1 <= len(task.text) <= 2:
        raise UsageError(f"text names {len(task.text)} columns: use one or two")
    if len(set(task.text)) != len(task.text) or set(task.text) & set(task.label):
        raise UsageError(
            f"text {', '.join(task.text)} and label {', '.join(task.label)} must be different columns"
        )
    if len(task.label) > 1 and not task.multi_label:
        raise UsageError(f"label names {len(task.label)} columns: only a multi-label task has several")
    if task.regression != (not task.labels):
        raise UsageError("labels are named for classes and multi-label tasks, and not for a regression")
    if not task.regression and len(set(task.labels)) != len(task.labels):
        twice = next(name for name in task.labels if task.labels.count(name) > 1)
        raise UsageError(f"labels name {shortened(twice)} twice")
    if task.kind == "classes" and len(task.labels) < 2:
        raise UsageError(f"{task.name} has one class only ({task.labels[0]}): there is nothing to learn")
    if task.range is not None and not task.range[0] < task.range[1]:
        raise UsageError(f"range is {task.range[0]:g} to {task.range[1]:g}: use the lower bound first")
