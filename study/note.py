"""The note on a study in optuna-dashboard: the answer so far, where it stands, the spec, how to join."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from study import names, protocols
from study.join import join_command
from study.reporting.answer import answers
from study.reporting.document import plain
from study.reporting.making import ranges
from study.spec import StudySpec

if TYPE_CHECKING:
    import pandas as pd

    from storage.studies import StoredStudy
    from study.analysis.analyse import Analysis


def note(study: StoredStudy, spec: StudySpec, table: pd.DataFrame, analysis: Analysis | None) -> str:
    """Markdown. Counts come first: an answer from half a study must not look like the whole."""
    from study.reporting.content import DEMO, RECORDED

    counts = study.counts()
    done = counts.complete + counts.failed
    parts = [f"# {_title(spec)}"]
    parts += [f"**{DEMO}**"] if spec.demo else []
    parts += [f"**{RECORDED}**"] if spec.recorded else []
    parts.append(
        f"{counts.complete} cells complete, {counts.failed} failed, {counts.running} running, "
        f"{counts.waiting} waiting. {_sentence(protocols.explain(spec, study.outcomes()))}"
    )
    parts.append("## The answer" if counts.open == 0 and done else "## The answer so far")
    if analysis is None or not counts.complete:
        parts.append("No trial is complete yet.")
    else:
        from study.analysis.costs import costs

        parts += answers(analysis, costs(table, analysis))
        parts.append(_points(analysis))
    parts += ["## The study", _spec(spec)]
    parts += ["## Join from another machine", _join(study, spec)]
    return "\n\n".join(parts) + "\n"


def _title(spec: StudySpec) -> str:
    said = "DEMO: " if spec.demo else "RECORDED: " if spec.recorded else ""
    return f"{said}{spec.model} on {names.task_name(spec.task)}"


def _points(analysis: Analysis) -> str:
    sizes = any(p.train_size is not None for p in analysis.points)
    head = ["of full quality", *(["train size"] if sizes else []), "tune", "freeze", "keeps", "probability"]
    head.append("confident")
    lines = [f"| {' | '.join(head)} |", "|" + " ---: |" * len(head)]
    for p in sorted(analysis.points, key=lambda p: (p.threshold, p.train_size or 0)):
        size = f" {names.size_name(p.train_size)} |" if sizes else ""
        if p.frozen_layers is None:
            lines.append(f"| {names.percent_short(p.threshold)} |{size} – | – | – | – | – |")
            continue
        sure = names.UNKNOWN if p.confident_frozen_layers is None else str(p.confident_frozen_layers)
        likely = f"{p.probability.get(p.frozen_layers, 0.0):.2f}" if p.probability else names.UNKNOWN
        tuned = f"{names.span(p.fewest_tuned_layers, p.tuned_layers)} of {p.total_layers}"
        frozen = names.span(p.frozen_layers, p.deepest_frozen_layers)
        kept = f"{names.percent(p.relative)} [{names.interval(p.relative_low, p.relative_high)}]"
        lines.append(
            f"| {names.percent_short(p.threshold)} |{size} {tuned} | {frozen} | {kept} | {likely} | {sure} |"
        )
    return "\n".join(lines) + (
        "\n\nProbability: the share of bootstrap draws with this very answer. "
        "Confident: the most layers frozen that stay above the threshold in 95 % of the draws "
        "and by Student's test."
    )


def _spec(spec: StudySpec) -> str:
    sizes = ", ".join(names.size_name(size) for size in spec.train_sizes)
    lines = {
        "metric": spec.metric,
        "protocol": spec.protocol,
        "layers": str(spec.total_layers),
        "frozen layers": ranges(spec.frozen_layers),
        "learning rates": ", ".join(names.rate(r) for r in spec.learning_rates),
        "seeds": ranges(spec.seeds),
        "training examples": sizes,
        **{name.replace("_", " "): plain(value) for name, value in asdict(spec.recipe).items()},
        "data": spec.data,
        "fingerprint": spec.fingerprint(),
    }
    return "| setting | value |\n| --- | --- |\n" + "\n".join(f"| {k} | {v} |" for k, v in lines.items())


def _join(study: StoredStudy, spec: StudySpec) -> str:
    address = study.database.display_url
    hidden = " Put the password in place of `***`." if "***" in address else ""
    local = ""
    if address.startswith("sqlite"):
        local = " This database is a file: only processes on its own machine can join."
    return (
        f"Run this where the project is installed; it takes cells nobody has taken yet.{hidden}{local}\n\n"
        f"```\n{_folded(join_command(study.name, spec, address))}\n```"
    )


def _folded(command: str, width: int = 90) -> str:
    """A command over several lines, as a shell takes it."""
    lines = [""]
    for word in command.split(" --"):
        part = word if lines == [""] else f" --{word}"
        if len(lines[-1]) + len(part) > width:
            lines.append(" ")
        lines[-1] += part
    return " \\\n".join(lines)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
