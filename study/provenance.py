"""What a database knows beyond the trial table: specs, learning curves, versions and machines.

Read from the studies themselves; a table on its own has none of it, and the report then says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from objectives.contract import Cell
from study.spec import StudySpec

if TYPE_CHECKING:
    from storage.database import Database
    from storage.studies import StoredStudy


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


def read(sources: Sequence[str], storage: str | None) -> Provenance:
    """Of the same sources as `trial_table.load`; files have none."""
    from study.trial_table import default_storage

    found = Provenance()
    named = []
    for source in sources:
        if "://" in source:
            found += _of_storage(source, None)
        elif Path(source).is_file():
            found += _of_storage(f"sqlite:///{source}", None) if _is_sqlite(Path(source)) else Provenance()
        else:
            named.append(source)
    address = default_storage(storage)
    if address is not None and (named or not sources):
        found += _of_storage(address, named or None)
    return found


def of_study(study: StoredStudy) -> Provenance:
    """Of one study; empty for one that is not ours."""
    attributes = study.attributes()
    if "spec" not in attributes:
        return Provenance()
    spec = StudySpec.from_json(attributes["spec"])
    curves = []
    versions: Counter[tuple[str, str]] = Counter()
    machines: Counter[tuple[str, str]] = Counter()
    for trial in study.trials():
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
                    study=study.name,
                )
            )
    return Provenance(
        studies=((study.name, spec),),
        curves=tuple(curves),
        versions=tuple((*key, count) for key, count in sorted(versions.items())),
        machines=tuple((*key, count) for key, count in sorted(machines.items())),
        storages=(study.database.display_url,),
    )


def _of_storage(address: str, names: Sequence[str] | None) -> Provenance:
    from storage.database import Database

    database: Database = Database.open(address)
    try:
        found = Provenance()
        for name in names or database.study_names():
            found += of_study(database.study(name))
        return found
    finally:
        database.close()


def _is_sqlite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(15) == b"SQLite format 3"


def _summed(counts: Sequence[tuple[str, str, int]]) -> tuple[tuple[str, str, int], ...]:
    summed: Counter[tuple[str, str]] = Counter()
    for first, second, count in counts:
        summed[first, second] += count
    return tuple((*key, count) for key, count in sorted(summed.items()))
