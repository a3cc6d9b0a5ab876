"""What a reader must know before believing the numbers: caveats of the method, notes of the analysis."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import filterfalse

from study import protocols
from study.analysis.analyse import Analysis
from study.analysis.points import OperatingPoint
from study.analysis.quality import Curve, DepthScore
from study.cli.wording import counted
from study.reporting import names
from study.reporting.answer import majority_keeps
from study.reporting.document import Remark
from study.reporting.series import Series
from study.trials.percent import ADVICE, looks_like_percent
from study.trials.provenance import Provenance

HELD_OUT = "a study launched with --selection-split chooses on held-out training data instead"
_COUNTS = re.compile(r"\d+ (failed|diverged|runs collapsed|trials not finished|runs removed)")
"""Notes that the table of trials by state has already."""


def caveats(analysis: Analysis, provenance: Provenance) -> tuple[Remark, ...]:
    """True of this analysis as a whole."""
    found = [*_data(provenance), *_in_percent(analysis), *_chosen_on_the_scores(analysis)]
    if any(c.selected_by == "selection score" for c in analysis.curves):
        found.append(Remark("Learning rates were chosen on a held-out share of the training data."))
    if analysis.outliers == "paper":
        removed = counted(analysis.counts.removed, "run")
        found.append(
            Remark(
                f"The paper's outlier filter took {removed} out; means, intervals and probabilities are "
                "of the "
                "others, and say nothing of how often a run fails."
            )
        )
    found += [*_edges(analysis), *_chance_traps(analysis), *_runs(analysis), *_compared(analysis)]
    return (*found, *_few_examples(analysis, provenance), *_dropout_left_out(provenance))


def _data(provenance: Provenance) -> list[Remark]:
    """What was noted of the studies' data when they were planned."""
    whose: dict[str, list[str]] = {}
    for _, spec in provenance.studies:
        for remark in spec.remarks:
            whose.setdefault(remark, []).append(names.task_name(spec.task))
    several = len({spec.task for _, spec in provenance.studies}) > 1
    return [Remark(remark, tuple(dict.fromkeys(tasks)) if several else ()) for remark, tasks in whose.items()]


def _runs(analysis: Analysis) -> list[Remark]:
    runs = [len(d.scores) for c in analysis.curves for d in c.depths if d.scores]
    if not runs:
        return []
    low, high = min(runs), max(runs)
    span = counted(high, "run") if low == high else f"{low} to {high} runs"
    with_examples = [c for c in analysis.curves if c.test_examples is not None]
    if len(with_examples) == len(analysis.curves):
        over = "intervals include variation over seeds and validation examples, not over other data"
    elif with_examples:
        over = (
            "intervals include variation over seeds, and over validation examples where predictions are "
            "stored"
        )
    else:
        over = (
            "all intervals are over seeds only: to include the noise of the validation examples, every "
            "trial's predictions would have to be stored here"
        )
    return [Remark(f"Each mean is over {span}; {over}.")]


def _compared(analysis: Analysis) -> list[Remark]:
    if any(_chose(c.depths) for c in analysis.curves):
        compared, fixed = " and the learning rate is tuned for it", "batch size, epochs and schedule"
    else:
        compared, fixed = "", "the learning rate, batch size, epochs and schedule"
    return [
        Remark(
            f"Depth is what is compared{compared}; {fixed} are fixed, and another choice of these may move "
            "the answer."
        )
    ]


def _chosen_on_the_scores(analysis: Analysis) -> list[Remark]:
    """Whom choosing and reporting on the same scores flatters: the depths that had something to choose."""
    chose = [c for c in analysis.curves if c.selected_by == "score" and _chose(c.depths)]
    # Where the freezes had one rate, the full model is compared at that one: whether it is its best or not.
    full_alone = [c for c in chose if _only_full_chose(c) and _at_its_best(c)]
    others = [c for c in chose if not _only_full_chose(c) and c.select == "per-depth"]
    everywhere = [c for c in chose if not _only_full_chose(c) and c.select == "full-model"]
    found = []
    if everywhere:
        found.append(
            Remark(
                "The full model's learning rate was chosen on the same scores that are reported, and "
                "used at every "
                f"depth: that flatters the full model, and freezes may do better at other rates; {HELD_OUT}."
            )
        )
    if others:
        depths = [d for c in others for d in c.depths if d.rates]
        whom = "every depth" if all(len(d.rates) > 1 for d in depths) else "the depths run at several"
        found.append(
            Remark(
                "Learning rates were chosen on the same scores that are reported, which flatters "
                f"{whom}; {HELD_OUT}."
            )
        )
    if full_alone:
        series = Series(analysis.curves)
        where = sorted({_place(c, series) for c in full_alone}) if others else []
        found.append(
            Remark(
                "Only the full model was run at several learning rates, and the best was chosen on the "
                "same scores "
                f"that are reported: that flatters the full model beside every freeze; {HELD_OUT}.",
                tuple(where),
            )
        )
    return found


def _at_its_best(curve: Curve) -> bool:
    full = curve.at(0)
    if full is None or not full.rates:
        return False
    return max(full.rates, key=lambda rate: rate.choice).learning_rate == full.learning_rate


def _in_percent(analysis: Analysis) -> list[Remark]:
    """Scores that their metric cannot have."""
    high = [
        c for c in analysis.curves if looks_like_percent(c.metric, (s for d in c.depths for s in d.scores))
    ]
    if not high:
        return []
    metrics = ", ".join(dict.fromkeys(names.metric_name(c.metric) for c in high))
    tasks = ", ".join(names.task_name(task) for task in names.in_order(c.task for c in high))
    return [Remark(f"Scores of {metrics} above 1 on {tasks} look like percent: {ADVICE}.")]


def _edges(analysis: Analysis) -> list[Remark]:
    """Best learning rates at the edge of those tried, with the depths where that is so."""
    depths = sum(1 for c in analysis.curves for d in c.depths if d.learning_rate is not None)
    series = Series(analysis.curves)
    places, edges = [], 0
    for curve in analysis.curves:
        at = {
            edge: [d.frozen_layers for d in curve.depths if d.rate_edge == edge]
            for edge in ("lowest", "highest")
        }
        told = [f"{edge} at {', '.join(map(str, found))}" for edge, found in at.items() if found]
        edges += sum(map(len, at.values()))
        if told:
            places.append(f"{_place(curve, series)} ({', '.join(told)} frozen)")
    if not edges:
        return []
    return [
        Remark(
            f"the best learning rate is the lowest or highest tried, at {edges} of {depths} depths: a better "
            "one may lie beyond.",
            tuple(places),
        )
    ]


def _chance_traps(analysis: Analysis) -> list[Remark]:
    """Of several curves; of a single one the answer says it."""
    threshold = min(analysis.thresholds)
    kept = {c.task: majority_keeps(c, threshold) for c in analysis.curves if not c.undefined}
    shares = {task: share for task, share in kept.items() if share}
    if not shares or len(analysis.curves) == 1:
        return []
    tasks = ", ".join(f"{names.task_name(t)} ({names.percent(shares[t], 0)})" for t in names.in_order(shares))
    return [
        Remark(
            f"Answering the majority class alone keeps much of the full score on {tasks}: read the column "
            "“frozen, "
            "above chance” there."
        )
    ]


def _few_examples(analysis: Analysis, provenance: Provenance) -> list[Remark]:
    """What scores of the best evaluation, and of a subset of the training data, do not show."""
    trained = [spec for _, spec in provenance.studies if not spec.recorded]
    best = [s for s in trained if s.recipe.score == "best" and not s.recipe.selection_split]
    known = {name for name, _ in provenance.studies}
    # A table on its own does not carry the recipe; the protocol has its default.
    named = dict.fromkeys(c.protocol or "" for c in analysis.curves if c.study not in known)
    tables = [p.table_caveat for name in named if (p := protocols.known().get(name)) and p.table_caveat]
    found = []
    if best:
        found.append(
            "Where the spec scores the best evaluation, a run's score is its highest on the validation set "
            "that it is reported on, which biases scores upwards, most for noisy runs."
        )
    else:
        found += tables
    if tables or any(size is not None for s in trained for size in s.train_sizes):
        found.append(
            "All seeds of a train size share one subset of the training data: intervals and spreads do not "
            "include the variation of that draw, and another subset may give another answer."
        )
    return [Remark(text) for text in found]


def _dropout_left_out(provenance: Provenance) -> list[Remark]:
    """What a cached prefix means for whoever fine-tunes in another way."""
    trained = [spec for _, spec in provenance.studies if not spec.recorded]
    if not any(spec.recipe.prefix == "cached" and max(spec.frozen_layers) >= 1 for spec in trained):
        return []
    return [
        Remark(
            "With --prefix cached frozen layers ran without dropout. A fine-tuning that keeps dropout on in "
            "its frozen layers may score lower than this: put them into evaluation mode there, or measure it "
            "with --prefix live."
        )
    ]


def notes(analysis: Analysis) -> tuple[Remark, ...]:
    """What the analysis noted, each once, with the places it holds for."""
    series = Series(analysis.curves)
    places: dict[str, list[str]] = {}
    for curve in analysis.curves:
        own = [curve.undefined] if curve.undefined else []
        for note in (*own, *filterfalse(_COUNTS.match, curve.notes)):
            places.setdefault(note, []).append(_place(curve, series))
    for point in analysis.points:
        place = _place(point, series)
        for note in point.notes:
            if place not in places.setdefault(note, []):
                places[note].append(place)
    everywhere = len(analysis.curves)
    found = [
        Remark(note, ("everywhere",) if len(where) == everywhere > 1 else tuple(where))
        for note, where in places.items()
    ]
    return (*found, *_not_included(analysis, series))


def _not_included(analysis: Analysis, series: Series) -> list[Remark]:
    """Named with its model where another model, or another threshold's reason, says something else."""
    models = {series.of_protocol(m.model, m.protocol) for m in analysis.models}
    whose: dict[tuple[str, str], set[str]] = {}
    for m in analysis.models:
        for task, why in m.left_out.items():
            whose.setdefault((task, why), set()).add(series.of_protocol(m.model, m.protocol))
    return [
        Remark(
            f"{names.task_name(task)} is not included in the per-model result ({why})",
            tuple(sorted(found)) if found != models else (),
        )
        for (task, why), found in whose.items()
    ]


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _place(part: Curve | OperatingPoint, series: Series) -> str:
    size = "" if part.train_size is None else f" ({part.train_size:,} examples)"
    return f"{series.name(part)} {names.task_name(part.task)}{size}"


def _chose(depths: Sequence[DepthScore]) -> bool:
    return any(len(d.rates) > 1 for d in depths)


def _only_full_chose(curve: Curve) -> bool:
    """The paper's way: the other depths were run at one rate, whatever theirs would be."""
    return not _chose([d for d in curve.depths if d.frozen_layers != 0])
