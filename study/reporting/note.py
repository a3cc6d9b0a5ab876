"""The note on a study in optuna-dashboard: the report's answer, the study's state and spec, how to join."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from objectives.depths import ranges
from study import protocols
from study.cli.wording import counted
from study.reporting import making, names
from study.reporting.content import telling
from study.reporting.document import Code, Document, Row, Section, Table, Words, label
from study.reporting.remarks import sentence
from study.reporting.text import markdown
from study.specs.study_spec import StudySpec
from study.workers.join_command import join_command

if TYPE_CHECKING:
    from storage.studies import StoredStudy
    from study.analysis.analyse import Analysis
    from study.trials.sources import Reading


def note(study: StoredStudy, reading: Reading, analysis: Analysis | None) -> str:
    """Markdown: what the report says, the state of the study, its spec and how to join it."""
    spec, outcomes = reading.spec(study.name), reading.outcomes[study.name]
    counts = Counter(outcome.state for outcome in outcomes)
    state = (
        f"{counted(counts['COMPLETE'], 'cell')} complete, {counts['FAIL']} failed, "
        f"{counts['RUNNING']} running, {counts['WAITING']} waiting. "
        f"{sentence(protocols.explained(spec, outcomes))}"
    )
    if analysis is None or not counts["COMPLETE"]:
        said = Document(title=f"{spec.model} on {names.task_name(spec.task)}", badges=spec.marks)
        state = f"No trial is complete yet. {state}"
    else:
        said = telling(analysis, reading.table, reading.provenance)
    sections = (
        Section("state", "State of the study", (Words(state),)),
        *said.sections,
        Section("spec", "The study", (_spec(spec),)),
        Section("join", "Join from another machine", _join(study)),
    )
    return markdown(replace(said, facts=(), sections=sections))


def _spec(spec: StudySpec) -> Table:
    settings = {
        "metric": names.metric_name(spec.metric),
        "protocol": spec.protocol,
        "layers": str(spec.total_layers),
        "frozen layers": ranges(spec.frozen_layers),
        "learning rates": making.rates(spec),
        "seeds": ranges(spec.seeds),
        "training examples": making.sizes(spec),
        **making.recipe(spec),
        "data": spec.data,
        "fingerprint": spec.fingerprint(),
    }
    rows = tuple(Row({"setting": name, "value": value}) for name, value in settings.items())
    return Table(name="spec", title="Spec", columns=(label("setting"), label("value")), rows=rows)


def _join(study: StoredStudy) -> tuple[Words, Code]:
    address = study.database.display_url
    told = ["Run this where the project is installed; it runs cells that no other worker has taken."]
    if "***" in address:
        told.append("Put the password in place of ***.")
    if study.database.address.kind == "sqlite":
        told.append("This database is a file: only processes on its own machine can join.")
    return Words(" ".join(told)), Code(join_command([study]))
