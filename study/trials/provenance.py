"""What a database knows beyond the trial table: specs, learning curves, versions and machines.

Read from the studies themselves; a table on its own has none of it, and the report then says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from objectives.contract import Cell
from study.specs.study_spec import StudySpec

if TYPE_CHECKING:
    from storage.reading import StoredTrial


@dataclass(frozen=True)
class LearningCurve:
    """The evaluations of one complete trial."""

    model: str
    task: str
    metric: str
    cell: Cell
    epochs: tuple[float, ...]
    scores: tuple[float, ...]
    losses: tuple[float, ...]
    study: str | None = None


@dataclass(frozen=True)
class Provenance:
    studies: tuple[tuple[str, StudySpec], ...] = ()
    curves: tuple[LearningCurve, ...] = ()
    versions: tuple[tuple[str, str, int], ...] = ()
    """Package, version, trials that used it."""
    machines: tuple[tuple[str, str, int], ...] = ()
    """Host, device, complete trials."""
    storages: tuple[str, ...] = ()
    """Addresses without passwords."""

    def __add__(self, other: Provenance) -> Provenance:
        return Provenance(
            studies=self.studies + other.studies,
            curves=self.curves + other.curves,
            versions=_summed(self.versions + other.versions),
            machines=_summed(self.machines + other.machines),
            storages=tuple(dict.fromkeys(self.storages + other.storages)),
        )

    def of(self, study: str) -> Provenance:
        """The spec and learning curves of one study; versions and machines are counted over all."""
        return replace(
            self,
            studies=tuple(found for found in self.studies if found[0] == study),
            curves=tuple(curve for curve in self.curves if curve.study == study),
        )


def of_trials(name: str, spec: StudySpec, trials: Sequence[StoredTrial], *, storage: str) -> Provenance:
    """Of one study, from its trials as they were read for its table."""
    curves = []
    versions: Counter[tuple[str, str]] = Counter()
    machines: Counter[tuple[str, str]] = Counter()
    for trial in trials:
        record = trial.record
        if record is None:
            continue
        versions.update(record.versions.items())
        if record.host or record.device:
            machines[record.host or "?", record.device or "?"] += 1
        points = [p for p in record.curve if record.metric in p.metrics]
        if len(points) > 1:
            curves.append(
                LearningCurve(
                    model=spec.model,
                    task=spec.task,
                    metric=record.metric,
                    cell=trial.cell,
                    epochs=tuple(p.epoch for p in points),
                    scores=tuple(p.metrics[record.metric] for p in points),
                    losses=tuple(p.train_loss for p in points),
                    study=name,
                )
            )
    return Provenance(
        studies=((name, spec),),
        curves=tuple(curves),
        versions=tuple((*key, count) for key, count in sorted(versions.items())),
        machines=tuple((*key, count) for key, count in sorted(machines.items())),
        storages=(storage,),
    )


def _summed(counts: Sequence[tuple[str, str, int]]) -> tuple[tuple[str, str, int], ...]:
    summed: Counter[tuple[str, str]] = Counter()
    for first, second, count in counts:
        summed[first, second] += count
    return tuple((*key, count) for key, count in sorted(summed.items()))
