"""The report's tables of how it came about: specs, machines and versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from study import names
from study.provenance import Provenance
from study.reporting.document import Column, Row, Table, plain


def studies_table(provenance: Provenance) -> Table | None:
    """Each study's spec, a row per study, with the recipe's settings."""
    if not provenance.studies:
        return None
    columns = (
        Column("study", "study", number=False),
        Column("task", "task", number=False),
        Column("model", "model", number=False),
        Column("protocol", "protocol", number=False),
        Column("frozen_layers", "frozen layers", number=False),
        Column("learning_rates", "learning rates", number=False),
        Column("seeds", "seeds", number=False),
        Column("train_sizes", "train sizes", number=False),
        Column("recipe", "recipe", number=False),
        Column("fingerprint", "fingerprint", number=False),
        Column("model_fingerprint", "model fingerprint", number=False),
        Column("data", "data", number=False),
        Column("data_fingerprint", "data fingerprint", number=False),
    )
    rows = []
    for name, spec in provenance.studies:
        recipe = ", ".join(f"{key.replace('_', ' ')} {plain(v)}" for key, v in asdict(spec.recipe).items())
        rows.append(
            Row(
                (
                    name,
                    spec.task,
                    spec.model,
                    spec.protocol
                    + (" (demo)" if spec.demo else "")
                    + (" (recorded)" if spec.recorded else ""),
                    ranges(spec.frozen_layers),
                    ", ".join(names.rate(r) for r in spec.learning_rates),
                    ranges(spec.seeds),
                    ", ".join(names.size_name(s) for s in spec.train_sizes),
                    recipe,
                    spec.fingerprint(),
                    spec.model_fingerprint,
                    spec.data,
                    spec.data_fingerprint,
                )
            )
        )
    return Table(
        name="studies",
        title="Specs",
        columns=columns,
        rows=tuple(rows),
        hidden=frozenset({"model_fingerprint", "data", "data_fingerprint"}),
        note="A fingerprint is of everything that makes trials comparable.",
    )


def machines_tables(provenance: Provenance) -> list[Table]:
    """What the trials ran on, and how many of them: hosts and devices, packages and versions."""
    found = {("host", "device"): provenance.machines, ("package", "version"): provenance.versions}
    return [
        Table(
            name=title.lower(),
            title=title,
            columns=(
                *(Column(name, name, number=False) for name in labels),
                Column("trials", "complete trials"),
            ),
            rows=tuple(Row(row) for row in rows),
        )
        for title, (labels, rows) in zip(("Machines", "Versions"), found.items(), strict=True)
        if rows
    ]


def ranges(numbers: Sequence[int]) -> str:
    """`0, 6-12`, as the command line takes it."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(f"{p[0]}-{p[-1]}" if len(p) > 2 else ", ".join(map(str, p)) for p in parts)
