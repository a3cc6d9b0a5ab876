"""What a reader must know before believing the numbers: caveats of the method, notes of the analysis."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import filterfalse

from study import names
from study.analysis.analyse import Analysis
from study.analysis.quality import DepthScore
from study.provenance import Provenance

MOST_PLACES = 4
_COUNTS = re.compile(r"\d+ (failed|diverged|runs collapsed|trials not finished|runs removed)")
"""Said already, place by place, by the table of what became of the trials."""


def caveats(analysis: Analysis) -> tuple[str, ...]:
    """True of this analysis as a whole."""
    found = []
    by_score = [c for c in analysis.curves if c.selected_by == "score" and _chose(c.depths)]
    if by_score:
        found.append(
            "Learning rates were chosen on the same scores that are reported, which flatters every depth; "
            "a study launched with --selection-split chooses on held-out training data instead."
        )
    if any(c.selected_by == "selection score" for c in analysis.curves):
        found.append("Learning rates were chosen on a held-out share of the training data.")
    if analysis.outliers == "paper":
        found.append(
            f"The paper's outlier filter took {analysis.counts.removed} runs out of the means; intervals and "
            "probabilities are over all runs, those included."
        )
    edges = sum(1 for c in analysis.curves for d in c.depths if d.rate_edge)
    depths = sum(1 for c in analysis.curves for d in c.depths if d.learning_rate is not None)
    if edges:
        found.append(
            f"At {edges} of {depths} depths the best learning rate is the lowest or highest tried there: "
            "the optimum may lie beyond."
        )
    trap = _chance_traps(analysis)
    if trap:
        found.append(
            f"On {', '.join(trap)} answering the majority class alone already keeps "
            f"{names.percent_short(min(analysis.thresholds))} of the full score: "
            "read the column “frozen, above chance” there."
        )
    runs = [len(d.scores) for c in analysis.curves for d in c.depths if d.scores]
    if runs:
        span = f"{min(runs)}" if min(runs) == max(runs) else f"{min(runs)} to {max(runs)}"
        found.append(f"Behind each mean are {span} runs; all intervals are over seeds, not over data sets.")
    found.append(
        "Depth is what is compared and the learning rate is tuned for it; batch size, epochs and schedule "
        "are fixed, and another choice of these may move the answer."
    )
    return tuple(found)


def dropout_left_out(provenance: Provenance) -> tuple[str, ...]:
    """What a cached prefix means for whoever fine-tunes in another way."""
    trained = [spec for _, spec in provenance.studies if not spec.recorded]
    if not any(spec.recipe.prefix == "cached" and max(spec.frozen_layers) >= 1 for spec in trained):
        return ()
    return (
        "With --prefix cached frozen layers ran without dropout. A fine-tuning that keeps dropout on in its "
        "frozen layers may score lower than this: put them into evaluation mode there, or measure it with "
        "--prefix live.",
    )


def notes(analysis: Analysis) -> tuple[str, ...]:
    """What the analysis noted, each once, with the places it holds for."""
    places: dict[str, list[str]] = {}
    for curve in analysis.curves:
        for note in filterfalse(_COUNTS.match, curve.notes):
            places.setdefault(note, []).append(_place(curve.model, curve.task, curve.train_size))
    for point in analysis.points:
        place = _place(point.model, point.task, point.train_size)
        for note in point.notes:
            if place not in places.setdefault(note, []):
                places[note].append(place)
    lines = [_line(note, where, len(analysis.curves)) for note, where in places.items()]
    left_out = {task: why for model in analysis.models for task, why in model.left_out.items()}
    lines += [
        f"{names.task_name(task)} has no say in a model's number: {why}" for task, why in left_out.items()
    ]
    return tuple(lines)


def _line(note: str, where: list[str], everywhere: int) -> str:
    if len(where) == everywhere > 1:
        return f"Everywhere: {note}"
    shown = ", ".join(where[:MOST_PLACES])
    more = f" and {len(where) - MOST_PLACES} more" if len(where) > MOST_PLACES else ""
    return f"{shown}{more}: {note}"


def _place(model: str, task: str, train_size: int | None) -> str:
    return f"{model} {names.task_name(task)}" + ("" if train_size is None else f" ({train_size:,} examples)")


def _chose(depths: Sequence[DepthScore]) -> bool:
    return any(len(d.rates) > 1 for d in depths)


def _chance_traps(analysis: Analysis) -> list[str]:
    threshold = min(analysis.thresholds)
    return [
        names.task_name(task)
        for task in names.in_order(c.task for c in analysis.curves)
        if any(
            c.task == task and c.chance and c.full_score and c.chance >= threshold * c.full_score
            for c in analysis.curves
        )
    ]
