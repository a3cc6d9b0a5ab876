"""What a reader must know before believing the numbers: caveats of the method, notes of the analysis."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import filterfalse

from study import names
from study.analysis.analyse import Analysis
from study.analysis.points import OperatingPoint
from study.analysis.quality import Curve, DepthScore
from study.percent import ADVICE, looks_like_percent
from study.provenance import Provenance
from study.reporting.series import Series

MOST_PLACES = 4
_COUNTS = re.compile(r"\d+ (failed|diverged|runs collapsed|trials not finished|runs removed)")
"""Said already, place by place, by the table of what became of the trials."""


def caveats(analysis: Analysis) -> tuple[str, ...]:
    """True of this analysis as a whole."""
    found = [*_in_percent(analysis), *_chosen_on_the_scores(analysis)]
    if analysis.overconfident:
        found.append(_sentence(analysis.overconfident))
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
    if any(_chose(c.depths) for c in analysis.curves):
        compared, fixed = " and the learning rate is tuned for it", "batch size, epochs and schedule"
    else:
        compared, fixed = "", "the learning rate, batch size, epochs and schedule"
    found.append(
        f"Depth is what is compared{compared}; {fixed} are fixed, and another choice of these may move the "
        "answer."
    )
    return tuple(found)


def _chosen_on_the_scores(analysis: Analysis) -> list[str]:
    """Whom choosing and reporting on the same scores flatters: the depths that had something to choose."""
    chose = [c for c in analysis.curves if c.selected_by == "score" and _chose(c.depths)]
    full_alone = [c for c in chose if _only_full_chose(c)]
    others = [c for c in chose if not _only_full_chose(c)]
    instead = "a study launched with --selection-split chooses on held-out training data instead."
    found = []
    if others:
        depths = [d for c in others for d in c.depths if d.rates]
        whom = "every depth" if all(len(d.rates) > 1 for d in depths) else "the depths run at several"
        found.append(
            "Learning rates were chosen on the same scores that are reported, which flatters "
            f"{whom}; {instead}"
        )
    if full_alone:
        series = Series(analysis.curves)
        where = sorted({f"{series.name(c)} on {names.task_name(c.task)}" for c in full_alone})
        also = f" ({_some(where)})" if others else ""
        found.append(
            "Only the full model's learning rate was chosen, on the same scores that are reported"
            f"{also}: that flatters the full model and makes every freeze look worse beside it; {instead}"
        )
    return found


def _in_percent(analysis: Analysis) -> list[str]:
    """Scores that their metric cannot have."""
    high = [
        c for c in analysis.curves if looks_like_percent(c.metric, (s for d in c.depths for s in d.scores))
    ]
    if not high:
        return []
    metrics = ", ".join(dict.fromkeys(names.metric_name(c.metric) for c in high))
    tasks = _some(names.task_name(task) for task in names.in_order(c.task for c in high))
    return [f"Scores of {metrics} above 1 on {tasks} look like percent: {ADVICE}."]


def few_examples(analysis: Analysis, provenance: Provenance) -> tuple[str, ...]:
    """What scores of the best evaluation, and of a subset of the training data, do not show."""
    trained = [(name, spec) for name, spec in provenance.studies if not spec.recorded]
    best = [s for _, s in trained if s.recipe.score == "best" and not s.recipe.selection_split]
    known = {name for name, _ in provenance.studies}
    # A table on its own does not carry the recipe; the protocol has its default.
    tables = [c for c in analysis.curves if c.protocol == "low-resource" and c.study not in known]
    found = []
    if best:
        found.append(
            "Where the spec scores the best evaluation, a run's score is its highest on the validation set "
            "that it is reported on, which flatters every run, and noisy ones most."
        )
    elif tables:
        found.append(
            "The low-resource protocol scores each run, unless told otherwise, by its best evaluation on the "
            "validation set that it is reported on, which flatters every run, and noisy ones most."
        )
    if tables or any(size is not None for _, s in trained for size in s.train_sizes):
        found.append(
            "All seeds of a train size share one subset of the training data: intervals and spreads do not "
            "include the luck of the draw, and another subset may give another answer."
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
    series = Series(analysis.curves)
    places: dict[str, list[str]] = {}
    for curve in analysis.curves:
        for note in filterfalse(_COUNTS.match, curve.notes):
            places.setdefault(note, []).append(_place(curve, series))
    for point in analysis.points:
        place = _place(point, series)
        for note in point.notes:
            if place not in places.setdefault(note, []):
                places[note].append(place)
    lines = [_line(note, where, len(analysis.curves)) for note, where in places.items()]
    return (*lines, *_without_a_say(analysis, series))


def _without_a_say(analysis: Analysis, series: Series) -> list[str]:
    """Named with its model where another model, or another threshold's reason, says something else."""
    models = {series.of_protocol(m.model, m.protocol) for m in analysis.models}
    whose: dict[tuple[str, str], set[str]] = {}
    for m in analysis.models:
        for task, why in m.left_out.items():
            whose.setdefault((task, why), set()).add(series.of_protocol(m.model, m.protocol))
    return [
        (f"{_some(sorted(found))}: " if found != models else "")
        + f"{names.task_name(task)} has no say in a model's number: {why}"
        for (task, why), found in whose.items()
    ]


def _line(note: str, where: list[str], everywhere: int) -> str:
    if len(where) == everywhere > 1:
        return f"Everywhere: {note}"
    return f"{_some(where)}: {note}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _some(things: Iterable[str]) -> str:
    """The first few, and how many more there are."""
    found = list(things)
    more = f" and {len(found) - MOST_PLACES} more" if len(found) > MOST_PLACES else ""
    return ", ".join(found[:MOST_PLACES]) + more


def _place(part: Curve | OperatingPoint, series: Series) -> str:
    size = "" if part.train_size is None else f" ({part.train_size:,} examples)"
    return f"{series.name(part)} {names.task_name(part.task)}{size}"


def _chose(depths: Sequence[DepthScore]) -> bool:
    return any(len(d.rates) > 1 for d in depths)


def _only_full_chose(curve: Curve) -> bool:
    """The paper's way: the other depths run at the full model's rate, whatever theirs would be."""
    return curve.select == "full-model" or not _chose([d for d in curve.depths if d.frozen_layers != 0])


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
