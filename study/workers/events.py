"""What a worker tells of its work, for whoever displays or supervises it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from objectives.contract import Cell, CurvePoint, TrialRecord

if TYPE_CHECKING:
    from storage.claims import Claim
    from storage.reading import Counts

EventKind = Literal[
    "claimed",
    "stepped",
    "reported",
    "finished",
    "failed",
    "lost",
    "released",
    "planned",
    "reaped",
    "unwatched",
    "untracked",
    "idle",
    "left",
]


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something a progress display may want to show; fields that do not apply are None."""

    kind: EventKind
    worker: str
    study: str
    cell: Cell | None = None
    number: int | None = None
    attempt: int | None = None
    index: int | None = None
    """reported: which evaluation, from 0."""
    step: int | None = None
    """stepped: optimiser steps so far, of `steps`."""
    steps: int | None = None
    loss: float | None = None
    """stepped: mean training loss of late, where it was looked at."""
    point: CurvePoint | None = None
    record: TrialRecord | None = None
    reason: str | None = None
    seconds: float | None = None
    """finished, failed: from claim to end."""
    trials: int | None = None
    """planned, reaped: how many."""
    counts: Counts | None = None
    """idle: what the study waits for."""
    claim: Claim | None = field(default=None, repr=False, compare=False)
    """For who must end the trial while its own thread is held up."""
