"""From a study in the database to a model on disk: choose the run, train it again, write it with its card."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from objectives.contract import UsageError
from study.models.card import card
from study.models.choice import Choice, Wanted, choose
from study.models.exporting import of_objective, write_full, write_tuned
from study.models.retraining import retrain
from study.trials.sources import read_studies
from study.workers.jobs import Places, stored_spec

if TYPE_CHECKING:
    from storage.studies import StoredStudy


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
    choice = choose(reading, spec, study.trials(), wanted)
    say(f"{study.name}: {choice.why}: {choice.cell}, {choice.record.metric} {choice.record.score:.4f}")
    say(f"training it again{_time(choice)}")
    trained = retrain(spec, choice.cell, choice.record, places)
    say(trained.comparison)
    text = card(study.name, spec, choice, trained.record, trained.comparison, reading, tuned_only=tuned_only)
    depth = choice.cell.frozen_layers
    model = of_objective(trained.objective, spec.described_task(), depth, spec.recipe.max_length)
    if tuned_only:
        return write_tuned(model, spec, out, text, depth)
    return write_full(model, out, text)


def _time(choice: Choice) -> str:
    from study.cli.command import duration

    seconds = choice.record.train_seconds
    return "" if seconds is None else f", which took {duration(seconds)} in the study"
