"""The adaptive search: the operating point at one threshold for a fraction of the grid's work.

It races the learning rates on the full model, measures depths from the deepest up, and then adds a seed
wherever it says most about the answer for its cost. Every decision is read from the outcomes alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from objectives.contract import Cell, Outcome, UsageError
from study.protocols.evidence import FULL, Evidence, Spot
from study.protocols.posterior import Posterior
from study.protocols.units import cell_units
from study.spec import StudySpec

RATE_MARGIN = 0.2
"""A rate worse by less than this share of the allowed loss is as good as the best."""
RATE_DOUBT = 0.25
"""A rate this likely to beat the leader by more than the margin gets another seed."""
RACE_SEEDS = 3
"""Most seeds a race spends on one rate."""
SWITCH = 0.6
"""Depths change to another learning rate only where theirs is this likely to be worse."""
FULL_SEEDS = 2
"""The full model is never judged on fewer, if the spec has them."""
BUDGET_SHARE = 0.42
"""Without a budget of its own the search stops at this share of the paper's protocol on the same grid."""
BUDGET_SEEDS = 5
"""Seeds per cell in that protocol, if the spec has as many."""
_OVERHEAD = 1.0
"""Layer units any trial costs, so that a cell without trained layers is not for free."""


def wanted(spec: StudySpec, outcomes: Sequence[Outcome]) -> list[Cell]:
    """Cells in flight, and the next ones where nothing waits for a worker.

    A worker that asks while others run gets what would be wanted if their cells came back as predicted.
    """
    check(spec)
    cells: list[Cell] = []
    purse = Purse(spec, outcomes)
    for size in spec.train_sizes:
        mine = [outcome for outcome in outcomes if outcome.cell.train_size == size]
        flying = sorted(outcome.cell for outcome in mine if outcome.state in ("WAITING", "RUNNING"))
        cells += flying
        if not any(outcome.state == "WAITING" for outcome in mine):
            cells += purse.afford(next_cells(_evidence(spec, size, mine, flying)))
    return cells


def explain(spec: StudySpec, outcomes: Sequence[Outcome]) -> str:
    lines = [_explain_size(spec, outcomes, size) for size in spec.train_sizes]
    return "adaptive: " + "; ".join(lines)


def check(spec: StudySpec) -> None:
    """Refuse a spec whose question has no answer."""
    if FULL not in spec.frozen_layers:
        raise UsageError(
            f"--protocol {spec.protocol} compares with the full model: add 0 to --frozen-layers "
            f"{','.join(map(str, spec.frozen_layers))}"
        )
    if set(spec.frozen_layers) == {FULL}:
        raise UsageError(f"--protocol {spec.protocol} has no depth to try: --frozen-layers names 0 alone")


def posterior(
    spec: StudySpec, outcomes: Sequence[Outcome], train_size: int | None = None
) -> Posterior | None:
    """What the finished outcomes say; None while the full model has no complete run."""
    evidence = Evidence.of(spec, train_size, outcomes)
    return Posterior(evidence) if any(depth == FULL for depth, _ in evidence.scores) else None


def next_cells(evidence: Evidence) -> list[Cell]:
    """What to run next, most useful first; nothing where the answer is settled or no seed is left."""
    cells = [evidence.next_cell(spot) for spot in _next_spots(evidence)]
    return [cell for cell in cells if cell is not None]


def _evidence(spec: StudySpec, size: int | None, outcomes: Iterable[Outcome], flying: list[Cell]) -> Evidence:
    evidence = Evidence.of(spec, size, outcomes)
    known = set(evidence.rates)
    evidence.predict(cell for cell in flying if cell.learning_rate in known)
    return evidence


def _next_spots(evidence: Evidence) -> list[Spot]:
    start = _start(evidence)
    untried = [(FULL, rate) for rate in start if not evidence.tried((FULL, rate))]
    if untried:
        return untried
    if not any(depth == FULL for depth, _ in evidence.scores):
        return _any_full(evidence)
    belief = Posterior(evidence)
    return (
        _race(evidence, belief)
        or _scan(evidence, belief)
        or ([] if _settled(evidence, belief) else _most_telling(evidence, belief))
    )


def _start(evidence: Evidence) -> list[int]:
    """Two neighbouring rates below the middle: which is better says where to look on."""
    low = max((len(evidence.rates) - 1) // 2 - 1, 0)
    return sorted({low, min(low + 1, len(evidence.rates) - 1)})


def _any_full(evidence: Evidence) -> list[Spot]:
    """All runs so far failed: the least tried rate that has a seed left."""
    spots = [(FULL, i) for i in range(len(evidence.rates)) if evidence.next_cell((FULL, i))]
    return sorted(spots, key=lambda spot: (len(evidence.used.get(spot, ())), spot))[:1]


def _race(evidence: Evidence, belief: Posterior) -> list[Spot]:
    """Untried neighbours of the leading rate, then the closest rival that may beat it by the margin."""
    leader = belief.leader
    sides = [i for i in (leader - 1, leader + 1) if 0 <= i < len(evidence.rates)]
    untried = [(FULL, i) for i in sides if not evidence.tried((FULL, i))]
    if untried:
        return untried
    margin = RATE_MARGIN * (1 - evidence.spec.threshold)
    doubts = [
        (belief.deficit_probability(leader, i, margin), -i)
        for i in belief.tried_rates
        if i != leader and evidence.runs((FULL, i)) < RACE_SEEDS
    ]
    doubt, rival = max(doubts, default=(0.0, 0))
    if doubt <= RATE_DOUBT:
        return []
    pair = sorted(
        [(evidence.runs((FULL, leader)), (FULL, leader)), (evidence.runs((FULL, -rival)), (FULL, -rival))]
    )
    return _available(evidence, [spot for runs, spot in pair if runs < RACE_SEEDS])[:1]


def _scan(evidence: Evidence, belief: Posterior) -> list[Spot]:
    """The deepest depth not yet measured that could be the answer or lies beyond it.

    Quality need not fall with every layer, so nothing deeper than the answer is taken on trust.
    """
    rate = _depth_rate(evidence, belief)
    for j in range(len(evidence.depths) - 1, max(belief.answer - 2, -1), -1):
        spot = (evidence.depths[j], rate)
        if j not in belief.measured and evidence.next_cell(spot):
            return [spot]
    return []


def _depth_rate(evidence: Evidence, belief: Posterior) -> int:
    """The learning rate of new runs at a depth: the leader, unless the one in use is about as good."""
    runs = [0] * len(evidence.rates)
    for (depth, rate), group in evidence.scores.items():
        runs[rate] += len(group) if depth != FULL else 0
    current = max(range(len(runs)), key=lambda i: (runs[i], -i))
    if not runs[current] or current not in belief.tried_rates:
        return belief.leader
    margin = RATE_MARGIN * (1 - evidence.spec.threshold)
    return belief.leader if belief.deficit_probability(current, belief.leader, margin) > SWITCH else current


def _settled(evidence: Evidence, belief: Posterior) -> bool:
    enough = belief.probability[belief.answer] >= evidence.spec.confidence
    return bool(enough) and not _thin_full(evidence, belief)


def _thin_full(evidence: Evidence, belief: Posterior) -> list[Spot]:
    total = sum(evidence.runs((FULL, i)) for i in belief.tried_rates if belief.shares[i] > 0)
    leader = (FULL, belief.leader)
    return [leader] if evidence.runs(leader) < FULL_SEEDS and evidence.next_cell(leader) and total else []


def _most_telling(evidence: Evidence, belief: Posterior) -> list[Spot]:
    """The spot whose next seed takes most doubt from the open depths per layer unit."""
    if not belief.measured:
        return []
    spec = evidence.spec
    threshold, rate = spec.threshold, _depth_rate(evidence, belief)
    doubt = belief.open / (np.diag(belief.depth_covariance) + threshold**2 * belief.full_variance)
    gains: list[tuple[float, Spot]] = []
    for j, depth in enumerate(evidence.depths):
        column = belief.depth_covariance[:, j]
        gain = float(doubt @ column**2) / (column[j] + belief.variance((depth, rate)))
        gains.append((gain / _cost(spec, depth), (depth, rate)))
    for i in belief.tried_rates:
        fall = (
            threshold**2
            * belief.full_rates[i] ** 2
            / (belief.rate_covariance[i, i] + belief.variance((FULL, i)))
        )
        if belief.shares[i] >= 0.05:
            gains.append((float(doubt.sum()) * fall / _cost(spec, FULL), (FULL, i)))
    ranked = [spot for gain, spot in sorted(gains, key=lambda g: (-g[0], g[1])) if gain > 1e-12]
    thin = _thin_full(evidence, belief) if belief.probability[belief.answer] >= spec.confidence else []
    return _available(evidence, [*thin, *ranked])[:1]


def _available(evidence: Evidence, spots: Iterable[Spot]) -> list[Spot]:
    return [spot for spot in spots if evidence.next_cell(spot)]


def _cost(spec: StudySpec, depth: int) -> float:
    return cell_units(depth, spec.total_layers, spec.recipe.prefix) + _OVERHEAD


class Purse:
    """What the budget still allows; without one, a share of what the paper's protocol would cost."""

    def __init__(self, spec: StudySpec, outcomes: Iterable[Outcome]):
        self.spec = spec
        self.limit, self.unit, self.stated = _budget(spec)
        self.spent = sum(self._price(outcome.cell) for outcome in outcomes)

    def _price(self, cell: Cell) -> float:
        if self.unit == "cells":
            return 1.0
        full = cell_units(FULL, self.spec.total_layers, self.spec.recipe.prefix)
        return cell_units(cell.frozen_layers, self.spec.total_layers, self.spec.recipe.prefix) / full

    def afford(self, cells: list[Cell]) -> list[Cell]:
        """The cells that fit, in their order, charged at once."""
        bought = []
        for cell in cells:
            if self.spent + self._price(cell) <= self.limit + 1e-9:
                self.spent += self._price(cell)
                bought.append(cell)
        return bought


def _budget(spec: StudySpec) -> tuple[float, str, bool]:
    if spec.budget is not None:
        return float(spec.budget), spec.budget_unit, True
    seeds = min(len(spec.seeds), BUDGET_SEEDS)
    units = [cell_units(depth, spec.total_layers, spec.recipe.prefix) for depth in spec.frozen_layers]
    paper = len(spec.learning_rates) * max(units) + sum(units) - max(units)
    return BUDGET_SHARE * seeds * len(spec.train_sizes) * paper / max(units), "units", False


def _explain_size(spec: StudySpec, outcomes: Sequence[Outcome], size: int | None) -> str:
    where = "" if size is None else f"train size {size}: "
    belief = posterior(spec, outcomes, size)
    mine = [outcome for outcome in outcomes if outcome.cell.train_size == size]
    if belief is None:
        left = any(o.state in ("WAITING", "RUNNING") for o in mine) or not mine
        return where + ("no full-model run yet" if left else "every full-model run failed: no answer")
    answer = f"{belief.frozen_layers} frozen ({spec.total_layers - belief.frozen_layers} tuned)"
    probability = float(belief.probability[belief.answer])
    figures = f"answer {answer} at {spec.threshold:.0%}, probability {probability:.2f}, {len(mine)} cells"
    if belief.full <= 0:
        figures = f"the full model scores {belief.full:.3g}: a share of it means nothing, {len(mine)} cells"
    return where + figures + _ending(spec, outcomes, mine, size, probability)


def _ending(
    spec: StudySpec, outcomes: Sequence[Outcome], mine: list[Outcome], size: int | None, probability: float
) -> str:
    if any(outcome.state in ("WAITING", "RUNNING") for outcome in mine):
        return ", searching"
    cells = next_cells(_evidence(spec, size, mine, []))
    purse = Purse(spec, outcomes)
    if cells and purse.afford(cells):
        return ", searching"
    if cells:
        name = "budget" if purse.stated else "default budget"
        return (
            f"; stopped: the {name} of {purse.limit:.4g} {purse.unit} is spent"
            + (f" before confidence {spec.confidence:g}" if probability < spec.confidence else "")
            + ("" if purse.stated else "; --budget allows more")
        )
    if probability < spec.confidence:
        return f"; stopped: no seed is left that would help, confidence {spec.confidence:g} not reached"
    return f"; confidence {spec.confidence:g} reached"
