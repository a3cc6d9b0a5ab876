"""The tasks that were asked for, and their data: shipped ones, task files, and those that data suggest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from objectives.contract import UsageError
from objectives.data.inference import Wishes, infer, task_name, with_metrics
from objectives.locations import is_hub
from objectives.tasks.definition import Task, find_task, shipped, suggestion
from study.launching.inputs import Inputs

if TYPE_CHECKING:
    from objectives.data.task_data import TaskData


def check_names(inputs: Inputs) -> None:
    """Refuse what can be refused before any data are read."""
    data = inputs.data
    if data is not None and not is_hub(data) and not Path(data).exists():
        raise UsageError(f"--data {data}: no such folder or file")
    for name in _names(inputs):
        known_task(name, inputs)


def asked_data(inputs: Inputs) -> list[TaskData]:
    """The data of every task that was asked for, each with its task."""
    found = [_load(name, inputs) for name in _names(inputs)]
    return list({data.task.name: data for data in found}.values())


def wishes(inputs: Inputs) -> Wishes:
    return Wishes(text=inputs.text, label=inputs.label, kind=inputs.kind, metrics=inputs.metric)


def _names(inputs: Inputs) -> Iterator[str]:
    if tuple(inputs.task) == ("all",):
        yield from shipped()
    elif inputs.task:
        yield from inputs.task
    elif inputs.definition is not None:
        yield str(inputs.definition.get("name", ""))
    elif inputs.data is not None:
        yield task_name(inputs.data)
    else:
        known = ", ".join(shipped())
        raise UsageError(f"--task is missing: choose from {known}, or all; or name your own --data")


def known_task(name: str, inputs: Inputs) -> Task | None:
    """A task that is written down; None for one that its data must tell."""
    from objectives.tasks import task_file

    own = wishes(inputs)
    if inputs.definition is not None:
        return _overruled(task_file.from_dict(inputs.definition), own)
    if name.lower().endswith(".toml"):
        return _overruled(task_file.read(name), own)
    task = find_task(name)
    if task is not None:
        if own.text or own.label or own.kind:
            raise UsageError(
                f"--text, --label and --kind describe data of your own, and {task.name} is a shipped task: "
                "give your data another --task name"
            )
        return _overruled(task, own)
    if inputs.data is None:
        raise UsageError(f"unknown task {name!r}: {suggestion(name)}")
    return None


def _overruled(task: Task, own: Wishes) -> Task:
    task = replace(task, text=own.text or task.text, label=own.label or task.label)
    task = replace(task, kind=own.kind or task.kind)
    return with_metrics(task, own.metrics) if own.metrics else task


def _load(name: str, inputs: Inputs) -> TaskData:
    from objectives.data import readers
    from objectives.data.task_data import DEMO, build, load_data

    task = known_task(name, inputs)
    if inputs.demo:
        if task is None or task.demo is None:
            raise UsageError(f"the demo has no task {name}: choose from {', '.join(shipped())}")
        return load_data(task, DEMO)
    source = None if inputs.data is None else _place(inputs.data, name if task is None else task.name)
    if task is not None:
        return load_data(task, source)
    assert source is not None
    tables = readers.read(source)
    return build(infer(name, tables, wishes(inputs), source), source, tables)


def _place(data: str, name: str) -> str:
    """A file or folder of one task, or the folder of this one in a folder of several."""
    if is_hub(data):
        return data
    inner = Path(data) / name
    return str((inner if inner.is_dir() else Path(data)).resolve())
