"""Which learning rate stands for each depth, and what the bootstrap makes of that choice.

Choosing and drawing only; what the scores mean for quality is said elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from study.analysis.bootstrap import Resampler, Runs
from study.analysis.intervals import Compared, compare
from study.analysis.runs import DepthRuns, Group, RateRuns, Sample

if TYPE_CHECKING:
    from numpy.typing import NDArray

Select = Literal["per-depth", "full-model"]
_MOST_CELLS = 1_000
"""Beyond this many cells in a group the draws keep the chosen rates instead of choosing again."""


@dataclass(frozen=True)
class Draws:
    """The bootstrap of a curve: (depths, different draws), NaN where a depth could not be drawn."""

    scores: NDArray[np.float64]
    times: NDArray[np.int64]
    """How often each draw came up."""
    full: NDArray[np.float64]
    usable: NDArray[np.bool_]
    """Depths with at least two runs, as the full model has: only these carry uncertainty."""
    compared: tuple[Compared | None, ...]
    """Each depth beside the full model, all runs at the chosen rates; None where one has a single run."""

    @property
    def undefined(self) -> float:
        """The share of the draws in which the full model scores nothing above zero."""
        return float(self.times[~(self.full > 0)].sum() / self.times.sum())


def choose(group: Group, select: Select, notes: list[str]) -> tuple[list[RateRuns | None], bool]:
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
        notes += _passed_over(full, overall, by_selection)
        if best.learning_rate != overall.learning_rate:
            notes.append(
                f"the full model's best rate, {overall.learning_rate:g}, was not run at other depths: "
                f"{best.learning_rate:g} is its best rate that was"
            )
        return [_at_rate(depth, best.learning_rate, notes) for depth in group.depths], by_selection
    if select == "full-model":
        notes.append("no full model to take the learning rate from: each depth is shown at its own best rate")
    chosen = [_best(d.rates, by_selection) if d.rates else None for d in group.depths]
    if full is not None and full.rates:
        chosen[0] = _full_best(group, by_selection)
    for depth, rate in zip(group.depths, chosen, strict=True):
        notes += _passed_over(depth, rate, by_selection)
    return chosen, by_selection


def draw(
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
    tried = _tried(group, chosen, select, by_selection)
    if sum(map(len, tried)) > _MOST_CELLS:
        notes.append("too many learning rates to choose again in every draw: the chosen ones are kept")
        tried = [[rate] if rate else [] for rate in chosen]
    rates = [rate for depth in tried for rate in depth]
    if not rates:
        return None
    searches = [i for i, rate in enumerate(rates) if rate.search is not None]
    samples = [rate.runs for rate in rates] + [rate.search for rate in rates if rate.search is not None]
    cells = [_runs(sample, by_selection) for sample in samples]
    resampled = resampler.resample(cells, paired=paired)
    means, draws = resampled.means, len(resampled.times)
    choices = means[int(by_selection), : len(rates)]
    if searches:
        choices = choices.copy()
        choices[searches] = means[int(by_selection), len(rates) :]
    scores = np.full((len(tried), draws), np.nan)
    start, best = 0, np.zeros(draws, dtype=np.int64)
    follow = select == "full-model" and group.depths[0].frozen_layers == 0 and bool(tried[0])
    everywhere = {rate.learning_rate: k for k, rate in enumerate(tried[0])}
    for i, depth in enumerate(tried):
        here = slice(start, start + len(depth))
        start += len(depth)
        if follow and i > 0:
            for k, rate in enumerate(depth):
                of_rate = best == everywhere[rate.learning_rate]
                scores[i, of_rate] = means[0, here.start + k, of_rate]
        elif depth:
            best, scores[i] = _chosen(choices[here], means[0, here])
    compared = tuple(_compared(rate, chosen[0], paired) for rate in chosen)
    enough = np.array([rate is not None and _several(rate.runs, paired) for rate in chosen])
    return Draws(scores, resampled.times, scores[0], enough & enough[0], compared)


def _compared(rate: RateRuns | None, full: RateRuns | None, paired: bool) -> Compared | None:
    if rate is None or full is None:
        return None
    here, there = rate.runs, full.runs
    return compare(here.scores, here.seeds, there.scores, there.seeds, paired=paired)


def _several(sample: Sample, paired: bool) -> bool:
    """Two runs, and of two seeds where seeds are drawn: one seed twice has no spread to show."""
    return len(np.unique(sample.seeds) if paired else sample.seeds) > 1


def _chosen(
    choices: NDArray[np.float64], scores: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """For each draw the first of the best rates, and its score."""
    best = np.zeros(choices.shape[1], dtype=np.int64)
    top, score = choices[0].copy(), scores[0].copy()
    for k in range(1, len(choices)):
        better = choices[k] > top
        best[better] = k
        np.copyto(top, choices[k], where=better)
        np.copyto(score, scores[k], where=better)
    return best, score


def _tried(
    group: Group, chosen: list[RateRuns | None], select: Select, by_selection: bool
) -> list[list[RateRuns]]:
    """The rates each depth can be drawn at; none where the depth has no score."""
    if not by_selection and _searched_by_score(group):
        return [[rate] if rate else [] for rate in chosen]
    if select == "full-model" and group.depths[0].frozen_layers == 0 and group.depths[0].rates:
        full = [rate for rate in group.depths[0].rates if rate.learning_rate in _shared_rates(group)]
        drawn = {rate.learning_rate for rate in _candidates(full, by_selection)}
        tried = [[rate for rate in depth.rates if rate.learning_rate in drawn] for depth in group.depths]
    else:
        tried = [_candidates(depth.rates, by_selection) for depth in group.depths]
    return [rates if rate else [] for rates, rate in zip(tried, chosen, strict=True)]


def _searched_by_score(group: Group) -> bool:
    """Only the full model has several rates, and its own scores chose among them.

    Choosing the best of its rates again in every draw would raise its score a second time, and nothing
    else's: each freeze would look worse than it is.
    """
    full, *others = group.depths
    return (
        full.frozen_layers == 0
        and not any(rate.search for rate in full.rates)
        and all(len(depth.rates) <= 1 for depth in others)
    )


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
    """The rate with the best mean among those that may be chosen, the lower of two equal ones."""
    return max(_candidates(rates, by_selection), key=lambda rate: rate.choice(by_selection))


def _candidates(rates: Sequence[RateRuns], by_selection: bool) -> list[RateRuns]:
    """Rates with enough runs; those with diverged ones only if these, counted as 0, leave them the better.

    What survives at a rate that diverges is its better half: a mean of that is no mean of the rate.
    """
    enough = _enough(rates)
    sound = [rate.choice(by_selection) for rate in enough if not rate.diverged]
    if not sound:
        return enough
    return [rate for rate in enough if not rate.diverged or _discounted(rate, by_selection) > max(sound)]


def _discounted(rate: RateRuns, by_selection: bool) -> float:
    counted = len(rate.choosing.seeds)
    return rate.choice(by_selection) * counted / (counted + rate.diverged)


def _full_best(group: Group, by_selection: bool) -> RateRuns:
    """The full model's best rate; where all freezes were run at one rate, which the survivors of a search
    chose, that one: the full model at another would be compared with what it was not run against."""
    full, *others = group.depths
    frozen = {rate.learning_rate for depth in others for rate in depth.rates}
    chosen = max(_enough(full.rates), key=lambda rate: rate.choice(by_selection))
    return chosen if frozen == {chosen.learning_rate} else _best(full.rates, by_selection)


def _enough(rates: Sequence[RateRuns]) -> list[RateRuns]:
    """Rates with at least half the runs of the rate that has most: one lucky seed of a race wins nothing."""
    most = max((len(rate.choosing.seeds) for rate in rates), default=0)
    return [rate for rate in rates if 2 * len(rate.choosing.seeds) >= most]


def _passed_over(depth: DepthRuns, chosen: RateRuns | None, by_selection: bool) -> list[str]:
    if chosen is None:
        return []
    best = chosen.choice(by_selection)
    enough = {rate.learning_rate for rate in _enough(depth.rates)}
    better = [rate for rate in depth.rates if rate.choice(by_selection) > best]
    return [
        f"frozen {depth.frozen_layers}: rate {rate.learning_rate:g} was not chosen"
        + (
            f": {rate.diverged} of {rate.finished} runs diverged"
            if rate.learning_rate in enough
            else f", its higher mean is of {len(rate.choosing.seeds)} run(s) only"
        )
        for rate in better
    ]


def _at_rate(depth: DepthRuns, learning_rate: float, notes: list[str]) -> RateRuns | None:
    found = next((r for r in depth.rates if r.learning_rate == learning_rate), None)
    if found is None and depth.rates:
        notes.append(f"frozen {depth.frozen_layers} was not run at the full model's rate {learning_rate:g}")
    return found


def _runs(sample: Sample, by_selection: bool) -> Runs:
    columns = [sample.scores, sample.selection] if by_selection else [sample.scores]
    return Runs(sample.seeds, np.stack(columns, axis=1))
