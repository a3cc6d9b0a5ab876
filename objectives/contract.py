"""The plain words that every room shares: Cell, Outcome, TrialRecord, Recipe and the errors.

Standard library only, so that analysis and storage can import it without torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, Protocol, runtime_checkable

from objectives.errors import (
    HARMLESS,
    ElsaError,
    HubError,
    SpecMismatch,
    StorageError,
    TrialFailed,
    UsageError,
    printable,
)
from objectives.paths import path_text
from objectives.recipe import Recipe
from objectives.settings import shortened

__all__ = [
    "FIRST",
    "HARMLESS",
    "Attempt",
    "Cell",
    "CurvePoint",
    "ElsaError",
    "HubError",
    "KeepsStates",
    "Objective",
    "Outcome",
    "Recipe",
    "Report",
    "SpecMismatch",
    "State",
    "StorageError",
    "TrialFailed",
    "TrialRecord",
    "UsageError",
    "path_text",
    "printable",
    "shortened",
]

State = Literal["WAITING", "RUNNING", "COMPLETE", "FAIL"]


@dataclass(frozen=True, order=True)
class Cell:
    """One coordinate of a study."""

    frozen_layers: int
    """-1 embeddings only, 0 nothing, n embeddings and the first n layers."""
    learning_rate: float
    seed: int
    train_size: int | None = None
    """Number of training examples; None is all of them."""

    def parameters(self) -> dict[str, int | float]:
        """As Optuna parameters: `train_size` is one only where the protocol has it."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def file_name(self) -> str:
        """For files about this cell."""
        size = "all" if self.train_size is None else self.train_size
        return f"frozen{self.frozen_layers}-rate{self.learning_rate!r}-seed{self.seed}-size{size}"

    def __str__(self) -> str:
        size = "" if self.train_size is None else f" train_size={self.train_size}"
        return (
            f"frozen_layers={self.frozen_layers} learning_rate={self.learning_rate:g} seed={self.seed}{size}"
        )


@dataclass(frozen=True)
class Outcome:
    """What is known of one cell: its latest trial's state, and its score where it is COMPLETE.

    FAIL here is final: the retries are spent. A failure that will be retried is WAITING.
    """

    cell: Cell
    state: State
    score: float | None = None
    selection_score: float | None = None
    score_error: float | None = None
    reason: str | None = None
    """Of a failure."""


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """One evaluation on the way."""

    epoch: float
    step: int
    train_loss: float
    """Mean loss of the steps since the evaluation before."""
    metrics: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class TrialRecord:
    """What a trial measured. None is "not measured", never zero."""

    metric: str
    """The task's primary metric."""
    score: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Every metric of the task at the evaluation that gave the score."""
    curve: tuple[CurvePoint, ...] = ()
    selection_score: float | None = None
    """The primary metric on the selection split, where the spec has one."""
    score_error: float | None = None
    """The score's standard error over the examples that gave it: how much it owes to which these are."""
    chance: float | None = None
    """The primary metric of always answering the majority class (0 for correlations)."""
    train_examples: int | None = None
    trainable_parameters: int | None = None
    total_parameters: int | None = None
    train_seconds: float | None = None
    evaluation_seconds: float | None = None
    prefix_seconds: float | None = None
    """What computing the training examples' prefix states takes, all layers below the depth, whichever trial
    of whichever study did it: train_seconds do not contain it."""
    examples_per_second: float | None = None
    peak_memory_bytes: int | None = None
    prefix: str | None = None
    """How the frozen layers really ran: "cached", "live" (with dropout), or "uncached": without dropout as
    cached ones do, but in every step, for want of room."""
    resumed_step: int | None = None
    """The training step of an earlier attempt's checkpoint that this trial went on from."""
    resumed_seconds: float | None = None
    """What it did not have to do again; train_seconds and evaluation_seconds contain it."""
    weights: str | None = None
    """Where the worker that ran the trial kept the weights that gave the score, if it was asked to."""
    predictions: str | None = None
    """The answers to the examples behind the score, packed (`objectives.tasks.predictions`)."""
    device: str | None = None
    host: str | None = None
    processes: int | None = None
    micro_batch: int | None = None
    """The most examples that a process took through the model at a time while training."""
    versions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not math.isfinite(self.score):
            raise TrialFailed(f"{self.metric} is {self.score}", retry=False)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TrialRecord:
        known = {f.name for f in fields(cls)}
        kept = {name: value for name, value in data.items() if name in known}
        kept["curve"] = tuple(CurvePoint(**point) for point in kept.get("curve") or ())
        return cls(**kept)


Report = Callable[[CurvePoint], None]
"""Called by an objective after each evaluation, in each of its processes; it may raise to stop the trial."""


def _ignore(step: int, steps: int, loss: float | None) -> None:
    pass


def _yes() -> bool:
    return True


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt at a cell, as the worker that makes it sees it."""

    number: int = 1
    """1 for the first, 2 for the first retry."""
    failure: str | None = None
    """Why the attempt before this one failed."""
    stepped: Callable[[int, int, float | None], None] = _ignore
    """Called after each training step: steps done, steps in all, and the mean loss where it is known."""
    token: str = "alone"
    """Unlike that of any other attempt: what one attempt writes for the next carries it in its name."""
    mine: Callable[[], bool] = _yes
    """Whether this attempt still holds its cell; asked before anything is written that others read."""
    wanted: Callable[[], Collection[int]] = tuple
    """The depths that cells of the study still wait for; asked where work for several is done at once."""


FIRST = Attempt()


@runtime_checkable
class KeepsStates(Protocol):
    """An objective whose trials of one depth share work, which this machine keeps for them."""

    def nearest(self) -> Sequence[int]:
        """The depths whose trials could begin at once, the best one first."""

    def rest(self) -> None:
        """No trial is at hand: let go of what others may need room for."""


class Objective(Protocol):
    """What one trial does: `objective(cell, report, attempt) -> TrialRecord`, or TrialFailed."""

    def __call__(self, cell: Cell, report: Report, attempt: Attempt = ...) -> TrialRecord: ...
