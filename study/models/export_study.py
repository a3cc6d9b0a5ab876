"""From a study in the database to a model on disk: choose the run, train it again, write it with its card."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from objectives.contract import TrialRecord, UsageError
from objectives.training.kept import read as read_kept
from study.models.card import card
from study.models.choice import Choice, choose
from study.models.exporting import Trained, of_kept, of_objective, write_full, write_tuned
from study.models.retraining import retrain
from study.models.wanted import Wanted
from study.trials.sources import read_studies
from study.workers.jobs import find_model, stored_spec
from study.workers.options import Places

if TYPE_CHECKING:
    from storage.studies import StoredStudy
    from study.specs.study_spec import StudySpec


def export(
    study: StoredStudy,
    wanted: Wanted,
    places: Places,
    out: Path,
    *,
    tuned_only: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> list[Path]:
    """The files that were written."""
    spec = stored_spec(study)
    if spec.recorded:
        raise UsageError(f"{study.name} was answered from a trial table: nothing was trained to export")
    reading = read_studies([study])
    choice = choose(reading, spec, reading.trials[study.name], wanted)
    say(f"{study.name}: {choice.why}: {choice.cell}, {choice.record.metric} {choice.record.score:.4f}")
    model, record, comparison = _kept(spec, choice, places, say) or _retrained(spec, choice, places, say)
    say(comparison)
    text = card(study.name, spec, choice, record, comparison, reading, tuned_only=tuned_only)
    if tuned_only:
        return write_tuned(model, spec, out, text, choice.cell.frozen_layers)
    return write_full(model, out, text)


def _kept(
    spec: StudySpec, choice: Choice, places: Places, say: Callable[[str], None]
) -> tuple[Trained, TrialRecord, str] | None:
    """The weights that the trial itself has left behind; None where it has not, or they are gone."""
    record = choice.record
    if record.weights is None:
        return None
    found = read_kept(record.weights, spec.training_fingerprint(), choice.cell, record.score)
    if isinstance(found, str):
        say(f"the weights that the trial kept, {record.weights} on {record.host}, {found}")
        return None
    task = spec.described_task()
    model = of_kept(found, find_model(spec, places), task, spec.recipe.max_length)
    return model, record, f"{record.metric} {record.score:.4f}, of the weights that the trial kept"


def _retrained(
    spec: StudySpec, choice: Choice, places: Places, say: Callable[[str], None]
) -> tuple[Trained, TrialRecord, str]:
    say(f"training it again{_time(choice)}")
    found = retrain(spec, choice.cell, choice.record, places)
    depth, longest = choice.cell.frozen_layers, spec.recipe.max_length
    model = of_objective(found.objective, spec.described_task(), depth, longest)
    return model, found.record, found.comparison


def _time(choice: Choice) -> str:
    from study.cli.command import duration

    seconds = choice.record.train_seconds
    return "" if seconds is None else f", which took {duration(seconds)} in the study"
