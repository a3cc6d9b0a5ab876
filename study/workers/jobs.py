"""What a worker needs to run the trials of a study: made from the spec in the database.

Model and data are looked for where the spec says, or where the worker was told, and accepted only if their
fingerprints are those of the study.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from objectives.contract import Cell, ElsaError, HubError, Objective, SpecMismatch, UsageError
from objectives.prefix.entries import Owner, mark_study
from objectives.training.checkpoints import Checkpoints
from objectives.training.kept import KeptModels
from study.cli.command import note
from study.cli.wording import slug
from study.specs.study_spec import StudySpec
from study.workers.options import Places

if TYPE_CHECKING:
    from objectives.data.task_data import TaskData
    from objectives.recorded import RecordedPair
    from storage.database import Database
    from storage.studies import StoredStudy

Found = TypeVar("Found")


@dataclass(frozen=True, kw_only=True)
class Job:
    """One study to work on. The objective is made at the first claim, and dropped when moving on."""

    study: StoredStudy
    spec: StudySpec
    make_objective: Callable[[], Objective]
    cells: frozenset[Cell] | None = None
    """Where only these cells can be answered (a recorded table)."""
    checkpoints: Checkpoints | None = None
    finished: Callable[[], None] = lambda: None
    """Called once nothing of the study is left to do."""

    def forget(self, cell: Cell | None = None) -> None:
        """Remove the checkpoints of a finished cell; without one, of the finished study."""
        if self.checkpoints is None:
            return
        self.checkpoints.remove_all() if cell is None else self.checkpoints.remove(cell)


def load_jobs(database: Database, names: Sequence[str], places: Places) -> list[Job]:
    return [make_job(database.study(name), places) for name in names]


def make_job(study: StoredStudy, places: Places) -> Job:
    spec = stored_spec(study)
    cells = frozenset(find_table(spec, places).cells) if spec.recorded else None
    return Job(
        study=study,
        spec=spec,
        make_objective=lambda: make_objective(spec, places, study.name),
        cells=cells,
        checkpoints=None if spec.recorded else checkpoints(study.name, spec, places),
        finished=lambda: mark_study(_folder(places), study.name, finished=True),
    )


def checkpoints(study: str, spec: StudySpec, places: Places) -> Checkpoints | None:
    """Where this study's trials are saved on their way; None where they are not."""
    minutes = places.keeping.checkpoint_every
    if minutes is None:
        return None
    identity = spec.training_fingerprint()
    folder = places.keeping.checkpoint_folder(places.caching) / f"{slug(study)}-{identity}"
    return Checkpoints(folder, 60 * minutes, identity, note)


def _folder(places: Places) -> Path:
    return Path(places.caching.cache_dir).expanduser()


def stored_spec(study: StoredStudy) -> StudySpec:
    """The study's spec as it is now: another launcher may have extended it."""
    text = study.attributes().get("spec")
    if text is None:
        raise SpecMismatch(
            f"{study.name} in {study.database.display_url} was not made by this software: "
            "choose another study"
        )
    return StudySpec.from_json(text)


def kept_models(study: str, spec: StudySpec, places: Places) -> KeptModels | None:
    """Where this study's trials leave their weights; None where they leave none."""
    if places.keeping.keep != "models":
        return None
    identity = spec.training_fingerprint()
    return KeptModels(
        places.keeping.models_folder(places.caching) / f"{slug(study)}-{identity}", identity, note
    )


def make_objective(spec: StudySpec, places: Places, study: str | None = None) -> Objective:
    """What runs trials of this spec here; without a study's name, nothing is kept of them on the way."""
    if spec.recorded:
        from objectives.recorded import RecordedObjective

        return RecordedObjective(
            pair=find_table(spec, places),
            delay_seconds=places.answering.recorded_delay,
            failure_rate=places.answering.recorded_failure_rate,
            protocol=spec.protocol,
        )
    from objectives.prefix.prefix_cache import PrefixCache
    from objectives.training.finetune import FineTuning

    owner = Owner(study=study or "", model=spec.model, data=spec.task)
    sizes = [size for size in spec.train_sizes if size is not None]
    return FineTuning(
        data=find_data(spec, places),
        model_path=find_model(spec, places),
        model_fingerprint=spec.model_fingerprint,
        recipe=spec.recipe,
        cache=PrefixCache(_folder(places), places.caching.cache_budget, note, owner),
        largest_train_size=None if None in spec.train_sizes else max(sizes),
        fitting=places.fitting,
        checkpoints=None if study is None else checkpoints(study, spec, places),
        kept=None if study is None else kept_models(study, spec, places),
    )


def find_model(spec: StudySpec, places: Places) -> str:
    """What `from_pretrained` takes, with the study's fingerprint."""
    from objectives.pretrained.models import identify

    def try_one(place: str) -> tuple[str, str]:
        found = identify(place)
        return found.fingerprint, found.path

    recorded = "demo" if spec.demo else spec.model_path or spec.model
    return _matching(spec.model_fingerprint, [*places.models, recorded], try_one, f"model {spec.model}")


def find_data(spec: StudySpec, places: Places) -> TaskData:
    """The study's examples, with its fingerprint."""
    from objectives.data.task_data import DEMO, load_data

    task = spec.described_task()

    def try_one(place: str) -> tuple[str, TaskData]:
        inner = Path(place) / task.name
        found = load_data(task, str(inner) if inner.is_dir() else place)
        return found.fingerprint, found

    recorded = DEMO if spec.demo else spec.data
    return _matching(spec.data_fingerprint, [*places.data, recorded], try_one, f"data of {spec.task}")


def find_table(spec: StudySpec, places: Places) -> RecordedPair:
    """The trials that a recorded study is answered from."""
    from objectives.recorded import read_table

    def try_one(place: str) -> tuple[str, RecordedPair]:
        for pair in read_table(place):
            if (pair.task, pair.model) == (spec.task, spec.model):
                return pair.fingerprint(), pair
        raise UsageError(f"{place} holds no trial of {spec.model} on {spec.task}")

    return _matching(spec.data_fingerprint, [*places.data, spec.data], try_one, "recorded table")


def _matching(
    wanted: str, candidates: Sequence[str], try_one: Callable[[str], tuple[str, Found]], what: str
) -> Found:
    """The first candidate with the wanted fingerprint; else an error that says what was tried."""
    tried: list[str] = []
    kind: type[ElsaError] = UsageError
    for place in dict.fromkeys(candidates):
        try:
            fingerprint, found = try_one(place)
        except (UsageError, HubError) as error:
            tried.append(str(error))
            kind = type(error) if isinstance(error, HubError) else kind
            continue
        if fingerprint == wanted:
            return found
        kind = SpecMismatch
        tried.append(f"{place} has the fingerprint {fingerprint}")
    raise kind(
        f"this machine has no {what} with the study's fingerprint {wanted} ({'; '.join(tried)}): "
        "name its folder with --model or --data"
    )
