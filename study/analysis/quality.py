"""Quality against depth for one group: the chosen learning rates, the scores, and how sure they are.

Pure functions from runs to scores. Runs are compared as qualities, of which more is better; scores are shown
in the metric's own unit. Where there is nothing to compare with, quality relative to full is None
and the curve says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from objectives.depths import tuned_layers
from objectives.tasks.metrics import describe
from study.analysis.chance import ASSUMED
from study.analysis.choices import Pairing, Select
from study.analysis.measure import Measured
from study.analysis.samples import Counts, DepthRuns, Group, RateRuns, total
from study.analysis.selection import SelectedBy, selected_by
from study.cli.wording import counted


@dataclass(frozen=True, kw_only=True)
class RateScore:
    """One square of the depth x rate heat map."""

    learning_rate: float
    score: float
    """Mean of the runs that are in the quality."""
    choice: float
    """Mean that the rate was chosen by: selection score, learning-rate search, or the score of all runs."""
    runs: int
    collapsed: int
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
    finished: int
    """Runs at that rate that came to an end; those that are not behind `score` collapsed, diverged, or were
    removed by the outlier filter."""
    success: float | None
    """Share of these that neither collapsed nor diverged."""
    score: float | None
    std: float | None
    """Sample standard deviation; None with one run."""
    score_low: float | None
    """95 % interval; None where no run was repeated."""
    score_high: float | None
    relative: float | None
    relative_low: float | None
    """95 % interval; None for the full model itself, and where it has no bounds."""
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
    selected_by: SelectedBy
    paired: bool
    test_examples: int | None
    """Number of test examples included in the intervals; None where they are over seeds alone."""
    full_score: float | None
    full_runs: int
    undefined: str | None
    """Why quality relative to the full model cannot be said, and what to try; None where it can."""
    depths: tuple[DepthScore, ...]
    """From nothing frozen to everything; -1 comes after 0."""
    notes: tuple[str, ...]

    @property
    def counts(self) -> Counts:
        return total([depth.counts for depth in self.depths])

    def at(self, frozen_layers: int) -> DepthScore | None:
        return next((d for d in self.depths if d.frozen_layers == frozen_layers), None)


def curve(measured: Measured, select: Select, pairing: Pairing) -> Curve:
    """What is known of every depth of a group."""
    group, full = measured.group, measured.full
    undefined = measured.undefined
    depths = tuple(
        _depth_score(measured, depth, index, defined=undefined is None)
        for index, depth in enumerate(group.depths)
    )
    return Curve(
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
        selected_by=selected_by(group, measured.choice),
        paired=measured.paired,
        test_examples=measured.test_examples,
        full_score=group.shown(full.runs.score) if full else None,
        full_runs=int(full.runs.kept.sum()) if full else 0,
        undefined=undefined,
        depths=depths,
        notes=tuple(_notes(measured, pairing, depths)),
    )


def _depth_score(measured: Measured, depth: DepthRuns, index: int, *, defined: bool) -> DepthScore:
    group, rate, found = measured.group, measured.choice.rates[index], measured.estimate
    kept = rate.runs.kept if rate else np.zeros(0, dtype=bool)
    scores = rate.runs.scores[kept] if rate else np.zeros(0)
    known = found.certain and rate is not None
    bounds = (found.interval(index) if known else None) or ()
    # Of an error the higher quality is the lower score.
    low, high = sorted(map(group.shown, bounds)) or (None, None)
    if low is not None and high is not None and rate is not None:
        low, high = _within_bounds(group.metric, low, group.shown(rate.runs.score), high)
    relative = corrected = relative_low = relative_high = None
    if defined and rate is not None:
        full = float(found.means[0])
        relative = rate.runs.score / full
        if known and depth.frozen_layers != 0 and found.runs[0] > 1:
            relative_low, relative_high = found.ratio_interval(index) or (None, None)
        chance = group.chance_quality
        corrected = None if chance is None else (rate.runs.score - chance) / (full - chance)
    return DepthScore(
        frozen_layers=depth.frozen_layers,
        tuned_layers=tuned_layers(group.total_layers, depth.frozen_layers),
        learning_rate=rate.learning_rate if rate else None,
        seeds=tuple(rate.runs.seeds[kept].tolist()) if rate else (),
        scores=tuple(map(group.shown, scores.tolist())),
        finished=len(rate.runs.seeds) + rate.diverged if rate else 0,
        success=rate.runs.successes / (len(rate.runs.seeds) + rate.diverged) if rate else None,
        score=group.shown(rate.runs.score) if rate else None,
        std=float(scores.std(ddof=1)) if len(scores) > 1 else None,
        score_low=low,
        score_high=high,
        relative=relative,
        relative_low=relative_low,
        relative_high=relative_high,
        chance_corrected=corrected,
        rates=tuple(_rate_score(group, depth, r, measured.choice.by_selection) for r in depth.rates),
        rate_edge=_edge(depth, rate),
        counts=depth.counts,
    )


def _within_bounds(metric: str, low: float, score: float, high: float) -> tuple[float, float]:
    """An interval cut at what the metric can be; a table of percentages is beyond that anyway."""
    about = describe(metric)
    if not about.low <= score <= about.high:
        return low, high
    return max(low, about.low), min(high, about.high)


def _rate_score(group: Group, depth: DepthRuns, rate: RateRuns, by_selection: bool) -> RateScore:
    samples = [rate.runs] + ([rate.search] if rate.search else [])
    return RateScore(
        learning_rate=rate.learning_rate,
        score=group.shown(rate.runs.score),
        choice=group.shown(group.worth(depth, rate, by_selection)),
        runs=int(rate.runs.kept.sum()),
        collapsed=sum(int(sample.collapsed.sum()) for sample in samples),
        removed=sum(int((~sample.kept).sum()) for sample in samples if sample.filtered),
    )


def _edge(depth: DepthRuns, rate: RateRuns | None) -> Literal["lowest", "highest"] | None:
    """Where the best rate is the last one tried and clearly better than the one before it."""
    if rate is None or len(depth.rates) < 2:
        return None
    first, *_, last = depth.rates
    if rate is first and _clearly_better(rate, depth.rates[1]):
        return "lowest"
    return "highest" if rate is last and _clearly_better(rate, depth.rates[-2]) else None


def _clearly_better(rate: RateRuns, other: RateRuns) -> bool:
    """By more than the standard error of the difference: equally good neighbours are a plateau, and nothing
    better is to be expected beyond it."""
    mine, theirs = (one.runs.scores[one.runs.kept] for one in (rate, other))
    if min(len(mine), len(theirs)) < 2:
        return True
    error = (mine.var(ddof=1) / len(mine) + theirs.var(ddof=1) / len(theirs)) ** 0.5
    return bool(mine.mean() - theirs.mean() > error)


def _notes(measured: Measured, pairing: Pairing, depths: Sequence[DepthScore]) -> list[str]:
    group = measured.group
    notes = list(measured.choice.notes)
    if pairing == "auto" and not measured.paired:
        notes.append("runs are not paired by seed: the same cell and seed has different scores here")
    if group.chance_source == ASSUMED:
        notes.append(f"no chance is recorded: it is taken to be the {ASSUMED}")
    unbounded = [
        str(depth.frozen_layers)
        for depth in depths
        if depth.relative is not None and depth.frozen_layers != 0 and depth.relative_low is None
    ]
    if unbounded and measured.estimate.certain and measured.estimate.runs[0] > 1:
        notes.append(
            f"no interval for quality relative to full at frozen {', '.join(unbounded)}: "
            "the runs are too few and too far apart"
        )
    notes += [
        f"frozen {depth.frozen_layers}: {depth.finished - len(depth.scores)} of {depth.finished} runs at "
        "rate "
        f"{depth.learning_rate:g} collapsed or diverged; the score is of the others"
        for depth in depths
        if depth.success is not None and depth.success < 1 and len(depth.scores) < depth.finished
    ]
    return [*notes, *_count_notes(group)]


def _count_notes(group: Group) -> list[str]:
    counts = total([depth.counts for depth in group.depths])
    told = {
        "failed": f"{counted(counts.failed, 'failed trial')} "
        f"({counted(counts.failed_cells, 'cell')} never completed)",
        "diverged": f"{counted(counts.diverged, 'diverged run')} (not in the means)",
        "collapsed": f"{counted(counts.collapsed, 'run')} collapsed (not in the means)",
        "unfinished": f"{counted(counts.unfinished, 'trial')} not finished",
        "removed": f"{counted(counts.removed, 'run')} removed from the means by the outlier filter",
    }
    notes = [text for name, text in told.items() if getattr(counts, name)]
    if group.duplicates:
        notes.append(f"{group.duplicates} rows repeat the run of another and were counted once")
    unknown = [str(depth.frozen_layers) for depth in group.depths if not depth.rates]
    if unknown:
        notes.append(f"no complete run at frozen {', '.join(unknown)}: unknown")
    return notes
