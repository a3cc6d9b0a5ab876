"""The command `operating_points`: how many layers must be tuned, printed and as JSON.

It reads trial tables and studies, and prints what the analysis found; it computes nothing itself.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from objectives.contract import UsageError
from study.command import add_storage, new_parser, run

if TYPE_CHECKING:
    import pandas as pd

    from study.analysis.analyse import Analysis
    from study.analysis.points import ModelPoint, OperatingPoint

EXAMPLES = """\
  python -m study.operating_points trials.csv
  python -m study.operating_points trials.csv --select full-model --outliers paper --json points.json
  python -m study.operating_points --storage sqlite:///elsa.db
  python -m study.operating_points postgresql://user@host/studies --thresholds 0.9,0.97
"""


def analyse(table: pd.DataFrame, **options: Any) -> Analysis:
    """The analysis of a trial table; see `study.analysis.analyse.analyse` for the options."""
    from study.analysis.analyse import analyse as whole

    return whole(table, **options)


def render(analysis: Analysis) -> str:
    """The analysis as text for a terminal."""
    parts = [_header(analysis)]
    for threshold in analysis.thresholds:
        points = [p for p in analysis.points if p.threshold == threshold]
        models = [m for m in analysis.models if m.threshold == threshold]
        parts.append(f"At {threshold:.4g} of the full model's quality\n{_points_table(points)}")
        parts.append("\n".join(_model_line(model) for model in models))
    notes = _notes(analysis)
    if notes:
        parts.append("Notes\n" + "\n".join(f"  - {note}" for note in notes))
    return "\n\n".join(parts)


def _header(analysis: Analysis) -> str:
    rates = {
        "per-depth": "learning rate chosen at each depth",
        "full-model": "the full model's best learning rate at every depth",
    }[analysis.select]
    outliers = {"none": "no outliers removed", "paper": "the paper's outlier filter on the means"}
    counts = analysis.counts
    demo = "DEMO: a tiny model on generated data; the numbers say nothing about real tasks\n"
    return (
        f"{demo if analysis.demo else ''}"
        f"Operating points: the most layers frozen that keep a share of the full model's quality\n"
        f"{analysis.trials} trials ({counts.complete} complete, {counts.failed} failed, "
        f"{counts.diverged} diverged, {counts.unfinished} unfinished, {counts.removed} filtered out); "
        f"{rates}; {outliers[analysis.outliers]}; {analysis.draws} bootstrap draws"
    )


def _points_table(points: Sequence[OperatingPoint]) -> str:
    from study import names

    sizes = any(p.train_size is not None for p in points)
    pooled = {(p.model, p.task, p.train_size, p.metric) for p in points}
    studies = len(pooled) < len(points)
    head = [*(["study"] if studies else []), "model", "task", *(["train_size"] if sizes else [])]
    head += ["metric", "full", "frozen", "tuned"]
    head += ["relative", "95 % interval", "confident", "probability", "above chance", "rate", "runs"]
    rows = [head]
    for p in points:
        size = ["all" if p.train_size is None else str(p.train_size)] if sizes else []
        mark = "" if p.sustained or p.frozen_layers is None else "*"
        corrected = p.chance_corrected
        rows.append(
            [
                *([p.study or "-"] if studies else []),
                p.model,
                p.task,
                *size,
                p.metric,
                _number(p.full_score),
                names.span(p.frozen_layers, p.deepest_frozen_layers) + mark,
                f"{names.span(p.fewest_tuned_layers, p.tuned_layers)} of {p.total_layers}",
                _number(p.relative, 3),
                "-" if p.relative_low is None else f"{p.relative_low:.3f}-{p.relative_high:.3f}",
                _text(p.confident_frozen_layers),
                _probability(p),
                _text(corrected.frozen_layers if corrected else None),
                "-" if p.learning_rate is None else f"{p.learning_rate:g}",
                str(p.trials),
            ]
        )
    return _aligned(rows)


def _probability(point: OperatingPoint) -> str:
    """The likeliest answers: frozen layers and the share of draws."""
    likeliest = sorted(point.probability.items(), key=lambda item: -item[1])[:3]
    return " ".join(f"{depth}:{share:.2f}" for depth, share in likeliest if share >= 0.005) or "-"


def _model_line(model: ModelPoint) -> str:
    from study import names

    size = "" if model.train_size is None else f" at {model.train_size} training examples"
    size = f" ({model.protocol})" * (model.protocol is not None) + size
    left_out = [*model.excluded, *(task for task in model.left_out if task != model.at_most_task)]
    without = f" (without {', '.join(left_out)})" if left_out else ""
    if model.tuned_layers is None:
        return f"{model.model}{size}: no task to take one number from{without}"
    most = model.at_most_tuned_layers
    least = model.tuned_layers if model.at_least_tuned_layers is None else model.at_least_tuned_layers
    tuned = names.span(least, model.tuned_layers if most is None else most)
    open_ended = "" if most is None else f"; {model.at_most_task} may need up to {most}"
    return (
        f"{model.model}{size}: tune {tuned} of {model.total_layers} layers, "
        f"limited by {', '.join(model.limiting_tasks)}{without}{open_ended}"
    )


def _notes(analysis: Analysis) -> list[str]:
    """Each thing to know once, with the places it holds for."""
    places: dict[str, list[str]] = {}
    for curve in analysis.curves:
        place = _place(curve.model, curve.task, curve.train_size)
        edges = [f"{d.frozen_layers} ({d.rate_edge})" for d in curve.depths if d.rate_edge]
        edge = [f"best learning rate at the edge of the grid at frozen {', '.join(edges)}"] if edges else []
        for note in (*([curve.undefined] if curve.undefined else []), *curve.notes, *edge):
            places.setdefault(note, []).append(place)
    for p in analysis.points:
        for note in p.notes:
            place = _place(p.model, p.task, p.train_size)
            if place not in places.get(note, []):
                places.setdefault(note, []).append(place)
    everywhere = len(analysis.curves)
    notes = [
        note if len(where) == everywhere > 1 else f"{', '.join(where)}: {note}"
        for note, where in places.items()
    ]
    if any(not p.sustained and p.frozen_layers is not None for p in analysis.points):
        notes.append("* not sustained: some smaller freeze fails although this one passes")
    left_out = {task: why for model in analysis.models for task, why in model.left_out.items()}
    notes += [f"{task} has no say in a model's number: {why}" for task, why in left_out.items()]
    if analysis.outliers == "paper":
        notes.append("intervals and probabilities are over all runs, those the filter removed included")
    notes += _flattered(analysis)
    if analysis.overconfident:
        notes.append(analysis.overconfident)
    if analysis.skipped:
        notes.append(f"studies of other software were skipped: {', '.join(analysis.skipped)}")
    return notes


def _flattered(analysis: Analysis) -> list[str]:
    """What choosing rates by the very scores that are reported does to them."""
    several = [
        {0}
        if curve.select == "full-model" and any(len(depth.rates) > 1 for depth in curve.depths)
        else {depth.frozen_layers for depth in curve.depths if len(depth.rates) > 1}
        for curve in analysis.curves
        if curve.selected_by == "score"
    ]
    said = "learning rates were chosen and reported on the same scores, which flatters"
    full_only = "the full model's learning rate was chosen and reported on the same scores, which flatters"
    return [
        *([f"{said} every depth"] if any(depths - {0} for depths in several) else []),
        *([f"{full_only} it alone: every freeze looks worse"] if {0} in several else []),
    ]


def _place(model: str, task: str, train_size: int | None) -> str:
    return f"{model} {task}" + ("" if train_size is None else f" {train_size}")


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join("  " + line.rstrip() for line in lines)


def _number(value: float | None, digits: int = 4) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _text(value: int | None) -> str:
    return "-" if value is None else str(value)


def write_json(analysis: Analysis, path: str) -> None:
    """Written beside and renamed, so that a reader never sees half of it."""
    from study.analysis.analyse import to_json

    target = Path(path)
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        beside.write_text(json.dumps(to_json(analysis), indent=1, allow_nan=False) + "\n", encoding="utf-8")
        beside.replace(target)
    except OSError as error:
        raise UsageError(f"--json {path} cannot be written: {error.strerror}") from error


def thresholds(text: str) -> tuple[float, ...]:
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of shares such as 0.9,0.95") from None
    if not all(0 < value <= 1 for value in values):
        raise argparse.ArgumentTypeError(f"{text!r} must lie above 0 and up to 1: 0.9 is 90 %")
    return values


def add_analysis_options(parser: argparse.ArgumentParser) -> None:
    """The options every command that analyses a table shares."""
    parser.add_argument(
        "sources", nargs="*", metavar="TABLE|STORAGE|STUDY", help="CSV files, storage URLs or study names"
    )
    add_storage(parser)
    parser.add_argument(
        "--select",
        choices=("per-depth", "full-model"),
        default="per-depth",
        help="learning rate: the best at each depth, or the full model's best everywhere (the paper)",
    )
    parser.add_argument(
        "--outliers",
        choices=("none", "paper"),
        default="none",
        help="paper: leave zeros and runs at or below 0.9 of the cell's best out of the means",
    )
    parser.add_argument(
        "--thresholds", type=thresholds, default=(0.90, 0.95, 0.99), help="shares of the full model's quality"
    )
    parser.add_argument("--draws", type=int, default=10_000, help="bootstrap draws (default 10000)")
    parser.add_argument(
        "--pairing",
        choices=("auto", "paired", "independent"),
        default="auto",
        help="resample by shared seed or each run alone; auto pairs unless a seed has two scores",
    )


def load_and_analyse(arguments: argparse.Namespace) -> tuple[pd.DataFrame, Analysis]:
    """The trial table that the shared options name, and its analysis."""
    from study import trial_table

    table = trial_table.load(arguments.sources, arguments.storage)
    names = ("select", "outliers", "thresholds", "draws", "pairing")
    return table, analyse(table, **{name: getattr(arguments, name) for name in names})


def main(argv: Sequence[str] | None = None) -> int:
    parser = new_parser(
        "operating_points",
        "The fewest tuned layers that keep 90, 95 or 99 % of the full model's quality.",
        EXAMPLES,
    )
    add_analysis_options(parser)
    parser.add_argument("--json", metavar="PATH", help="write the operating points as JSON")
    arguments = parser.parse_args(argv)
    _, analysis = load_and_analyse(arguments)
    if arguments.json:
        write_json(analysis, arguments.json)
    print(render(analysis))
    return 0


if __name__ == "__main__":
    run(main)
