"""Quality against depth for one group: the chosen learning rates, the scores, and their uncertainty.

Pure functions from runs to scores; where a ratio is undefined it is None and a note says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from study.bootstrap import Resampler, Runs
from study.runs import Counts, DepthRuns, Group, RateRuns, Sample, total, tuned_layers

if TYPE_CHECKING:
    from numpy.typing import NDArray

Select = Literal["per-depth", "full-model"]
Pairing = Literal["auto", "paired", "independent"]
_MOST_CELLS = 1_000
"""Beyond this many cells in a group the draws keep the chosen rates instead of choosing again."""


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


@dataclass(frozen=True)
class Draws:
    """The bootstrap of a curve: one column per depth, NaN where a depth could not be drawn."""

    scores: NDArray[np.float64]
    full: NDArray[np.float64]
    usable: NDArray[np.bool_]
    """Depths with at least two runs, as the full model has: only these carry uncertainty."""


def measure(
    group: Group, select: Select, pairing: Pairing, resampler: Resampler
) -> tuple[Curve, Draws | None]:
    """The curve of a group, and its draws where there is a full model to compare with."""
    notes: list[str] = []
    chosen, by_selection = _choose(group, select, notes)
    full = chosen[0] if group.depths and group.depths[0].frozen_layers == 0 else None
    full_score = full.runs.score if full else None
    undefined = _undefined(group, full, full_score)
    paired = group.seeds_shared if pairing == "auto" else pairing == "paired"
    if pairing == "auto" and not paired:
        notes.append("runs resampled independently: the same cell and seed has different scores here")
    draws = _draw(group, chosen, select, by_selection, paired, resampler, notes)
    depths = tuple(
        _depth_score(group, depth, rate, full_score if undefined is None else None, by_selection, draws, i)
        for i, (depth, rate) in enumerate(zip(group.depths, chosen, strict=True))
    )
    curve = Curve(
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


def _choose(group: Group, select: Select, notes: list[str]) -> tuple[list[RateRuns | None], bool]:
    """The runs that stand for each depth, and whether selection scores chose them."""
    rates = [rate for depth in group.depths for rate in depth.rates]
    by_selection = bool(rates) and all(rate.has_selection for rate in rates)
    if not by_selection and any(rate.has_selection for rate in rates):
        notes.append("selection scores are incomplete: learning rates were chosen by the score instead")
    full = group.depths[0] if group.depths[0].frozen_layers == 0 else None
    if select == "full-model" and full is not None and full.rates:
        candidates = _shared_rates(group)
        best = _best([rate for rate in full.rates if rate.learning_rate in candidates], by_selection)
        overall = _best(full.rates, by_selection)
        if best.learning_rate != overall.learning_rate:
            notes.append(
                f"the full model's best rate, {overall.learning_rate:g}, was not run at other depths: "
                f"{best.learning_rate:g} is its best rate that was"
            )
        return [_at_rate(depth, best.learning_rate, notes) for depth in group.depths], by_selection
    if select == "full-model":
        notes.append("no full model to take the learning rate from: each depth is shown at its own best rate")
    return [_best(d.rates, by_selection) if d.rates else None for d in group.depths], by_selection


def _shared_rates(group: Group) -> set[float]:
    """The full model's rates that other depths were run at too: only these can be "its rate everywhere".

    A rate with half as many depths as the best covered one still is, so that a lost cell changes nothing.
    """
    full, *others = group.depths
    coverage = {
        rate.learning_rate: sum(rate.learning_rate in {r.learning_rate for r in d.rates} for d in others)
        for rate in full.rates
    }
    most = max(coverage.values())
    return {rate for rate, depths in coverage.items() if 2 * depths >= most}


def _best(rates: Sequence[RateRuns], by_selection: bool) -> RateRuns:
    """The rate with the best mean, the lower of two equal ones."""
    return max(rates, key=lambda rate: rate.choice(by_selection))


def _at_rate(depth: DepthRuns, learning_rate: float, notes: list[str]) -> RateRuns | None:
    found = next((r for r in depth.rates if r.learning_rate == learning_rate), None)
    if found is None and depth.rates:
        notes.append(f"frozen {depth.frozen_layers} was not run at the full model's rate {learning_rate:g}")
    return found


def _undefined(group: Group, full: RateRuns | None, full_score: float | None) -> str | None:
    if group.depths[0].frozen_layers != 0:
        return "the full model (frozen_layers 0) is not in the table"
    if full is None or full_score is None:
        return "the full model (frozen_layers 0) has no complete run"
    if full_score <= 0:
        return f"the full model scores {full_score:.4g}: a ratio to it means nothing"
    return None


def _draw(
    group: Group,
    chosen: list[RateRuns | None],
    select: Select,
    by_selection: bool,
    paired: bool,
    resampler: Resampler,
    notes: list[str],
) -> Draws | None:
    """Resample all runs, choose the rates again in every draw, and read the scores off.

    All runs, those of an outlier filter too: dropping the low runs first would hide the very spread
    that the draws are to show.
    """
    tried = _tried(group, chosen, select)
    if sum(map(len, tried)) > _MOST_CELLS:
        notes.append("too many learning rates to choose again in every draw: the chosen ones are kept")
        tried = [[rate] if rate else [] for rate in chosen]
    rates = [rate for depth in tried for rate in depth]
    if not rates:
        return None
    searches = [i for i, rate in enumerate(rates) if rate.search is not None]
    samples = [rate.runs for rate in rates] + [rate.search for rate in rates if rate.search is not None]
    cells = [_runs(sample, by_selection) for sample in samples]
    means = resampler.means(cells, paired=paired)
    choices = means[:, : len(rates), int(by_selection)].copy()
    choices[:, searches] = means[:, len(rates) :, int(by_selection)]
    scores = np.full((resampler.draws, len(tried)), np.nan)
    start, best = 0, np.zeros(resampler.draws, dtype=np.int64)
    follow = select == "full-model" and group.depths[0].frozen_layers == 0
    everywhere = {rate.learning_rate: k for k, rate in enumerate(tried[0])}
    for i, depth in enumerate(tried):
        columns = slice(start, start + len(depth))
        start += len(depth)
        if follow and i > 0:
            for k, rate in enumerate(depth):
                rows = best == everywhere[rate.learning_rate]
                scores[rows, i] = means[rows, columns.start + k, 0]
        elif depth:
            best = choices[:, columns].argmax(axis=1)
            scores[:, i] = np.take_along_axis(means[:, columns, 0], best[:, None], axis=1)[:, 0]
    enough = np.array([rate is not None and len(rate.runs.seeds) > 1 for rate in chosen])
    return Draws(scores, scores[:, 0], enough & enough[0])


def _tried(group: Group, chosen: list[RateRuns | None], select: Select) -> list[list[RateRuns]]:
    """The rates each depth can be drawn at; none where the depth has no score."""
    tried = [list(depth.rates) if rate else [] for depth, rate in zip(group.depths, chosen, strict=True)]
    if select == "full-model" and group.depths[0].frozen_layers == 0 and tried[0]:
        shared = _shared_rates(group)
        tried = [[rate for rate in depth if rate.learning_rate in shared] for depth in tried]
    return tried


def _runs(sample: Sample, by_selection: bool) -> Runs:
    columns = [sample.scores, sample.selection] if by_selection else [sample.scores]
    return Runs(sample.seeds, np.stack(columns, axis=1))


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
        low, high = _interval(draws.scores[:, index])
        if full_score is not None and draws.usable[index]:
            positive = draws.full > 0
            relative_low, relative_high = _interval(draws.scores[positive, index] / draws.full[positive])
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


def _interval(values: NDArray[np.float64]) -> tuple[float | None, float | None]:
    values = values[np.isfinite(values)]
    if not len(values):
        return None, None
    low, high = np.quantile(values, (0.025, 0.975))
    return float(low), float(high)


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
    for depth in group.depths:
        if not depth.rates:
            notes.append(f"frozen {depth.frozen_layers} is unknown: no complete run")
    return notes
