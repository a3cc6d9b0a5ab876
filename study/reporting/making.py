"""The report's tables of how it was made: specs, machines and versions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from objectives.depths import ranges
from study.reporting import names
from study.reporting.document import Column, Row, Table, Value, label, plain
from study.specs.study_spec import StudySpec
from study.trials.provenance import Provenance


def recipe(spec: StudySpec) -> dict[str, str]:
    """The training recipe's settings, spelled for people."""
    return {name.replace("_", " "): plain(value) for name, value in asdict(spec.recipe).items()}


def rates(spec: StudySpec) -> str:
    return ", ".join(names.rate(r) for r in spec.learning_rates)


def sizes(spec: StudySpec) -> str:
    return ", ".join(names.size_name(s) for s in spec.train_sizes)


def _of_spec(get: Callable[[StudySpec], Value]) -> Callable[[tuple[StudySpec, str]], Value]:
    return lambda item: get(item[0])


def studies_table(provenance: Provenance) -> Table | None:
    """Each study's spec, a row per study, with the recipe's settings."""
    if not provenance.studies:
        return None
    return Table(
        name="studies",
        title="Specs",
        columns=(
            label("study", get=lambda item: item[1], key=True),
            label("task"),
            label("model"),
            label(
                "protocol",
                get=_of_spec(lambda s: s.protocol + "".join(f" ({mark})" for mark in s.marks)),
            ),
            label("frozen_layers", "frozen layers", get=_of_spec(lambda s: ranges(s.frozen_layers))),
            label("learning_rates", "learning rates", get=_of_spec(rates)),
            label("seeds", get=_of_spec(lambda s: ranges(s.seeds))),
            label("train_sizes", "train sizes", get=_of_spec(sizes)),
            label("recipe", get=_of_spec(lambda s: ", ".join(f"{k} {v}" for k, v in recipe(s).items()))),
            label("fingerprint", get=_of_spec(lambda s: s.fingerprint()), note=_FINGERPRINT),
            label("model_fingerprint", shown=False),
            label("data", shown=False),
            label("data_fingerprint", shown=False),
        ),
        rows=tuple(Row((spec, name)) for name, spec in provenance.studies),
    )


_FINGERPRINT = "A fingerprint is computed from everything that makes trials comparable."


def machines_tables(provenance: Provenance) -> list[Table]:
    """What the trials ran on, and how many of them: hosts and devices, packages and versions."""
    found = {
        "Machines": (("host", "device"), provenance.machines),
        "Versions": (("package", "version"), provenance.versions),
    }
    return [
        Table(
            name=title.lower(),
            title=title,
            columns=(*map(label, words), Column("trials", "complete trials")),
            rows=tuple(Row(dict(zip((*words, "trials"), row, strict=True))) for row in rows),
        )
        for title, (words, rows) in found.items()
        if rows
    ]
