"""Tasks as data: what is read, what is predicted, how it is scored. The shipped ones are TOML files here.

Standard library only, so that the analysis can ask for names and order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal, get_args

from objectives.errors import UsageError, did_you_mean

Kind = Literal["classes", "multi-label", "regression"]
KINDS: tuple[Kind, ...] = get_args(Kind)
FOLDER = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Splits:
    """Under which names the data have the parts of a task."""

    train: str = "train"
    validation: tuple[str, ...] = ("validation",)
    """Metrics of a second one are recorded with its suffix."""
    test: str | None = None
    """Scored once per trial, and never used to choose anything."""
    held_out: float | None = None
    """The share of the training data that is the validation split, where the data have none."""

    def __post_init__(self) -> None:
        if not self.validation:
            raise UsageError("splits.validation names no split")
        if self.held_out is not None and not 0 < self.held_out <= 0.5:
            raise UsageError(f"splits.held_out is {self.held_out:g}: use a share above 0, at most 0.5")


@dataclass(frozen=True, kw_only=True)
class Task:
    name: str
    text: tuple[str, ...]
    """The one or two columns of text."""
    label: tuple[str, ...] = ("label",)
    """The column of labels; several columns of 0 and 1 for a multi-label task."""
    kind: Kind = "classes"
    labels: tuple[str, ...] = ()
    """Their names in the order of their numbers; empty for a regression."""
    metrics: tuple[str, ...]
    """The primary metric first."""
    display: str = ""
    """As people write it; the name where it is empty."""
    source: str | None = None
    """Where the data are: `hub:NAME/CONFIG`, or a file or folder beside the task's own file."""
    range: tuple[float, float] | None = None
    """Of a regression's labels; others are refused."""
    standardise: bool = True
    """Whether a regression is trained on labels of mean 0 and spread 1; scores are in their own unit."""
    splits: Splits = field(default_factory=Splits)
    tsv: Mapping[str, str | int] = field(default_factory=dict)
    """Where files without quoting keep a column: a header name, or a position in a file without header."""
    demo: str | None = None
    """Which examples of the demo language it has."""
    order: int = 1000
    """Its place in tables."""
    label_counts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Of its public validation splits, for tables that record no chance."""

    @property
    def regression(self) -> bool:
        return self.kind == "regression"

    @property
    def multi_label(self) -> bool:
        return self.kind == "multi-label"

    @property
    def outputs(self) -> int:
        """Columns of a model's logits."""
        return 1 if self.regression else len(self.labels)

    @property
    def metric(self) -> str:
        return self.metrics[0]

    def scored_by(self, accuracy: bool) -> str:
        """The metric of a trial's score: the primary one, or accuracy where a recipe asks for it."""
        return "accuracy" if accuracy and "accuracy" in self.metrics else self.metric

    @property
    def validation(self) -> tuple[str, ...]:
        return self.splits.validation

    def suffix(self, split: str) -> str:
        """Of metrics of a further validation split: `_mismatched`."""
        if split not in self.validation[1:]:
            return ""
        return f"_{split.removeprefix('validation_')}"


def task_key(task: str) -> str:
    """One spelling per task: SST-2, sst_2 and sst2 are the same."""
    return task.lower().replace("-", "").replace("_", "").replace(" ", "")


@cache
def shipped() -> dict[str, Task]:
    """The tasks that come with the project, by name, in the order of tables."""
    from objectives.tasks.task_file import read

    tasks = sorted(map(read, FOLDER.glob("*.toml")), key=lambda task: (task.order, task.name))
    return {task.name: task for task in tasks}


def find_task(name: str) -> Task | None:
    """The shipped task of that name; "SST-2" and "sts-b" are understood."""
    return shipped().get(task_key(name))


def get_task(name: str) -> Task:
    found = find_task(name)
    if found is None:
        raise UsageError(f"unknown task {name!r}: {suggestion(name)}")
    return found


def suggestion(name: str) -> str:
    """What may have been meant by a name that no shipped task has."""
    hint = did_you_mean(task_key(name), shipped())
    return (
        f"{hint} Data of your own are named with --data FILE"
        if "?" in hint
        else f"{hint}, or name your --data"
    )
