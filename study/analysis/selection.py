"""Which learning rate stands for each depth, so that depths and the full model are compared fairly.

It chooses by means over runs, and says what it passed over; what the scores mean is said elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from study.analysis.choices import Select
from study.analysis.samples import DepthRuns, Group, RateRuns
from study.cli.wording import counted

SelectedBy = Literal["selection score", "learning-rate search", "score"]


@dataclass(frozen=True)
class Choice:
    """The runs that stand for each depth of a group; None where a depth has none that may."""

    rates: tuple[RateRuns | None, ...]
    by_selection: bool
    """Whether selection scores chose them."""
    notes: tuple[str, ...] = ()


def choose(group: Group, select: Select) -> Choice:
    """Each depth's best rate, or the full model's best everywhere."""
    notes: list[str] = []
    rates = [rate for depth in group.depths for rate in depth.rates]
    by_selection = bool(rates) and all(rate.has_selection for rate in rates)
    if not by_selection and any(rate.has_selection for rate in rates):
        notes.append("selection scores are incomplete: learning rates were chosen by the score instead")
    full = group.full
    if full is None or not full.rates:
        if select == "full-model":
            notes.append(
                "no full model to take the learning rate from: each depth is shown at its own best rate"
            )
        chosen = [best(group, depth, by_selection) for depth in group.depths]
    elif select == "full-model":
        chosen = _everywhere(group, full, by_selection, notes)
    else:
        chosen = [best(group, depth, by_selection) for depth in group.depths]
        chosen[0] = _beside_the_freezes(group, full, chosen[0], notes)
        for depth, rate in zip(group.depths, chosen, strict=True):
            notes += _passed_over(depth, rate, by_selection)
    return Choice(tuple(chosen), by_selection, tuple(notes))


def selected_by(group: Group, choice: Choice) -> SelectedBy:
    if choice.by_selection:
        return "selection score"
    searched = any(rate.search for depth in group.depths for rate in depth.rates)
    return "learning-rate search" if searched else "score"


def best(
    group: Group, depth: DepthRuns, by_selection: bool, among: Collection[float] | None = None
) -> RateRuns | None:
    """The best rate with enough runs, the lower of two equal ones."""
    rates = [rate for rate in depth.rates if among is None or rate.learning_rate in among]
    return max(_enough(rates), key=lambda rate: group.worth(depth, rate, by_selection), default=None)


def _everywhere(group: Group, full: DepthRuns, by_selection: bool, notes: list[str]) -> list[RateRuns | None]:
    chosen = best(group, full, by_selection, among=_shared_rates(group))
    overall = best(group, full, by_selection)
    assert chosen is not None
    assert overall is not None
    notes += _passed_over(full, overall, by_selection)
    if chosen.learning_rate != overall.learning_rate:
        notes.append(
            f"the full model's best rate, {overall.learning_rate:g}, was not run at other depths: "
            f"{chosen.learning_rate:g} is its best rate that was"
        )
    return [_at_rate(depth, chosen.learning_rate, notes) for depth in group.depths]


def _beside_the_freezes(
    group: Group, full: DepthRuns, chosen: RateRuns | None, notes: list[str]
) -> RateRuns | None:
    """Where all freezes were run at one rate, the full model at that rate.

    They had nothing to choose from: beside the best of several rates each of them would look worse than it
    is, and at another rate the full model would be compared with what it was not run against.
    """
    frozen = {rate.learning_rate for depth in group.depths[1:] for rate in depth.rates}
    same = [rate for rate in _enough(full.rates, fresh=True) if {rate.learning_rate} == frozen]
    if not same or chosen is None or same[0].learning_rate == chosen.learning_rate:
        return chosen
    notes.append(
        f"every freeze was run at rate {same[0].learning_rate:g} only, so the full model is compared at that "
        f"rate; its best mean is at {chosen.learning_rate:g}"
    )
    return same[0]


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


def _enough(rates: Sequence[RateRuns], *, fresh: bool = False) -> list[RateRuns]:
    """Rates with at least half the runs of the rate that has most: one lucky seed of a race wins nothing.

    With `fresh`, of the runs that are in the score rather than those that chose.
    """
    runs = [len((rate.runs if fresh else rate.choosing).seeds) for rate in rates]
    return [rate for rate, found in zip(rates, runs, strict=True) if 2 * found >= max(runs)]


def _passed_over(depth: DepthRuns, chosen: RateRuns | None, by_selection: bool) -> list[str]:
    """Rates whose runs look better by themselves, and why they do not stand for the depth."""
    if chosen is None:
        return []
    enough = {rate.learning_rate for rate in _enough(depth.rates)}
    found = []
    for rate in depth.rates:
        lucky = rate.learning_rate not in enough
        lost = rate.choosing.scores.size - rate.choosing.successes + rate.diverged
        better = rate.choosing.score if not by_selection else rate.choosing.selection_score
        beside = chosen.choosing.score if not by_selection else chosen.choosing.selection_score
        if better <= beside or not (lucky or lost):
            continue
        why = (
            f", its higher mean is of {counted(len(rate.choosing.seeds), 'run')} only"
            if lucky
            else f": {lost} of {rate.finished} runs diverged or collapsed"
        )
        found.append(f"frozen {depth.frozen_layers}: rate {rate.learning_rate:g} was not chosen{why}")
    return found


def _at_rate(depth: DepthRuns, learning_rate: float, notes: list[str]) -> RateRuns | None:
    found = next((r for r in depth.rates if r.learning_rate == learning_rate), None)
    if found is None and depth.rates:
        notes.append(f"frozen {depth.frozen_layers} was not run at the full model's rate {learning_rate:g}")
    return found
