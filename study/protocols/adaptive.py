"""The adaptive search: the operating point at one threshold for a fraction of the grid's work.

It races the learning rates on the full model, measures depths from the deepest up, and then adds a seed
wherever it says most about the answer for its cost. Every decision is read from the outcomes alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from objectives.contract import Cell, Outcome, UsageError
from study.protocols.budget import Purse
from study.protocols.evidence import FULL, Evidence, Spot, tuned_layers
from study.protocols.posterior import RATE_MARGIN, Posterior
from study.protocols.units import cell_units
from study.spec import StudySpec

RATE_DOUBT = 0.25
"""A rate this likely to beat the leader by more than the margin gets another seed."""
RACE_SEEDS = 3
"""Most seeds a race spends on one rate."""
SEEDS = 2
"""Fewest runs of the full model, if the spec has them."""
DEPTH_SEEDS = 4
"""Fewest runs of the answer and the depth beyond it: they are cheap, and two may agree by chance."""
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
        or _probe(evidence, belief)
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
    for j in range(len(evidence.depths) - 1, max(belief.answer - 2, -1), -1):
        spot = (evidence.depths[j], _depth_rate(evidence, belief, evidence.depths[j]))
        if j not in belief.measured and evidence.next_cell(spot):
            return [spot]
    return []


def _probe(evidence: Evidence, belief: Posterior) -> list[Spot]:
    """Other learning rates where a better one would move the answer: beyond it, and at it while in doubt."""
    if evidence.spec.select != "per-depth":
        return []
    loss = 1 - evidence.spec.threshold
    for j in (belief.answer, belief.answer - 1):
        if j not in belief.measured or belief.passing[j] >= evidence.spec.confidence:
            continue
        # No rate wins back more than the whole allowed loss.
        if belief.depth_means[j] < (evidence.spec.threshold - loss) * belief.full:
            continue
        depth = evidence.depths[j]
        best = belief.best_rate(depth)
        sides = [(depth, i) for i in (best + 1, best - 1) if 0 <= i < len(evidence.rates)]
        spots = [spot for spot in sides if not evidence.tried(spot)] or belief.lucky(depth)
        if _available(evidence, spots):
            return _available(evidence, spots)
    return []


def _depth_rate(evidence: Evidence, belief: Posterior, depth: int) -> int:
    """The learning rate of a new run at a depth: its own best, or the one most depths were run at.

    Another leader takes over only when that one has lost: changing costs the runs made so far.
    """
    if evidence.spec.select == "per-depth" and evidence.depth_runs(depth):
        return belief.best_rate(depth)
    runs = dict.fromkeys(belief.good_rates, 0)
    for (frozen, rate), group in evidence.scores.items():
        if frozen != FULL and rate in runs:
            runs[rate] += len(group)
    return max(runs, key=lambda i: (runs[i], i == belief.leader, -i))


def _settled(evidence: Evidence, belief: Posterior) -> bool:
    enough = belief.probability[belief.answer] >= evidence.spec.confidence
    return bool(enough) and not _thin(evidence, belief)


def _thin(evidence: Evidence, belief: Posterior) -> list[Spot]:
    """What an answer must not rest on too few runs of: the full model, the answer, the depth beyond it."""
    beside = [evidence.depths[j] for j in (belief.answer - 1, belief.answer) if 0 <= j < len(evidence.depths)]
    spots = [(depth, _depth_rate(evidence, belief, depth)) for depth in beside]
    thin = [spot for spot in spots if sum(map(evidence.runs, belief.depth_spots(spot[0]))) < DEPTH_SEEDS]
    leader = (FULL, belief.leader)
    return _available(evidence, thin + ([leader] if evidence.runs(leader) < SEEDS else []))


def _most_telling(evidence: Evidence, belief: Posterior) -> list[Spot]:
    """The spot whose next seed takes most doubt from the open depths per layer unit."""
    if not belief.measured:
        return []
    spec = evidence.spec
    threshold = spec.threshold
    doubt = belief.open / (np.diag(belief.depth_covariance) + threshold**2 * belief.full_variance)
    gains: list[tuple[float, Spot]] = []
    for j, depth in enumerate(evidence.depths):
        column, spot = belief.depth_covariance[:, j], (depth, _depth_rate(evidence, belief, depth))
        gain = float(doubt @ column**2) / (column[j] + belief.variance(spot))
        gains.append((gain / _cost(spec, depth), spot))
    for i in belief.tried_rates:
        fall = (
            threshold**2
            * belief.full_rates[i] ** 2
            / (belief.rate_covariance[i, i] + belief.variance((FULL, i)))
        )
        if belief.shares[i] >= 0.05:
            gains.append((float(doubt.sum()) * fall / _cost(spec, FULL), (FULL, i)))
    ranked = [spot for gain, spot in sorted(gains, key=lambda g: (-g[0], g[1])) if gain > 1e-12]
    thin = _thin(evidence, belief) if belief.probability[belief.answer] >= spec.confidence else []
    return thin or _available(evidence, ranked)[:1]


def _available(evidence: Evidence, spots: Iterable[Spot]) -> list[Spot]:
    return [spot for spot in spots if evidence.next_cell(spot)]


def _cost(spec: StudySpec, depth: int) -> float:
    return cell_units(depth, spec.total_layers, spec.recipe.prefix) + _OVERHEAD


def _explain_size(spec: StudySpec, outcomes: Sequence[Outcome], size: int | None) -> str:
    where = "" if size is None else f"train size {size}: "
    belief = posterior(spec, outcomes, size)
    mine = [outcome for outcome in outcomes if outcome.cell.train_size == size]
    if belief is None:
        left = any(o.state in ("WAITING", "RUNNING") for o in mine) or not mine
        return where + ("no full-model run yet" if left else "every full-model run failed: no answer")
    tuned = tuned_layers(spec.total_layers, belief.frozen_layers)
    answer = f"{belief.frozen_layers} frozen ({tuned} tuned)"
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
