"""Where trials come from: CSV files, databases and studies by name, told apart and read in one place.

A study is read once: its table and what only the database knows come from the same trials.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from objectives.contract import Outcome, StorageError, UsageError
from study.cli.command import DEFAULT_STORAGE, note
from study.specs.study_spec import StudySpec
from study.trials import percent, provenance, trial_table
from study.trials.provenance import Provenance

if TYPE_CHECKING:
    import pandas as pd

    from storage.reading import StoredTrial
    from storage.studies import StoredStudy


@dataclass(frozen=True)
class Source:
    """What a word on the command line names."""

    kind: Literal["table", "storage", "study"]
    place: str
    """A file's path, a database's address, or a study's name."""


@dataclass(frozen=True)
class Reading:
    """Trials, and what the database knows beyond their table."""

    table: pd.DataFrame
    provenance: Provenance = field(default_factory=Provenance)
    outcomes: Mapping[str, Sequence[Outcome]] = field(default_factory=dict)
    """What is known of each cell, by study, where `read_studies` read it."""
    predictions: Mapping[tuple[str, int], str] = field(default_factory=dict)
    """What trials answered to each test example, packed, by study and trial; where it was asked for."""
    trials: Mapping[str, Sequence[StoredTrial]] = field(default_factory=dict)
    """The trials themselves, by study, where `read_studies` read them."""

    def spec(self, study: str) -> StudySpec:
        return dict(self.provenance.studies)[study]

    def of(self, study: str) -> Reading:
        """The part of one study."""
        return Reading(
            self.table[self.table["study"] == study].reset_index(drop=True),
            self.provenance.of(study),
            {study: self.outcomes[study]},
            {key: text for key, text in self.predictions.items() if key[0] == study},
        )


def source(word: str) -> Source:
    """A URL is a database, a file is a table or an SQLite database, anything else a study's name."""
    if "://" in word:
        return Source("storage", word)
    if _is_file(word):
        return Source("storage", f"sqlite:///{word}") if _is_sqlite(word) else Source("table", word)
    if word.lower().endswith((".csv", ".csv.gz", ".db")):
        raise UsageError(f"no such file: {word}")
    return Source("study", word)


def read(words: Sequence[str], storage: str | None = None, *, predictions: bool = False) -> Reading:
    """The trials of every source; of every study in the storage where none is named.

    `table.attrs["skipped"]` names studies of other software in a storage that is named as a whole.
    """
    named = [source(word) for word in words]
    studies = [found.place for found in named if found.kind == "study"]
    readings = [_read_place(found, predictions) for found in named if found.kind != "study"]
    if studies or not words:
        readings.append(_read_storage(_needed_storage(studies, storage), studies, predictions))
    found = _together(readings)
    if not len(found.table):
        from storage.address import shown

        places = ", ".join(map(shown, words)) or shown(str(default_storage(storage)))
        raise UsageError(f"no trials yet in {places}")
    return found


def read_studies(studies: Sequence[StoredStudy]) -> Reading:
    """The very studies that are given, whatever files have their names; perhaps without any trial yet."""
    readings = [_read_study(study, predictions=True) for study in studies]
    outcomes = {study.name: study.outcomes() for study in studies}
    trials = {name: found for reading in readings for name, found in reading.trials.items()}
    return replace(_together(readings), outcomes=outcomes, trials=trials)


def default_storage(storage: str | None) -> str | None:
    """The storage a study's name is looked up in: the flag, ELSA_STORAGE, or elsa.db where it exists."""
    named = storage or os.environ.get("ELSA_STORAGE")
    if named:
        return named
    return DEFAULT_STORAGE if Path(DEFAULT_STORAGE.removeprefix("sqlite:///")).exists() else None


def _needed_storage(studies: Sequence[str], storage: str | None) -> str:
    address = default_storage(storage)
    if address is None:
        wanted = f"{studies[0]!r} is neither a file nor a storage URL" if studies else "nothing to analyse"
        raise UsageError(f"{wanted}: name a trial table (CSV), or a study with --storage URL or ELSA_STORAGE")
    return address


def _read_place(found: Source, predictions: bool) -> Reading:
    if found.kind == "storage":
        return _read_storage(found.place, (), predictions)
    table = trial_table.read_csv(found.place)
    if doubt := percent.warning(table):
        note(f"{found.place}: {doubt}")
    return Reading(table)


def _read_storage(address: str, names: Sequence[str], predictions: bool) -> Reading:
    """The named studies, or every study of this software; `skipped` are those of other software."""
    from storage.database import Database

    with Database.open(address) as database:
        if names:
            return _together([_read_study(database.study(name), predictions) for name in names])
        studies = [database.study(name) for name in database.study_names()]
        ours = [study for study in studies if "spec" in study.attributes()]
        if not ours:
            raise StorageError(f"{database.display_url} contains no elsa study; start one with `elsa launch`")
        reading = _together([_read_study(study, predictions) for study in ours])
        reading.table.attrs["skipped"] = [study.name for study in studies if study not in ours]
        return reading


def _read_study(study: StoredStudy, predictions: bool) -> Reading:
    place = study.database.display_url
    spec = study.attributes().get("spec")
    if spec is None:
        raise StorageError(
            f"study {study.name!r} in {place} was not made by this software: "
            "it has no spec to read its trials by"
        )
    described = StudySpec.from_json(spec)
    trials = study.trials()
    return Reading(
        trial_table.from_trials(study.name, described, trials, source=place),
        provenance.of_trials(study.name, described, trials, storage=place),
        predictions={(study.name, n): text for n, text in study.predictions().items()} if predictions else {},
        trials={study.name: trials},
    )


def _together(readings: Sequence[Reading]) -> Reading:
    import pandas as pd

    tables = [reading.table for reading in readings]
    # A table without rows has no types to bring in.
    filled = [table for table in tables if len(table)] or tables[:1]
    table = filled[0] if len(filled) == 1 else pd.concat(filled, ignore_index=True)
    table.attrs["skipped"] = [name for part in tables for name in part.attrs.get("skipped", ())]
    return Reading(
        table,
        sum((reading.provenance for reading in readings), start=Provenance()),
        predictions={key: text for reading in readings for key, text in reading.predictions.items()},
    )


def _is_file(word: str) -> bool:
    try:
        return Path(word).is_file()
    except (OSError, ValueError):
        # A name that no file can have.
        return False


def _is_sqlite(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(15) == b"SQLite format 3"
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
