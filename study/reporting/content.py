"""What a document says, in order: the answer, then the evidence for it, then how it was made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from study import protocols
from study.analysis import published
from study.analysis import train_sizes as low
from study.analysis.analyse import Analysis, analyse
from study.analysis.costs import CurveCosts, costs
from study.analysis.tested_points import tested
from study.cli.command import default_display
from study.cli.flags import command_line
from study.cli.wording import counted, slug
from study.reporting import figure_costs, figure_quality, figure_rates, figure_runs, making, names, tables
from study.reporting import paper_tables as beside
from study.reporting import point_tables as points
from study.reporting.answer import answers, facts
from study.reporting.answer_tables import settle_table, tested_table
from study.reporting.document import Block, Bullets, Chart, Code, Document, Remark, Section, Table, Words
from study.reporting.remarks import caveats, notes
from study.reporting.series import Series
from study.specs.study_spec import MARKS
from study.trials.provenance import Provenance

if TYPE_CHECKING:
    import pandas as pd

    from study.trials.sources import Reading

SAME_ANSWER = (
    "Terminal, report and dashboard note show this one analysis; other --select, --outliers, --thresholds or "
    "--pairing may give another answer."
)
_OUTLIERS = {
    "none": "Quality is the mean of the runs that learned; collapsed ones are counted apart.",
    "paper": "Quality is the mean of the runs that the paper's filter keeps; so are intervals and "
    "probabilities.",
}


def analyse_studies(reading: Reading, **options: Any) -> Analysis:
    """As searches chose their cells, where all studies are searches: at their thresholds and kind of
    rates."""
    studies = dict(reading.provenance.studies)
    asked = [(protocols.get(spec.protocol), spec) for spec in studies.values()]
    sought = [protocol.thresholds(spec) for protocol, spec in asked]
    if sought and None not in sought and _only_of(reading.table, set(studies)):
        options.setdefault("thresholds", sorted({share for shares in sought for share in shares or ()}))
        selects = {protocol.select(spec) for protocol, spec in asked}
        if len(selects) == 1 and (select := selects.pop()):
            options.setdefault("select", select)
    return analyse(reading.table, predictions=reading.predictions, **options)


def _only_of(table: pd.DataFrame, studies: set[str]) -> bool:
    return "study" in table and bool(table["study"].isin(studies).all())


def telling(
    analysis: Analysis, table: pd.DataFrame | None = None, provenance: Provenance | None = None
) -> Document:
    """What every rendering says: the answer, the operating points, the caveats, the settings."""
    provenance = provenance or Provenance()
    found = () if table is None else costs(table, analysis)
    marks = _marks(analysis, table, provenance)
    return Document(
        title=_title(analysis),
        badges=tuple(marks),
        warnings=(*(f"{mark.upper()}: {MARKS[mark]}" for mark in marks), *_unfinished(analysis)),
        answers=answers(analysis, found),
        facts=facts(analysis, found),
        sections=(
            Section("operating-points", "Operating points", _points(analysis, table), brief=True),
            _trust(table, analysis, provenance),
            Section("making", "How this was made", (_settings(analysis, provenance),)),
            *_export(analysis, provenance),
        ),
    )


def document(table: pd.DataFrame, analysis: Analysis, provenance: Provenance | None = None) -> Document:
    """The whole report: the same answer and tables, with the evidence around them."""
    provenance = provenance or Provenance()
    short = telling(analysis, table, provenance)
    answer, trust, made, *export = short.sections
    sections = (
        _quality(analysis),
        replace(answer, blocks=(*answer.blocks, *_beside_the_paper(analysis))),
        _claims(analysis),
        _rates(analysis),
        _costs(analysis, costs(table, analysis)),
        _low_resource(analysis),
        _learning(analysis, provenance),
        trust,
        replace(made, blocks=(*made.blocks, *_specs(provenance))),
        *export,
    )
    return replace(short, sections=_with_files_apart(section for section in sections if section is not None))


def _with_files_apart(sections: Iterable[Section]) -> tuple[Section, ...]:
    """Two models may be called `a/b` and `a-b`: no table or chart may be written over another."""
    taken: set[tuple[type, str]] = set()

    def apart(block: Block) -> Block:
        if not isinstance(block, Table | Chart):
            return block
        name, number = block.name, 1
        while (type(block), slug(name).lower()) in taken:
            number += 1
            name = f"{block.name}_{number}"
        taken.add((type(block), slug(name).lower()))
        return replace(block, name=name)

    return tuple(replace(section, blocks=tuple(map(apart, section.blocks))) for section in sections)


def _unfinished(analysis: Analysis) -> list[str]:
    left = counted(analysis.counts.unfinished, "trial")
    told = f"NOT FINISHED: {left} waiting or running; the answer may change."
    return [told] if analysis.counts.unfinished else []


def _marks(analysis: Analysis, table: pd.DataFrame | None, provenance: Provenance) -> list[str]:
    """By the studies' specs, or by the columns of a table."""
    found = {mark for _, spec in provenance.studies for mark in spec.marks}
    found |= {"demo"} if analysis.demo else set()
    return [mark for mark in MARKS if mark in found or is_marked(table, mark)]


def is_marked(table: pd.DataFrame | None, mark: str) -> bool:
    if table is None or mark not in table:
        return False
    return bool(table[mark].fillna("").astype(str).str.lower().isin(("true", "1", "1.0")).any())


def _title(analysis: Analysis) -> str:
    models = list(dict.fromkeys(c.model for c in analysis.curves))
    tasks = names.in_order(c.task for c in analysis.curves)
    left = models[0] if len(models) == 1 else f"{len(models)} models"
    right = names.task_name(tasks[0]) if len(tasks) == 1 else f"{len(tasks)} tasks"
    series = Series(analysis.curves)
    return f"{left} on {right}" + (f", {series.studies} studies" if series.shown else "")


def _quality(analysis: Analysis) -> Section:
    blocks: list[Block] = []
    undefined = [c for c in analysis.curves if c.undefined is not None]
    if len(undefined) < len(analysis.curves):
        by_model = figure_quality.by_model(analysis, analysis.curves)
        blocks.append(figure_quality.by_task(analysis, analysis.curves))
        blocks += [by_model] if by_model else []
    if undefined:
        series = Series(analysis.curves)
        told = (f"{series.name(c)} on {names.task_name(c.task)}: {c.undefined}" for c in undefined)
        blocks.append(Bullets(tuple(map(Remark, told))))
    blocks.append(tables.quality_table(analysis))
    return Section("quality", "Quality against depth", tuple(blocks))


def _points(analysis: Analysis, table: pd.DataFrame | None) -> tuple[Block, ...]:
    models, settling = points.models_table(analysis), settle_table(analysis)
    tests = None if table is None else tested_table(tested(table, analysis), Series(analysis.curves))
    return (
        *([models] if models else []),
        *points.points_tables(analysis),
        *([settling] if settling else []),
        *([tests] if tests else []),
    )


def _export(analysis: Analysis, provenance: Provenance) -> list[Section]:
    """How to get a model of the study; nothing where nothing was trained."""
    trained = [name for name, spec in provenance.studies if not spec.recorded]
    if not trained:
        return []
    words = Words("This writes the fine-tuned model, with a model card, to a folder that Transformers loads:")
    elsewhere = [place for place in provenance.storages if place != default_display()]
    where = ["--storage", elsewhere[0]] if elsewhere else []
    commands = [
        command_line(["elsa", "export", name, *_exported(analysis, name), "--out", slug(name), *where])
        for name in trained
    ]
    return [Section("export", "The model", (words, Code("\n".join(commands))), brief=True)]


def _exported(analysis: Analysis, study: str) -> list[str]:
    """The operating point at the lowest threshold that has one, else the full model."""
    shares = [p.threshold for p in analysis.points if p.study == study and p.frozen_layers is not None]
    return ["--threshold", f"{min(shares):g}"] if shares else ["--frozen-layers", "0"]


def _beside_the_paper(analysis: Analysis) -> list[Block]:
    tables = beside.paper_tables(analysis)
    gains = beside.gains_table(analysis)
    return [*([Words(beside.PAPER_TABLES)] if tables else []), *tables, *([gains] if gains else [])]


def _claims(analysis: Analysis) -> Section | None:
    """Only where a model is the paper's, and real."""
    real = [c for c in analysis.curves if not c.demo and c.train_size is None]
    known = any(published.model_key(c.model) for c in real)
    return Section("claims", "The paper's claims", (beside.claims_table(analysis),)) if known else None


def _rates(analysis: Analysis) -> Section:
    charts = [figure_rates.chosen_rates(analysis.curves), figure_rates.depth_by_rate(analysis.curves)]
    shown = [chart for chart in charts if chart is not None]
    alone = Words("Every depth was run at one learning rate only: there was nothing to choose from.")
    return Section("learning-rates", "Learning rates", tuple(shown) or (alone,))


def _costs(analysis: Analysis, found: tuple[CurveCosts, ...]) -> Section:
    charts = figure_costs.charts(analysis.curves, found)
    table = tables.costs_table(found, Series(analysis.curves))
    blocks: list[Block] = [*charts, *([table] if table else [])]
    kinds = {c.parameters for c in found}
    if "counted" in kinds:
        blocks.insert(0, Words("Parameters are counted from the models' published configurations."))
    if not any(d.seconds is not None for c in found for d in c.depths):
        blocks.insert(0, Words("The trials recorded no training time and no memory."))
    extra = tuple(dict.fromkeys(note for c in found for note in c.notes))
    return Section(
        "cost", "Quality against cost", (*blocks, *([Bullets(tuple(map(Remark, extra)))] if extra else []))
    )


def _low_resource(analysis: Analysis) -> Section | None:
    curves = low.sized(analysis.curves)
    if not curves:
        return None
    series = Series(analysis.curves)
    blocks: list[Block] = [*figure_runs.low_resource(curves, series)]
    blocks += tables.low_resource_tables(low.summaries(curves), series)
    return Section("low-resource", "Few training examples", tuple(blocks))


def _learning(analysis: Analysis, provenance: Provenance) -> Section:
    chart = figure_runs.learning_curves(analysis.curves, provenance.curves)
    if any(not spec.recorded for _, spec in provenance.studies):
        missing = "Every run was evaluated once, at its end: there is no learning curve to draw."
    elif provenance.studies:
        missing = "Recorded trials have no learning curves."
    else:
        missing = (
            "Trial tables do not carry learning curves; a report made from a study's database shows them."
        )
    return Section("learning-curves", "Learning curves", (chart or Words(missing),))


def _trust(table: pd.DataFrame | None, analysis: Analysis, provenance: Provenance) -> Section:
    counts = analysis.counts
    states = (
        f"{counted(analysis.trials, 'trial')}: {counts.complete:,} complete, {counts.failed:,} failed, "
        f"{counts.collapsed:,} collapsed, {counts.diverged:,} diverged, {counts.unfinished:,} unfinished, "
        f"{counts.removed:,} filtered out."
    )
    blocks: list[Block] = [Bullets(caveats(analysis, provenance)), Words(states)]
    blocks.append(tables.failures_table(table, analysis))
    found = notes(analysis)
    if found:
        blocks += [Words("Notes of the analysis:"), Bullets(found)]
    return Section("trust", "Caveats and failures", tuple(blocks))


def _settings(analysis: Analysis, provenance: Provenance) -> Bullets:
    rates = {
        "per-depth": "chosen at each depth by the best mean",
        "full-model": "the full model's best, at every depth (as in the paper)",
    }[analysis.select]
    settings = [
        f"Learning rate: {rates}.",
        _OUTLIERS[analysis.outliers],
        f"{analysis.draws:,} draws of the depths' quality; pairing by seed: {analysis.pairing}.",
        SAME_ANSWER,
    ]
    named = dict.fromkeys(c.protocol or "" for c in analysis.curves)
    settings += [p.remark for name in named if (p := protocols.known().get(name)) and p.remark]
    if provenance.storages:
        settings.append(f"Read from {', '.join(provenance.storages)}.")
    if analysis.skipped:
        settings.append(f"Studies of other software were skipped: {', '.join(analysis.skipped)}.")
    return Bullets(tuple(map(Remark, settings)))


def _specs(provenance: Provenance) -> list[Block]:
    studies = making.studies_table(provenance)
    if studies is None:
        return [Words("Made from trial tables alone: they do not carry specs, versions or machines.")]
    return [studies, *making.machines_tables(provenance)]
