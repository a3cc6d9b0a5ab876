"""What the report says, in order: the answer, then the evidence for it, then how it came about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from study import names
from study.analysis import low_resource as low
from study.analysis import published
from study.analysis.analyse import Analysis
from study.analysis.costs import CurveCosts, costs
from study.provenance import Provenance
from study.reporting import figure_costs, figure_quality, figure_rates, figure_runs, making, points, tables
from study.reporting import published as beside
from study.reporting.answer import answers, facts
from study.reporting.document import Block, Bullets, Document, Section, Words
from study.reporting.failures import failures_table
from study.reporting.low_resource import low_resource_tables
from study.reporting.remarks import caveats, dropout_left_out, few_examples, notes
from study.reporting.series import Series

if TYPE_CHECKING:
    import pandas as pd

DEMO = "DEMO: a tiny model on a made-up language; the numbers say nothing about real tasks."
RECORDED = "RECORDED: the cells were answered from a trial table; nothing was trained."


def document(table: pd.DataFrame, analysis: Analysis, provenance: Provenance | None = None) -> Document:
    found = costs(table, analysis)
    provenance = provenance or Provenance()
    demo = analysis.demo or any(spec.demo for _, spec in provenance.studies)
    recorded = is_recorded(table) or any(spec.recorded for _, spec in provenance.studies)
    sections = (
        _quality(analysis),
        _points(analysis),
        _claims(analysis),
        _rates(analysis),
        _costs(analysis, found),
        _low_resource(analysis),
        _learning(analysis, provenance),
        _trust(table, analysis, provenance),
        _making(analysis, provenance),
    )
    return Document(
        title=_title(analysis),
        badges=(*(["demo"] if demo else []), *(["recorded"] if recorded else [])),
        warnings=(*([DEMO] if demo else []), *([RECORDED] if recorded else []), *_unfinished(analysis)),
        answers=answers(analysis, found),
        facts=facts(analysis, found),
        sections=tuple(section for section in sections if section is not None),
    )


def _unfinished(analysis: Analysis) -> list[str]:
    left = analysis.counts.unfinished
    return [f"NOT FINISHED: {left:,} trials are waiting or running; the answer may change."] if left else []


def is_recorded(table: pd.DataFrame) -> bool:
    if "recorded" not in table:
        return False
    return bool(table["recorded"].fillna("").astype(str).str.lower().isin(("true", "1", "1.0")).any())


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
        blocks.append(Bullets(tuple(told)))
    blocks.append(tables.quality_table(analysis))
    return Section("quality", "Quality against depth", tuple(blocks))


def _points(analysis: Analysis) -> Section:
    models = points.models_table(analysis)
    blocks: list[Block] = [*([models] if models else []), *points.points_tables(analysis)]
    like_the_paper = beside.paper_tables(analysis)
    if like_the_paper:
        blocks += [Words(beside.PAPER_TABLES), *like_the_paper]
    gains = beside.gains_table(analysis)
    return Section("operating-points", "Operating points", (*blocks, *([gains] if gains else [])))


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
    return Section("cost", "Quality against cost", (*blocks, *([Bullets(extra)] if extra else [])))


def _low_resource(analysis: Analysis) -> Section | None:
    curves = low.sized(analysis.curves)
    if not curves:
        return None
    series = Series(analysis.curves)
    blocks: list[Block] = [*figure_runs.low_resource(curves, series)]
    blocks += low_resource_tables(low.summaries(curves), series)
    return Section("low-resource", "Few training examples", tuple(blocks))


def _learning(analysis: Analysis, provenance: Provenance) -> Section:
    chart = figure_runs.learning_curves(analysis.curves, provenance.curves)
    missing = Words(
        "No learning curves here: trial tables do not carry them, and recorded cells have none. "
        "A report made from the database of a study that trained shows them."
    )
    return Section("learning-curves", "Learning curves", (chart or missing,))


def _trust(table: pd.DataFrame, analysis: Analysis, provenance: Provenance) -> Section:
    of_method = (*few_examples(analysis, provenance), *dropout_left_out(provenance))
    blocks: list[Block] = [Bullets((*caveats(analysis), *of_method)), failures_table(table, analysis)]
    found = notes(analysis)
    if found:
        blocks += [Words("What the analysis noted on the way:"), Bullets(found)]
    return Section("trust", "Failures and caveats", tuple(blocks))


def _making(analysis: Analysis, provenance: Provenance) -> Section:
    rates = {
        "per-depth": "chosen at each depth by the best mean",
        "full-model": "the full model's best, at every depth (as in the paper)",
    }[analysis.select]
    settings = [
        f"Learning rate: {rates}.",
        f"Outlier filter: {'none' if analysis.outliers == 'none' else 'the paper’s'}.",
        f"{analysis.draws:,} bootstrap draws; pairing by seed: {analysis.pairing}.",
    ]
    if provenance.storages:
        settings.append(f"Read from {', '.join(provenance.storages)}.")
    if analysis.skipped:
        settings.append(f"Studies of other software were skipped: {', '.join(analysis.skipped)}.")
    blocks: list[Block] = [Bullets(tuple(settings))]
    studies = making.studies_table(provenance)
    if studies is None:
        blocks.append(Words("Made from trial tables alone: they do not carry specs, versions or machines."))
    else:
        blocks += [studies, *making.machines_tables(provenance)]
    return Section("making", "How this was made", tuple(blocks))
