"""The model card: what the model is, how it is used, and the study that it comes from, with its results.

The front matter carries a filled `model-index`, as the hub reads it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from objectives.data.readers import hub_parts
from objectives.locations import is_hub, is_path
from objectives.tasks.metrics import describe, display_name
from study.analysis.costs import costs
from study.cli.wording import counted, slug
from study.reporting import names
from study.reporting.content import telling
from study.reporting.text import escape, markdown

if TYPE_CHECKING:
    from objectives.contract import TrialRecord
    from study.models.choice import Choice
    from study.specs.study_spec import StudySpec
    from study.trials.sources import Reading

TEST = "test_"
LIBRARY, TRANSFORMERS = "elsa-study", "transformers"
"""What loads a folder: Transformers by itself, or this software beside a base."""


def card(
    name: str,
    spec: StudySpec,
    choice: Choice,
    record: TrialRecord,
    comparison: str,
    reading: Reading,
    *,
    tuned_only: bool = False,
) -> str:
    """`record` is of the exported weights; `comparison` sets its score beside the study's."""
    task = spec.described_task()
    parts = [
        _front_matter(name, spec, record, tuned_only=tuned_only),
        f"# {escape(f'{spec.model} on {names.task_name(spec.task)}')}",
        _what(name, spec, choice, record, comparison),
        _use(_TUNED if tuned_only else _FULL, pairs=len(task.text) == 2, multi_label=task.multi_label),
        escape(_answers(spec)),
        _numbers(spec, choice, record, reading),
        "## The study",
        _study(choice, reading),
    ]
    return "\n\n".join(parts) + "\n"


def _front_matter(name: str, spec: StudySpec, record: TrialRecord, *, tuned_only: bool) -> str:
    from huggingface_hub import EvalResult, ModelCardData

    task = spec.described_task()
    hub = is_hub(spec.data)
    parts = hub_parts(spec.data) if hub else []
    results = [
        EvalResult(
            task_type="text-classification",
            task_name="Text Classification",
            dataset_type="/".join(parts[:2]) or slug(spec.task),
            dataset_name=names.task_name(spec.task),
            dataset_config=parts[2] if len(parts) == 3 else None,
            dataset_split=_split(spec, metric),
            metric_type=describe(metric).name,
            metric_name=display_name(metric),
            metric_value=value,
        )
        for metric, value in record.metrics.items()
    ]
    base = spec.model_path if spec.model_path and not is_path(spec.model_path) else None
    data = ModelCardData(
        library_name=LIBRARY if tuned_only else TRANSFORMERS,
        pipeline_tag="text-classification",
        base_model=base,
        datasets=["/".join(parts[:2])] if hub else None,
        metrics=list(task.metrics),
        tags=["layer-freezing", *(["demo"] if spec.demo else [])],
        model_name=name,
        eval_results=results,
    )
    return f"---\n{data.to_yaml().strip()}\n---"


def _split(spec: StudySpec, metric: str) -> str:
    task = spec.described_task()
    if metric.startswith(TEST):
        return task.splits.test or "test"
    suffixed = [split for split in task.validation[1:] if metric.endswith(task.suffix(split))]
    return suffixed[0] if suffixed else task.validation[0]


def _what(name: str, spec: StudySpec, choice: Choice, record: TrialRecord, comparison: str) -> str:
    depth, layers = choice.cell.frozen_layers, spec.total_layers
    frozen = {
        -1: "its embeddings frozen",
        0: "nothing frozen",
    }.get(depth, f"its embeddings and the first {depth} of {layers} layers frozen")
    demo = (
        "**DEMO**: a tiny model of a made-up language; it is of no use for real text.\n\n"
        if spec.demo
        else ""
    )
    quick = "**QUICK**: from a first look, not a full study.\n\n" if spec.quick else ""
    return (
        demo
        + quick
        + escape(
            f"{spec.model} fine-tuned with {frozen}. It is a run of the study {name}: {choice.why}; "
            f"learning rate {names.rate(choice.cell.learning_rate)}, seed {choice.cell.seed}. "
            f"Its score is {comparison}."
        )
    )


_FULL = """from transformers import pipeline

classify = pipeline("text-classification", "this folder"{options})
classify({text}, truncation=True)"""
_TUNED = """from study.models import load_many

models = load_many(["this folder"])  # and others of the same base: their shared layers run once
models.predict({text})"""


def _use(code: str, *, pairs: bool, multi_label: bool) -> str:
    """How the folder is loaded: all of it, or only what was tuned."""
    if code is _TUNED:
        text = '[("first", "second")]' if pairs else '["some text"]'
    else:
        text = '{"text": "first", "text_pair": "second"}' if pairs else '"some text"'
    options = ", top_k=None" if multi_label else ""
    found = f"## Use\n\n```python\n{code.format(options=options, text=text)}\n```"
    more = "`elsa export --merge` makes a folder of it that Transformers loads by itself."
    return f"{found}\n\n{more}" if code is _TUNED else found


def merged(text: str, *, pairs: bool, multi_label: bool) -> str:
    """The card of a tuned-only folder as that of the whole model."""
    use = _use(_FULL, pairs=pairs, multi_label=multi_label)
    text = text.replace(f"library_name: {LIBRARY}\n", f"library_name: {TRANSFORMERS}\n", 1)
    return re.sub(
        r"^## Use\n.*?`elsa export --merge`[^\n]*", lambda _: use, text, flags=re.DOTALL | re.MULTILINE
    )


def _answers(spec: StudySpec) -> str:
    task = spec.described_task()
    cut = f"Texts were cut to {spec.recipe.max_length} tokens in training."
    if task.regression:
        return f"The score is the predicted {task.label[0]}, in the unit of the training data. {cut}"
    shown = ", ".join(task.labels[:20]) + (" …" if len(task.labels) > 20 else "")
    several = ", any number of which may hold" if task.multi_label else ""
    return f"Labels{several}: {shown}. {cut}"


def _numbers(spec: StudySpec, choice: Choice, record: TrialRecord, reading: Reading) -> str:
    """This run's scores, its depth's mean and what it costs."""
    rows = [(display_name(metric), f"{value:.4f}") for metric, value in record.metrics.items()]
    depth = choice.curve.at(choice.cell.frozen_layers)
    if depth is not None and depth.score is not None:
        spread = "" if depth.score_low is None else f" [{depth.score_low:.4f} to {depth.score_high:.4f}]"
        seeds = counted(choice.runs, "seed")
        rows.append(
            (f"mean {names.metric_name(spec.metric)} of {seeds}, 95 % interval", f"{depth.score:.4f}{spread}")
        )
        if depth.relative is not None:
            bounds = names.interval(depth.relative_low, depth.relative_high, 1)
            kept = f"{names.percent(depth.relative)} [{bounds}]"
            rows.append(("share of the full model's quality, 95 % interval", kept))
    rows += _costs(choice, record, reading)
    lines = [f"| {escape(what)} | {value} |" for what, value in rows]
    return "\n".join(["## Results", "", "| | value |", "|---|---:|", *lines])


def _costs(choice: Choice, record: TrialRecord, reading: Reading) -> list[tuple[str, str]]:
    found = []
    if record.trainable_parameters and record.total_parameters:
        share = names.percent(record.trainable_parameters / record.total_parameters)
        found.append(("parameters trained", f"{record.trainable_parameters:,} ({share})"))
    key = (choice.curve.study, choice.curve.task, choice.curve.train_size)
    for curve in costs(reading.table, choice.analysis):
        cost = curve.at(choice.cell.frozen_layers)
        if (curve.study, curve.task, curve.train_size) == key and cost is not None:
            told = {
                "seconds": "training time",
                "peak_memory_bytes": "peak memory",
                "storage_bytes": "storage per task",
            }
            found += [
                (f"{told[cost_name]}, of the full model's", names.percent(share))
                for cost_name, share in cost.relative.items()
                if cost_name in told
            ]
    return found


def _study(choice: Choice, reading: Reading) -> str:
    """The report's answer, operating points and caveats, a heading deeper than in the report."""
    # Where the database lies is of no use to whoever gets the model.
    said = telling(choice.analysis, reading.table, replace(reading.provenance, storages=()))
    kept = [section for section in said.sections if section.anchor != "export"]
    text = markdown(replace(said, sections=tuple(kept), facts=()))
    body = text.partition("\n\n")[2]
    return re.sub(r"^(#+) ", r"#\1 ", body, flags=re.MULTILINE).strip()
