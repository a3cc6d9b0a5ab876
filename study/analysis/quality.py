"""Quality against depth for one group: the chosen learning rates, the scores, and their uncertainty.

Pure functions from runs to scores; where a ratio is undefined it is None and a note says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from study.analysis.bootstrap import Resampler, quantiles
from study.analysis.runs import Counts, DepthRuns, Group, RateRuns, total, tuned_layers
from study.analysis.selection import Draws, Select, choose, draw

if TYPE_CHECKING:
    from numpy.typing import NDArray

Pairing = Literal["auto", "paired", "independent"]


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
    """95 % bootstrap interval over all runs; None with one run."""
    score_high: float | None
    relative: float | None
    relative_low: float | None
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
    undefined = _undefined(group, full, full_score)
    paired = group.seeds_shared if pairing == "auto" else pairing == "paired"
    if pairing == "auto" and not paired:
        notes.append("runs resampled independently: the same cell and seed has different scores here")
    draws = draw(group, chosen, select, by_selection, paired, resampler, notes)
    depths = tuple(
        _depth_score(group, depth, rate, full_score if undefined is None else None, by_selection, draws, i)
        for i, (depth, rate) in enumerate(zip(group.depths, chosen, strict=True))
    )
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


def _undefined(group: Group, full: RateRuns | None, full_score: float | None) -> str | None:
    if group.depths[0].frozen_layers != 0:
        return "the full model (frozen_layers 0) is not in the table"
    if full is None or full_score is None:
        return "the full model (frozen_layers 0) has no complete run"
    if full_score <= 0:
        return f"the full model scores {full_score:.4g}: a ratio to it means nothing"
    return None


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
    low = high = relative_low = relative_high = None
    if draws is not None and rate is not None and len(rate.runs.seeds) > 1:
        low, high = _interval(draws.scores[index], draws.times)
        if full_score is not None and draws.usable[index]:
            ratio = np.divide(
                draws.scores[index], draws.full, out=np.full(len(draws.full), np.nan), where=draws.full > 0
            )
            relative_low, relative_high = _interval(ratio, draws.times)
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


def _interval(values: NDArray[np.float64], times: NDArray[np.int64]) -> tuple[float | None, float | None]:
    known = np.isfinite(values)
    if not known.all():
        values, times = values[known], times[known]
    if not len(values):
        return None, None
    low, high = quantiles(values, times, (0.025, 0.975))
    return low, high


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
        "diverged": f"{counts.diverged} diverged runs",
        "collapsed": f"{counts.collapsed} runs collapsed to chance (they count in the means)",
        "unfinished": f"{counts.unfinished} trials not finished",
        "removed": f"{counts.removed} runs removed from the means by the outlier filter",
    }
    notes = [text for name, text in told.items() if getattr(counts, name)]
    if group.duplicates:
        notes.append(f"{group.duplicates} rows identical to another were counted once")
    unknown = [str(depth.frozen_layers) for depth in group.depths if not depth.rates]
    if unknown:
        notes.append(f"no complete run at frozen {', '.join(unknown)}: unknown")
    return notes
