"""From the command line to StudySpecs: all is resolved and checked here, before a database is opened."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from objectives.contract import Cell, Objective, Recipe, UsageError
from objectives.tasks import TASKS, Task, get_task
from study import command
from study.protocols import Defaults, defaults
from study.spec import StudySpec

if TYPE_CHECKING:
    from objectives.data import TaskData
    from objectives.models import ModelIdentity
    from objectives.recorded import RecordedPair

RECIPE_FLAGS = tuple(
    field.name for field in fields(Recipe) if field.name not in ("group_by_length", "accuracy")
)


@dataclass(frozen=True)
class StudyRequest:
    """One study that was asked for: its name, its spec, and how this machine runs its trials."""

    name: str
    spec: StudySpec
    make_objective: Callable[[], Objective]
    train_examples: int | None = None
    """Of the whole training set; None where nothing is trained."""
    cells: frozenset[Cell] | None = None
    """Where only these cells can be answered (a recorded table)."""


def resolve(arguments: argparse.Namespace) -> list[StudyRequest]:
    """The studies that the arguments ask for, one per model and task."""
    requests = _recorded(arguments) if arguments.recorded else _trained(arguments)
    if arguments.study and len(requests) > 1:
        raise UsageError(f"--study {arguments.study} names one study, but {len(requests)} were asked for")
    return requests


def _study_name(arguments: argparse.Namespace, task: str, model: str, protocol: str) -> str:
    return arguments.study or f"{task}-{model}-{protocol}"


def _tasks(text: str | None) -> list[Task]:
    if not text:
        raise UsageError(f"--task is missing: choose from {', '.join(TASKS)}, or all")
    names = list(TASKS) if text == "all" else [name for name in text.split(",") if name]
    return list({task.name: task for task in map(get_task, names)}.values())


def _models(given: Sequence[str] | None, default: str) -> list[str]:
    models = [name for text in given or [default] for name in text.split(",") if name]
    return list(dict.fromkeys(models))


def _trained(arguments: argparse.Namespace) -> list[StudyRequest]:
    from objectives.data import DEMO, load_data
    from objectives.models import identify

    tasks = _tasks(arguments.task)
    if arguments.demo and (arguments.model or arguments.data):
        raise UsageError("--demo brings its own model and data: leave out --model and --data")
    models = [DEMO] if arguments.demo else _models(arguments.model, "bert-base")
    identities = [identify(model) for model in models]
    requests = []
    for task in tasks:
        data = load_data(task, DEMO if arguments.demo else _data_source(arguments.data, task))
        requests += [_training_request(arguments, task, data, identity) for identity in identities]
    # All tasks of one model together: a worker then loads each model's weights for its tasks in a row.
    return sorted(requests, key=lambda request: models_order(identities, request))


def models_order(identities: Sequence[ModelIdentity], request: StudyRequest) -> int:
    return [identity.name for identity in identities].index(request.spec.model)


def _data_source(data: str | None, task: Task) -> str | None:
    """A folder for one task, or one that holds a folder per task."""
    if data is None:
        return None
    inner = Path(data) / task.name
    return str(inner if inner.is_dir() else Path(data))


def _training_request(
    arguments: argparse.Namespace, task: Task, data: TaskData, identity: ModelIdentity
) -> StudyRequest:
    base = defaults(
        arguments.protocol, total_layers=identity.total_layers, model=identity.name, demo=arguments.demo
    )
    recipe = _recipe(arguments, base)
    train_sizes = _train_sizes(arguments, base, len(data.train))
    spec = StudySpec(
        task=task.name,
        metric="accuracy" if recipe.accuracy else task.metric,
        model=identity.name,
        model_fingerprint=identity.fingerprint,
        data=data.source,
        data_fingerprint=data.fingerprint,
        total_layers=identity.total_layers,
        train_sizes=train_sizes,
        recipe=recipe,
        demo=arguments.demo,
        **_grid(arguments, base, _demo_grid(arguments)),
        **_search(arguments),
    )

    if 0 not in spec.frozen_layers and not (arguments.worker_name or arguments.joined):
        command.note(
            f"--frozen-layers {arguments.frozen_layers} leaves out 0, the full model: "
            "without it in some study or table there is nothing to compare with, and no operating point"
        )

    def make_objective() -> Objective:
        from objectives.finetune import FineTuning
        from objectives.prefix import PrefixCache

        cache = PrefixCache(Path(arguments.cache_dir).expanduser(), arguments.cache_budget, command.note)
        largest = None if None in train_sizes else max(size for size in train_sizes if size is not None)
        return FineTuning(
            data=data,
            model_path=identity.path,
            model_fingerprint=identity.fingerprint,
            recipe=recipe,
            cache=cache,
            largest_train_size=largest,
        )

    name = _study_name(arguments, task.name, identity.name, arguments.protocol)
    return StudyRequest(name, spec, make_objective, len(data.train))


def _demo_grid(arguments: argparse.Namespace) -> dict[str, Any]:
    """The tiny model needs larger rates than the protocols' own."""
    if not arguments.demo:
        return {}
    from objectives import demo

    rates = demo.GRID["learning_rates"]
    if arguments.protocol == "low-resource":
        return {"learning_rates": (rates[len(rates) // 2],)}
    if arguments.protocol == "grid":
        return {"learning_rates": rates, "seeds": demo.GRID["seeds"]}
    return {"learning_rates": rates}


def _recipe(arguments: argparse.Namespace, base: Defaults) -> Recipe:
    chosen: dict[str, Any] = {}
    if arguments.demo:
        from objectives import demo

        chosen |= demo.RECIPE
    chosen |= base.recipe
    chosen |= {
        name: getattr(arguments, name) for name in RECIPE_FLAGS if getattr(arguments, name) is not None
    }
    if arguments.no_group_by_length:
        chosen["group_by_length"] = False
    recipe = Recipe(**chosen)
    for name in ("epochs", "batch_size", "max_length", "evaluations_per_epoch"):
        if getattr(recipe, name) <= 0:
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"{flag} {getattr(recipe, name)} is not positive: nothing would be trained")
    if not 0 <= recipe.selection_split < 0.9:
        raise UsageError(f"--selection-split {recipe.selection_split} is no share between 0 and 0.9")
    return recipe


def _grid(arguments: argparse.Namespace, base: Defaults, demo: dict[str, Any]) -> dict[str, Any]:
    """What the flags say, else what the demo needs, else the protocol's own."""
    flags = {
        "frozen_layers": (arguments.frozen_layers, command.integers),
        "learning_rates": (arguments.learning_rates, command.rates),
        "seeds": (arguments.seeds, command.seeds),
    }
    return {
        name: demo.get(name, getattr(base, name))
        if text is None
        else parse(text, f"--{name.replace('_', '-')}")
        for name, (text, parse) in flags.items()
    }


def _train_sizes(arguments: argparse.Namespace, base: Defaults, available: int) -> tuple[int | None, ...]:
    if arguments.train_sizes is None:
        sizes = base.train_sizes
    else:
        if arguments.protocol != "low-resource":
            raise UsageError("--train-sizes goes with --protocol low-resource")
        sizes = command.integers(arguments.train_sizes, "--train-sizes")
    for size in sizes:
        if size is not None and not 1 <= size <= available:
            raise UsageError(f"--train-sizes {size} is beyond the {available} training examples")
    return sizes


def _search(arguments: argparse.Namespace) -> dict[str, Any]:
    """The settings of the protocol itself."""
    chosen: dict[str, Any] = {"protocol": arguments.protocol}
    given = {name: getattr(arguments, name) for name in ("threshold", "confidence", "budget")}
    for name, value in given.items():
        if value is not None and arguments.protocol != "adaptive":
            raise UsageError(
                f"--{name} {value} goes with --protocol adaptive: {arguments.protocol} runs all its cells"
                + ("; operating_points and report take --thresholds" if name == "threshold" else "")
            )
    for name in ("threshold", "confidence"):
        if given[name] is not None:
            if not 0 < given[name] < 1:
                raise UsageError(f"--{name} {given[name]} is no share between 0 and 1")
            chosen[name] = given[name]
    if arguments.budget:
        number = arguments.budget.removesuffix("units")
        try:
            chosen["budget"] = float(number)
        except ValueError:
            raise UsageError(
                f"--budget {arguments.budget!r}: a number of cells, or of units as 40units"
            ) from None
        chosen["budget_unit"] = "units" if number != arguments.budget else "cells"
    return chosen


def _recorded(arguments: argparse.Namespace) -> list[StudyRequest]:
    """One study for each model and task of the table, with the cells that the table can answer."""
    from objectives.recorded import read_table

    pairs = read_table(arguments.recorded)
    if arguments.task not in (None, "all"):
        tasks = {task.name for task in _tasks(arguments.task)}
        pairs = [pair for pair in pairs if pair.task in tasks]
    if arguments.model:
        models = set(_models(arguments.model, ""))
        pairs = [pair for pair in pairs if pair.model in models]
    if not pairs:
        raise UsageError(f"{arguments.recorded} holds no trial of that --task and --model")
    return [_recorded_request(arguments, pair) for pair in pairs]


def _recorded_request(arguments: argparse.Namespace, pair: RecordedPair) -> StudyRequest:
    base = Defaults(frozen_layers=pair.frozen_layers, learning_rates=pair.learning_rates, seeds=pair.seeds)
    spec = StudySpec(
        task=pair.task,
        metric=pair.metric,
        model=pair.model,
        model_fingerprint=f"recorded {pair.model}",
        data=str(arguments.recorded),
        data_fingerprint=pair.fingerprint(),
        total_layers=pair.total_layers,
        train_sizes=pair.train_sizes,
        recipe=Recipe(),
        recorded=True,
        **_grid(arguments, base, {}),
        **_search(arguments),
    )

    def make_objective() -> Objective:
        from objectives.recorded import RecordedObjective

        return RecordedObjective(
            pair=pair,
            delay_seconds=arguments.recorded_delay,
            failure_rate=arguments.recorded_failure_rate,
            protocol=arguments.protocol,
        )

    name = _study_name(arguments, pair.task, pair.model, arguments.protocol)
    return StudyRequest(name, spec, make_objective, None, frozenset(pair.cells))
