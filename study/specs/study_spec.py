"""The StudySpec: the immutable description of one study, its fingerprint and its differences from another.

It is validated when it is made, before anything is written, and stored on the Optuna study. Workers read
it from there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, fields, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from objectives import settings
from objectives.contract import Cell, Recipe, SpecMismatch, UsageError
from objectives.settings import setting
from study.cli import lists

if TYPE_CHECKING:
    from objectives.tasks.definition import Task

LISTS = ("frozen_layers", "learning_rates", "seeds", "train_sizes")
PLACES = ("model", "model_path", "data", "chance", "remarks", "extra")
"""Where things lie, how people call them and what follows from the rest: not what makes trials comparable."""
MARKS = {
    "demo": "a tiny model on a made-up language; the numbers say nothing about real tasks.",
    "recorded": "cells are answered from a trial table; nothing is trained.",
    "quick": "a first look with few depths, one learning rate and two seeds; a full study may answer "
    "otherwise.",
}
"""Fields that mark a study wherever it is shown, and what is said of it there."""
MOST_SEED = 2**32 - 1


@dataclass(frozen=True, kw_only=True)
class StudySpec:
    task: str
    metric: str
    """The primary metric, the study's value."""
    model: str
    """As a person names it; `model_fingerprint` is what counts."""
    model_fingerprint: str
    model_path: str = ""
    """A hub name or the folder on the machine that planned the study."""
    data: str
    data_fingerprint: str
    total_layers: int
    protocol: str = setting(metavar="NAME", help="one of the protocols above", everyday=True)
    frozen_layers: tuple[int, ...] = setting(
        metavar="LIST",
        help="depths: -1 freezes the embeddings, 0 nothing, n the embeddings and the first n layers",
        read=lists.integers,
        least=-1,
        most=10_000,
        everyday=True,
    )
    learning_rates: tuple[float, ...] = setting(
        metavar="LIST",
        help="learning rates",
        read=lists.rates,
        above=0,
        below=1,
        everyday=True,
    )
    seeds: tuple[int, ...] = setting(
        metavar="N|LIST",
        help="seeds; N is the seeds 1 to N",
        read=lists.seeds,
        least=0,
        most=MOST_SEED,
        everyday=True,
    )
    train_sizes: tuple[int | None, ...] = setting(
        (None,),
        metavar="LIST",
        help="numbers of training examples: stratified subsets, each contains the smaller ones",
        read=lists.integers,
        least=1,
        most=10**12,
        aliases=("--train-size",),
    )
    """(None,) is all of the data."""
    recipe: Recipe
    protocol_settings: tuple[tuple[str, Any], ...] = ()
    """The protocol's own settings by name, sorted."""
    demo: bool = False
    recorded: bool = False
    quick: bool = False
    """Whether defaults were filled in for a quick look."""
    definition: Mapping[str, Any] | None = field(default=None, hash=False)
    """The task, as its file would say it; None for a shipped one."""
    chance: float | None = None
    """What the best constant answer scores on the validation split; None where that is unknown."""
    remarks: tuple[str, ...] = ()
    """What is unusual about the data, for every page about the study."""
    extra: tuple[tuple[int, float, int, int | None], ...] = ()
    """Cells beyond the grid, as `launch --settle` adds them: depth, rate, seed and train size."""

    def __post_init__(self) -> None:
        settings.check(self)
        for name in LISTS:
            flag, values = f"--{name.replace('_', '-')}", getattr(self, name)
            if not values:
                raise UsageError(f"empty grid: {flag} names no value")
            if len(set(values)) != len(values):
                raise UsageError(f"{flag} names a value twice: {settings.shortened(values)}")
        for depth in self.frozen_layers:
            if depth > self.total_layers:
                raise UsageError(
                    f"--frozen-layers {depth} is beyond {self.model}, which has {self.total_layers} layers: "
                    f"use -1 to {self.total_layers}"
                )

    def described_task(self) -> Task:
        """What is predicted, and how it is scored."""
        from objectives.tasks.definition import get_task
        from objectives.tasks.task_file import from_dict

        return get_task(self.task) if self.definition is None else from_dict(self.definition)

    def quality(self, score: float) -> float:
        """Of a score in the study's metric: more is better, and shares are taken of it."""
        from objectives.tasks.metrics import describe

        return describe(self.metric).quality(score, self.chance)

    @property
    def marks(self) -> tuple[str, ...]:
        return tuple(mark for mark in MARKS if getattr(self, mark))

    @property
    def search_seeds(self) -> tuple[int, ...]:
        """Of runs that choose a learning rate and are not in the scores; none where the protocol has none."""
        return tuple(dict(self.protocol_settings).get("search_seeds", ()))

    @property
    def every_seed(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys((*self.seeds, *self.search_seeds)))

    @property
    def extra_cells(self) -> tuple[Cell, ...]:
        return tuple(Cell(*place) for place in self.extra)

    @property
    def every_depth(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys((*self.frozen_layers, *(cell.frozen_layers for cell in self.extra_cells))))

    def with_extra(self, cells: Iterable[Cell]) -> StudySpec:
        """With these cells beside those that it has."""
        added = (astuple(cell) for cell in cells)
        return replace(self, extra=tuple(dict.fromkeys((*self.extra, *added))))

    def space(self) -> dict[str, list[int | float | None]]:
        """The grid as Optuna parameters; `train_size` is one only where the spec names sizes."""
        seeds = dict.fromkeys((*self.every_seed, *(cell.seed for cell in self.extra_cells)))
        found: dict[str, list[int | float | None]] = {
            "frozen_layers": list(self.every_depth),
            "learning_rate": list(self.learning_rates),
            "seed": list(seeds),
        }
        return found if self.train_sizes == (None,) else {**found, "train_size": [*self.train_sizes]}

    def every_cell(self) -> Iterator[Cell]:
        """The whole grid, whatever the protocol wants of it."""
        places = product(self.frozen_layers, self.learning_rates, self.every_seed, self.train_sizes)
        return (Cell(*place) for place in dict.fromkeys((*places, *self.extra)))

    def to_json(self) -> str:
        return json.dumps(asdict(self) | {"protocol_settings": dict(self.protocol_settings)}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> StudySpec:
        data = json.loads(text)
        # JSON has lists only; a spec is compared with one that was just made.
        own = {n: tuple(v) if isinstance(v, list) else v for n, v in data["protocol_settings"].items()}
        data["protocol_settings"] = tuple(sorted(own.items()))
        for name in (*LISTS, "remarks"):
            data[name] = tuple(data[name])
        data["extra"] = tuple(map(tuple, data["extra"]))
        recipe = {f.name for f in fields(Recipe)}
        data["recipe"] = Recipe(**{name: value for name, value in data["recipe"].items() if name in recipe})
        known = {f.name for f in fields(cls)}
        return cls(**{name: value for name, value in data.items() if name in known})

    def fingerprint(self) -> str:
        """Of everything that makes trials comparable; where model and data lie does not count."""
        identity = json.loads(replace(self, model="", model_path="", data="").to_json())
        for name in ("chance", "remarks", "extra"):
            del identity[name]
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]

    def training_fingerprint(self) -> str:
        """Of what a cell's training depends on beside the cell: the same while a study is extended."""
        task = {name: value for name, value in (self.definition or {}).items() if name != "source"}
        # The pool that subsets are drawn from goes up to the largest of them.
        most = None if None in self.train_sizes else max(size for size in self.train_sizes if size)
        names = (self.task, self.metric, self.model_fingerprint, self.data_fingerprint)
        identity = json.dumps([*names, task, asdict(self.recipe), most], sort_keys=True)
        return hashlib.sha256(identity.encode()).hexdigest()[:16]

    def differences(self, other: StudySpec) -> list[str]:
        """One line per field that differs, as `name: here -> there`."""
        mine, theirs = _flat(self), _flat(other)
        return [
            f"{name}: {_short(mine.get(name))} -> {_short(theirs.get(name))}"
            for name in dict.fromkeys([*mine, *theirs])
            if mine.get(name) != theirs.get(name) and name not in PLACES
        ]


def check_extension(name: str, stored: StudySpec, wanted: StudySpec, growing: Sequence[str]) -> None:
    """Raise an error unless the stored study can become the wanted one; `growing` are its lists.

    How trials are trained stays as it was, so that old and new ones compare.
    """
    if not growing:
        raise UsageError(
            f"--extend: --protocol {wanted.protocol} has chosen its cells by the lists that it had; "
            "start another --study"
        )
    for item in growing:
        missing = [value for value in getattr(stored, item) if value not in getattr(wanted, item)]
        if missing:
            flag = f"--{item.replace('_', '-')}"
            raise UsageError(
                f"--extend only adds: {flag} lacks {', '.join(f'{value:g}' for value in missing)}, "
                f"which {name} has"
            )
    grown = replace(stored, **{item: getattr(wanted, item) for item in growing})
    if differences := grown.differences(wanted):
        raise SpecMismatch(
            f"{name} was made from another spec: {'; '.join(differences)} (there -> here); "
            f"--extend adds to {', '.join(growing)} and changes nothing else"
        )


def _flat(spec: StudySpec) -> dict[str, Any]:
    tree = asdict(spec) | {"protocol_settings": dict(spec.protocol_settings)}
    own = tree.pop("protocol_settings")
    recipe = {f"recipe.{name}": value for name, value in tree.pop("recipe").items()}
    task = {f"task.{name}": value for name, value in (tree.pop("definition") or {}).items()}
    task.pop("task.source", None)
    return {**tree, **own, **recipe, **task}


def _short(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
