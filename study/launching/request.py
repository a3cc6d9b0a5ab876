"""From what was asked for to StudySpecs: all is resolved and checked here, before a database is written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from objectives.contract import Cell, Recipe, UsageError
from objectives.settings import shortened
from objectives.tasks.definition import task_key
from study.cli.command import note
from study.cli.files import check_folder
from study.launching.arguments import LaunchRequest
from study.launching.asked_tasks import asked_data, check_names
from study.launching.inputs import DEFAULT_MODEL, study_name
from study.launching.precision import chosen, resolve_precision
from study.launching.quick import quick_defaults
from study.protocols import Defaults, Subject
from study.specs.study_spec import StudySpec
from study.workers.trackers import check_installed

if TYPE_CHECKING:
    from objectives.data.task_data import TaskData
    from objectives.pretrained.models import ModelIdentity
    from objectives.recorded import RecordedPair


@dataclass(frozen=True)
class StudyRequest:
    """One study that was asked for."""

    name: str
    spec: StudySpec
    train_examples: int | None = None
    """Of the whole training set; None where nothing is trained."""
    cells: frozenset[Cell] | None = None
    """Where only these cells can be answered (a recorded table)."""
    told: str = ""
    """What the task was taken to be, where its data suggested it."""
    precision_chosen: bool = True
    """Whether a person named it; else a study that exists keeps its own."""
    longest: int | None = None
    """Tokens of the longest training example, as it is cut; None where nothing is trained."""
    words: int | None = None
    """Different tokens of the training examples, where they were counted."""
    chosen: tuple[str, ...] = ()
    """Settings that were left to this software, and what it chose."""


def check_quickly(request: LaunchRequest) -> None:
    """Refuse within a second what can be refused without loading a model or data."""
    from storage.address import Address, check_place

    Address.parse(request.storage) if request.launching.dry_run else check_place(request.storage, create=True)
    if request.inputs.recorded:
        if not Path(request.inputs.recorded).is_file():
            raise UsageError(f"--recorded {request.inputs.recorded}: no such file")
    else:
        check_names(request.inputs)
        for model in _models(request):
            request.protocol.check(_rough_spec(request, model))
    check_installed(request.places.keeping.track)
    request.places.check()
    check_folder(request.launching.out, "--out")


def _models(request: LaunchRequest) -> tuple[str, ...]:
    from objectives.data.task_data import DEMO

    asked = (DEMO,) if request.inputs.demo else request.inputs.model or (DEFAULT_MODEL,)
    return tuple(dict.fromkeys(asked))


def _rough_spec(request: LaunchRequest, model: str) -> StudySpec:
    """The lists that were asked for, with a model of which only the configuration is read."""
    layers = _layers(model) or max((0, *request.grid.get("frozen_layers", ()))) or 1
    subject = Subject(model=model, total_layers=layers, demo=request.inputs.demo)
    defaults = request.protocol.defaults(subject)
    grid = _grid(request, quick_defaults(defaults, subject, 0) if request.inputs.quick else defaults)
    unknown: dict[str, Any] = dict.fromkeys(
        ("task", "metric", "model_fingerprint", "data", "data_fingerprint"), ""
    )
    own = _own(request, grid["seeds"])
    return StudySpec(
        **unknown, model=model, total_layers=layers, recipe=Recipe(), protocol_settings=own, **grid
    )


def _layers(model: str) -> int | None:
    """By a folder's config.json or a published one, without Transformers; None where neither says it."""
    from objectives.pretrained.models import PUBLISHED_CONFIGS, resolve_path

    path = Path(resolve_path(model), "config.json")
    try:
        facts = json.loads(path.read_bytes()) if path.is_file() else PUBLISHED_CONFIGS[model][1]
    except (KeyError, OSError, ValueError):
        return None
    found = [facts.get(name) for name in ("num_hidden_layers", "n_layer", "n_layers", "num_layers")]
    return next((number for number in found if isinstance(number, int) and number > 0), None)


def resolve(request: LaunchRequest) -> list[StudyRequest]:
    """The studies that were asked for, one per model and task."""
    found = _recorded(request) if request.inputs.recorded else _trained(request)
    if request.inputs.study and len(found) > 1:
        raise UsageError(f"--study {request.inputs.study} names one study, but {len(found)} were asked for")
    for one in found:
        request.protocol.check(one.spec)
    return found


def _trained(request: LaunchRequest) -> list[StudyRequest]:
    from objectives.pretrained.models import identify

    identities = [identify(model) for model in _models(request)]
    data = asked_data(request.inputs)
    # All tasks of one model together, so that a worker loads each model's weights once.
    return [_training_request(request, one, identity) for identity in identities for one in data]


def _training_request(request: LaunchRequest, data: TaskData, identity: ModelIdentity) -> StudyRequest:
    from objectives.data.inference import told
    from objectives.pretrained.lengths import AUTO, measure
    from objectives.tasks.definition import find_task
    from objectives.tasks.metrics import describe
    from objectives.tasks.task_file import to_dict

    demo = request.inputs.demo
    subject = Subject(model=identity.name, total_layers=identity.total_layers, demo=demo)
    defaults = request.protocol.defaults(subject)
    if request.inputs.quick:
        defaults = quick_defaults(defaults, subject, len(data.train))
    usual = {**(_demo_recipe() if demo else {}), **defaults.recipe}
    lengths = measure(data, identity.path, identity.name)
    asked_length = request.recipe.get("max_length")
    longest = lengths.resolve(asked_length, usual.get("max_length", Recipe.max_length))
    worked_out = {"max_length": longest, "mixed_precision": resolve_precision(request, usual)}
    recipe = Recipe(**{**usual, **request.recipe, **worked_out, **_chosen_metric(request)})
    metric = data.task.scored_by(recipe.accuracy)
    own = data.task != find_task(data.task.name)
    grid = _grid(request, defaults)
    spec = StudySpec(
        task=data.task.name,
        metric=metric,
        model=identity.name,
        model_fingerprint=identity.fingerprint,
        model_path=identity.path,
        data=data.source,
        data_fingerprint=data.fingerprint,
        total_layers=identity.total_layers,
        recipe=recipe,
        demo=demo,
        quick=request.inputs.quick,
        definition=to_dict(data.task) if own else None,
        chance=describe(metric).chance(data.labels(data.task.validation[0]), data.task.outputs),
        remarks=tuple(filter(None, (*data.remarks, lengths.told(longest)))),
        protocol_settings=_own(request, grid["seeds"]),
        **grid,
    )
    most = len(data.train) - round(len(data.train) * recipe.selection_split)
    for size in spec.train_sizes:
        if size is not None and size > most:
            raise UsageError(f"--train-sizes {size} is beyond the {most} training examples")
    spec = replace(spec, remarks=(*spec.remarks, *_lost_labels(data, spec)))
    if 0 not in spec.frozen_layers:
        note(
            "--frozen-layers leaves out 0, the full model: without it in some study or table there is "
            "nothing to compare with, and no operating point"
        )
    return StudyRequest(
        _name(request, spec),
        spec,
        len(data.train),
        told=told(data.task) if own else "",
        precision_chosen=chosen(request.recipe),
        longest=lengths.longest(longest),
        words=lengths.words,
        chosen=(f"max length: {longest} tokens, chosen by auto",) if asked_length == AUTO else (),
    )


def _lost_labels(data: TaskData, spec: StudySpec) -> list[str]:
    """Of every train size, the labels that none of its examples has."""
    from objectives.data.data_remarks import about_subset
    from objectives.data.task_data import draw_subset

    sizes = [size for size in spec.train_sizes if size is not None]
    told = (about_subset(data, draw_subset(data, size, spec.recipe.selection_split)) for size in sizes)
    return [remark for remark in told if remark]


def _name(request: LaunchRequest, spec: StudySpec) -> str:
    if request.inputs.study:
        return request.inputs.study
    name = f"{spec.task}-{spec.model}-{'quick' if spec.quick else spec.protocol}"
    try:
        return study_name(name)
    except ValueError as error:
        raise UsageError(
            f"the study would be called {shortened(name)}: {error}; name it with --study"
        ) from None


def _own(request: LaunchRequest, seeds: Sequence[int]) -> tuple[tuple[str, Any], ...]:
    found = request.protocol.own_settings(request.protocol_settings, seeds)
    return tuple(sorted(found.items()))


def _grid(request: LaunchRequest, defaults: Defaults) -> dict[str, Any]:
    """What was asked for, else what the demo needs, else the protocol's own."""
    names = ("frozen_layers", "learning_rates", "seeds", "train_sizes")
    usual = {name: getattr(defaults, name) for name in names}
    if request.inputs.demo:
        from objectives.demo.examples import LEARNING_RATES as RATES

        one = len(defaults.learning_rates) == 1
        usual["learning_rates"] = (RATES[len(RATES) // 2],) if one else RATES
    return {**usual, **request.grid}


def _chosen_metric(request: LaunchRequest) -> dict[str, Any]:
    """A metric that was asked for counts more than a recipe that scores by accuracy."""
    return {"accuracy": False} if request.inputs.metric else {}


def _demo_recipe() -> dict[str, Any]:
    from objectives.demo.examples import RECIPE

    return RECIPE


def _recorded(request: LaunchRequest) -> list[StudyRequest]:
    """One study for each model and task of the table, with the cells that the table can answer."""
    from objectives.recorded import read_table

    inputs = request.inputs
    pairs = read_table(str(inputs.recorded))
    if inputs.task not in ((), ("all",)):
        tasks = {task_key(name) for name in inputs.task}
        pairs = [pair for pair in pairs if task_key(pair.task) in tasks]
    if inputs.model:
        pairs = [pair for pair in pairs if pair.model in inputs.model]
    if not pairs:
        raise UsageError(f"{inputs.recorded} holds no trial of that --task and --model")
    return [_recorded_request(request, pair) for pair in pairs]


def _recorded_request(request: LaunchRequest, pair: RecordedPair) -> StudyRequest:
    defaults = Defaults(
        frozen_layers=pair.frozen_layers,
        learning_rates=pair.learning_rates,
        seeds=pair.seeds,
        train_sizes=pair.train_sizes,
    )
    grid = _grid(request, defaults)
    # A table has its runs once: what was searched is what there is to report.
    own = {name: value for name, value in _own(request, grid["seeds"]) if name != "search_seeds"}
    spec = StudySpec(
        task=pair.task,
        metric=pair.metric,
        model=pair.model,
        model_fingerprint=f"recorded {pair.model}",
        data=str(Path(str(request.inputs.recorded)).resolve()),
        data_fingerprint=pair.fingerprint(),
        total_layers=pair.total_layers,
        recipe=Recipe(),
        recorded=True,
        chance=pair.chance,
        protocol_settings=tuple(sorted((own | request.protocol_settings).items())),
        **grid,
    )
    return StudyRequest(_name(request, spec), spec, None, frozenset(pair.cells))
