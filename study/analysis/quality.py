"""Quality against depth for one group: the chosen learning rates, the scores, and their uncertainty.

Pure functions from runs to scores; where a ratio is undefined it is None and a note says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from study.analysis.bootstrap import Resampler
from study.analysis.chance import ASSUMED
from study.analysis.intervals import lower_bound, mean_interval
from study.analysis.runs import Counts, DepthRuns, Group, RateRuns, total, tuned_layers
from study.analysis.selection import Draws, Select, choose, draw

Pairing = Literal["auto", "paired", "independent"]
_MOST_UNDEFINED = 0.05
"""Of the draws may have a full score of zero or less before a ratio to it is no answer."""


@dataclass(frozen=True, kw_only=True)
class RateScore:
    """One square of the depth x rate heat map."""

    learning_rate: float
    score: float
    """Mean of the runs that the outlier filter kept."""
    choice: float
    """Mean that the rate was chosen by: selection score, learning-rate search, or the score itself."""
    runs: int
    removed: int


@dataclass(frozen=True, kw_only=True)
class DepthScore:
    """Quality at one depth, at the chosen learning rate. None is unknown or undefined, never zero."""

    frozen_layers: int
    tuned_layers: int
    learning_rate: float | None
    seeds: tuple[int, ...]
    scores: tuple[float, ...]
    """The runs behind `score`, in the order of `seeds`."""
    score: float | None
    std: float | None
    """Sample standard deviation; None with one run."""
    score_low: float | None
    """Student's 95 % interval over all runs at the chosen rate; None with one run."""
    score_high: float | None
    relative: float | None
    relative_low: float | None
    """Fieller's 95 % interval, likewise; None also where it has no bounds."""
    relative_high: float | None
    chance_corrected: float | None
    """(score - chance) / (full - chance)."""
    rates: tuple[RateScore, ...]
    rate_edge: Literal["lowest", "highest"] | None
    """The chosen rate is the lowest or highest of those tried here: the optimum may lie beyond."""
    counts: Counts


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Quality against depth of one model, task, train size and metric."""

    study: str | None
    """None for tables that name no study."""
    protocol: str | None
    model: str
    task: str
    train_size: int | None
    metric: str
    total_layers: int
    chance: float | None
    chance_source: str | None
    demo: bool
    select: Select
    selected_by: Literal["selection score", "learning-rate search", "score"]
    paired: bool
    full_score: float | None
    full_runs: int
    undefined: str | None
    """Why quality relative to the full model cannot be said; None where it can."""
    depths: tuple[DepthScore, ...]
    """From nothing frozen to everything; -1 comes after 0."""
    notes: tuple[str, ...]

    @property
    def counts(self) -> Counts:
        return total([depth.counts for depth in self.depths])

    def at(self, frozen_layers: int) -> DepthScore | None:
        return next((d for d in self.depths if d.frozen_layers == frozen_layers), None)


def measure(
    group: Group, select: Select, pairing: Pairing, resampler: Resampler
) -> tuple[Curve, Draws | None]:
    """The curve of a group, and its draws where there is a full model to compare with."""
    notes: list[str] = []
    chosen, by_selection = choose(group, select, notes)
    full = chosen[0] if group.depths and group.depths[0].frozen_layers == 0 else None
    full_score = full.runs.score if full else None
    paired = group.seeds_shared if pairing == "auto" else pairing == "paired"
    if pairing == "auto" and not paired:
        notes.append("runs resampled independently: the same cell and seed has different scores here")
    if group.chance_source == ASSUMED:
        notes.append("no chance is recorded: it is taken to be the majority class of GLUE's validation set")
    draws = draw(group, chosen, select, by_selection, paired, resampler, notes)
    undefined = _undefined(group, full, draws)
    depths = tuple(
        _depth_score(group, depth, rate, full_score if undefined is None else None, by_selection, draws, i)
        for i, (depth, rate) in enumerate(zip(group.depths, chosen, strict=True))
    )
    notes += _unbounded(depths, draws)
    notes += [
        f"frozen {depth.frozen_layers}: {rate.diverged} of {rate.finished} runs at rate "
        f"{rate.learning_rate:g} diverged; the score is of the others, and flatters it"
        for depth, rate in zip(group.depths, chosen, strict=True)
        if rate is not None and rate.diverged
    ]
    curve = Curve(
        study=group.study,
        protocol=group.protocol,
        model=group.model,
        task=group.task,
        train_size=group.train_size,
        metric=group.metric,
        total_layers=group.total_layers,
        chance=group.chance,
        chance_source=group.chance_source,
        demo=group.demo,
        select=select,
        selected_by=_selected_by(group, by_selection),
        paired=paired,
        full_score=full_score,
        full_runs=int(full.runs.kept.sum()) if full else 0,
        undefined=undefined,
        depths=depths,
        notes=(*notes, *_count_notes(group)),
    )
    return curve, draws if undefined is None else None


def _undefined(group: Group, full: RateRuns | None, draws: Draws | None) -> str | None:
    if group.depths[0].frozen_layers != 0:
        return "the full model (frozen_layers 0) is not in the table"
    if full is None:
        return "the full model (frozen_layers 0) has no complete run"
    if full.runs.score <= 0:
        return f"the full model scores {full.runs.score:.4g}: a ratio to it means nothing"
    if (draws is not None and draws.undefined > _MOST_UNDEFINED) or _maybe_nothing(full, group.chance):
        return (
            f"the full model scores {full.runs.score:.4g}, not clearly above zero with these runs: "
            "a ratio to it means nothing"
        )
    return None


def _maybe_nothing(full: RateRuns, chance: float | None) -> bool:
    """A score of zero is in the full model's reach, and Student's 95 % bound does not exclude it.

    Where every run is above zero and so is chance, as an accuracy's, zero is out of reach however far two
    or three runs are apart.
    """
    scores = full.runs.scores[full.runs.kept]
    if len(scores) < 2 or (chance != 0 and scores.min() > 0):
        return False
    return lower_bound(scores) <= 0


def _unbounded(depths: tuple[DepthScore, ...], draws: Draws | None) -> list[str]:
    """Where there is a ratio and runs enough, and yet no interval."""
    if draws is None:
        return []
    without = [
        str(depth.frozen_layers)
        for depth, usable in zip(depths, draws.usable, strict=True)
        if usable and depth.relative is not None and depth.relative_low is None
    ]
    if not without:
        return []
    return [
        f"no interval for quality relative to full at frozen {', '.join(without)}: "
        "the runs are too few and too far apart"
    ]


def _depth_score(
    group: Group,
    depth: DepthRuns,
    rate: RateRuns | None,
    full_score: float | None,
    by_selection: bool,
    draws: Draws | None,
    index: int,
) -> DepthScore:
    score = rate.runs.score if rate else None
    kept = rate.runs.kept if rate else np.zeros(0, dtype=bool)
    scores = rate.runs.scores[kept] if rate else np.zeros(0)
    low, high = (mean_interval(rate.runs.scores) if rate else None) or (None, None)
    relative_low = relative_high = None
    if full_score is not None and draws is not None and draws.usable[index]:
        compared = draws.compared[index]
        if depth.frozen_layers == 0:
            relative_low = relative_high = 1.0
        elif compared is not None:
            relative_low, relative_high = compared.ratio_interval() or (None, None)
    corrected = None
    if (
        score is not None
        and full_score is not None
        and group.chance is not None
        and full_score > group.chance
    ):
        corrected = (score - group.chance) / (full_score - group.chance)
    return DepthScore(
        frozen_layers=depth.frozen_layers,
        tuned_layers=tuned_layers(group.total_layers, depth.frozen_layers),
        learning_rate=rate.learning_rate if rate else None,
        seeds=tuple(rate.runs.seeds[kept].tolist()) if rate else (),
        scores=tuple(scores.tolist()),
        score=score,
        std=float(scores.std(ddof=1)) if len(scores) > 1 else None,
        score_low=low,
        score_high=high,
        relative=score / full_score if score is not None and full_score is not None else None,
        relative_low=relative_low,
        relative_high=relative_high,
        chance_corrected=corrected,
        rates=tuple(_rate_score(r, by_selection) for r in depth.rates),
        rate_edge=_edge(depth, rate),
        counts=depth.counts,
    )


def _rate_score(rate: RateRuns, by_selection: bool) -> RateScore:
    samples = [rate.runs] + ([rate.search] if rate.search else [])
    return RateScore(
        learning_rate=rate.learning_rate,
        score=rate.runs.score,
        choice=rate.choice(by_selection),
        runs=int(rate.runs.kept.sum()),
        removed=sum(int((~sample.kept).sum()) for sample in samples),
    )


def _edge(depth: DepthRuns, rate: RateRuns | None) -> Literal["lowest", "highest"] | None:
    if rate is None or len(depth.rates) < 2:
        return None
    if rate.learning_rate == depth.rates[0].learning_rate:
        return "lowest"
    return "highest" if rate.learning_rate == depth.rates[-1].learning_rate else None


def _selected_by(
    group: Group, by_selection: bool
) -> Literal["selection score", "learning-rate search", "score"]:
    if by_selection:
        return "selection score"
    searched = any(rate.search for depth in group.depths for rate in depth.rates)
    return "learning-rate search" if searched else "score"


def _count_notes(group: Group) -> list[str]:
    counts = total([depth.counts for depth in group.depths])
    told = {
        "failed": f"{counts.failed} failed trials ({counts.failed_cells} cells never completed)",
        "diverged": f"{counts.diverged} diverged runs (not in the means)",
        "collapsed": f"{counts.collapsed} runs collapsed to chance (they count in the means)",
        "unfinished": f"{counts.unfinished} trials not finished",
        "removed": f"{counts.removed} runs removed from the means by the outlier filter",
    }
    notes = [text for name, text in told.items() if getattr(counts, name)]
    if group.duplicates:
        notes.append(f"{group.duplicates} rows repeat the run of another and were counted once")
    unknown = [str(depth.frozen_layers) for depth in group.depths if not depth.rates]
    if unknown:
        notes.append(f"no complete run at frozen {', '.join(unknown)}: unknown")
    return notes
