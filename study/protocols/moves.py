"""What the adaptive search runs next: a list of moves, of which the first that has something to run is made.

It races the learning rates on the full model, measures depths from the deepest up, tries other rates where
they would move the answer, and then adds a seed wherever it says most about the answer for its cost.
"""

from __future__ import annotations

from collections.abc import Iterable

from objectives.contract import Cell
from study.protocols.belief import RATE_MARGIN, Belief
from study.protocols.evidence import FULL, Evidence, Spot
from study.protocols.units import cell_units
from study.specs.study_spec import StudySpec

RATE_DOUBT = 0.4
"""A rate this likely to beat the leader by more than the margin gets another seed."""
RACE_SEEDS = 2
"""Most seeds a race spends on one rate."""
LATE_DOUBT = 0.65
"""Once freezes were run, only a rate this likely to beat theirs by the margin is raced on: another rate would
cost all of these runs."""
SEEDS, ENOUGH_SEEDS = 2, 5
"""Fewest runs of the full model, and from how many on the asked probability is enough to stop."""
DEPTH_SEEDS = 4
"""Fewest runs of the answer and the depth beyond it: they are cheap, and two may agree by chance."""
_OVERHEAD = 1.0
"""Layer units any trial costs, so that a cell without trained layers is not for free."""


def next_cells(evidence: Evidence) -> list[Cell]:
    """What to run next, most useful first; nothing where the answer is settled or no seed is left."""
    cells = [evidence.next_cell(spot) for spot in _next_spots(evidence)]
    return [cell for cell in cells if cell is not None]


def _next_spots(evidence: Evidence) -> list[Spot]:
    start = _start(evidence)
    untried = [(FULL, rate) for rate in start if not evidence.tried((FULL, rate))]
    if untried:
        return untried
    if not any(depth == FULL for depth, _ in evidence.runs):
        return _any_full(evidence)
    belief = Belief(evidence)
    if belief.no_answer is not None:
        return _below_a_collapse(evidence) or _race(evidence, belief) or _learn_something(evidence, belief)
    return (
        _below_a_collapse(evidence)
        or _race(evidence, belief)
        or _same_rates(evidence, belief)
        or _scan(evidence, belief)
        or _probe(evidence, belief)
        or _repeat_at_chance(evidence, belief)
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


def _below_a_collapse(evidence: Evidence) -> list[Spot]:
    """While any run of the full model is at chance or diverged, the lowest rate that was not tried."""
    lost = any(spot[0] == FULL for spot in evidence.diverged)
    if not (lost or evidence.at_chance(FULL)):
        return []
    untried = [(FULL, i) for i in range(len(evidence.rates)) if not evidence.tried((FULL, i))]
    return _available(evidence, untried)[:1]


def _race(evidence: Evidence, belief: Belief) -> list[Spot]:
    """Untried neighbours of the leading rate, then the closest rival that may beat it by the margin."""
    margin = RATE_MARGIN * (1 - evidence.asked.threshold)
    leader = belief.leader
    frozen = any(depth != FULL for depth, _ in evidence.runs)
    if frozen and leader != belief.full_rate and belief.worse(belief.full_rate, leader, margin) <= LATE_DOUBT:
        leader = belief.full_rate
    sides = [i for i in (leader - 1, leader + 1) if 0 <= i < len(evidence.rates)]
    untried = [(FULL, i) for i in sides if not evidence.tried((FULL, i))]
    if untried:
        return untried
    doubts = [
        (belief.worse(leader, i, margin), -i)
        for i in belief.tried_rates
        if i != leader and evidence.count((FULL, i)) < RACE_SEEDS
    ]
    doubt, rival = max(doubts, default=(0.0, 0))
    if doubt <= RATE_DOUBT:
        return []
    pair = sorted(
        [(evidence.count((FULL, leader)), (FULL, leader)), (evidence.count((FULL, -rival)), (FULL, -rival))]
    )
    return _available(evidence, [spot for runs, spot in pair if runs < RACE_SEEDS])[:1]


def _learn_something(evidence: Evidence, belief: Belief) -> list[Spot]:
    """Where the full model is no better than chance: every rate, lowest first, then a few seeds of the best.

    After that the study has no answer, and freezes would not give it one.
    """
    untried = [(FULL, i) for i in range(len(evidence.rates)) if not evidence.tried((FULL, i))]
    again = [(FULL, belief.leader)] if evidence.count((FULL, belief.leader)) < RACE_SEEDS else []
    return _available(evidence, [*untried, *again])[:1]


def _same_rates(evidence: Evidence, belief: Belief) -> list[Spot]:
    """The full model at the rates that stand for the answer and the depth beyond it.

    Beside a full model at a poorer rate than its own a freeze looks better than it is.
    """
    if belief.place < 0:
        return []
    beside = [d for d in evidence.depths[belief.place : belief.place + 2] if belief.is_measured(d)]
    rates = [rate for d in beside if (rate := belief.best_rate(d)) is not None]
    return _available(evidence, [(FULL, rate) for rate in rates if not evidence.tried((FULL, rate))])[:1]


def _scan(evidence: Evidence, belief: Belief) -> list[Spot]:
    """The deepest depth not yet measured that could be the answer or lies beyond it.

    Quality need not fall with every layer, so nothing deeper than the answer is taken on trust.
    """
    for j in range(len(evidence.depths) - 1, max(belief.place - 1, -1), -1):
        spot = (evidence.depths[j], _depth_rate(evidence, belief, evidence.depths[j]))
        if not belief.is_measured(evidence.depths[j]) and evidence.next_cell(spot):
            return [spot]
    return []


def _probe(evidence: Evidence, belief: Belief) -> list[Spot]:
    """Other learning rates where a better one would move the answer: beyond it, and at it while in doubt."""
    if evidence.asked.select != "per-depth":
        return []
    loss = 1 - evidence.asked.threshold
    full = float(belief.measured.estimate.means[0])
    for j in (belief.place + 1, belief.place):
        depth = evidence.depths[j] if 0 <= j < len(evidence.depths) else FULL
        rate = belief.best_rate(depth)
        if depth == FULL or rate is None or belief.passing(depth) >= evidence.asked.confidence:
            continue
        # No rate wins back more than the whole allowed loss.
        if _mean(belief, depth) < (evidence.asked.threshold - loss) * full:
            continue
        sides = [(depth, i) for i in (rate + 1, rate - 1) if 0 <= i < len(evidence.rates)]
        spots = _available(evidence, [spot for spot in sides if not evidence.tried(spot)])
        spots = spots or _available(evidence, _lucky(evidence, belief, depth))
        if spots:
            return spots
    return []


def _lucky(evidence: Evidence, belief: Belief, depth: int) -> list[Spot]:
    """Rates of a depth with a better mean than the one that stands for it, but too few runs to count."""
    mean = _mean(belief, depth)
    return sorted(
        spot
        for spot, runs in evidence.runs.items()
        if spot[0] == depth and sum(run.score for run in runs) / len(runs) > mean
    )


def _mean(belief: Belief, depth: int) -> float:
    place = next(i for i, d in enumerate(belief.group.depths) if d.frozen_layers == depth)
    return float(belief.measured.estimate.means[place])


def _repeat_at_chance(evidence: Evidence, belief: Belief) -> list[Spot]:
    """A depth whose only run is at chance, although a deeper freeze learns: that may be the seed's fault."""
    floor = evidence.floor
    if floor is None:
        return []
    for j, depth in enumerate(evidence.depths[:-1]):
        rate = belief.best_rate(depth)
        beyond = [d for d in evidence.depths[j + 1 :] if belief.is_measured(d)]
        alone = rate is not None and evidence.depth_count(depth) == 1 and evidence.at_chance(depth)
        if alone and any(_mean(belief, d) > floor for d in beyond):
            spots = _available(evidence, [(depth, rate or 0)])
            if spots:
                return spots
    return []


def _depth_rate(evidence: Evidence, belief: Belief, depth: int) -> int:
    """The learning rate of a new run at a depth: its own best, or the one most depths were run at.

    Another leader takes over only when that one has lost: changing costs the runs made so far.
    """
    own = belief.best_rate(depth)
    if own is not None:
        return own
    runs = dict.fromkeys(belief.good_rates, 0)
    for (frozen, rate), group in evidence.runs.items():
        if frozen != FULL and rate in runs:
            runs[rate] += len(group)
    wish = max(runs, key=lambda i: (runs[i], i == belief.leader, -i))
    if evidence.asked.select == "full-model":
        wish = belief.full_rate
    # Of a recorded study not every depth can be run at every rate.
    can = [i for i in range(len(evidence.rates)) if evidence.next_cell((depth, i))]
    return min(can, key=lambda i: (abs(i - wish), i), default=wish)


def _settled(evidence: Evidence, belief: Belief) -> bool:
    return _sure(evidence, belief) and not _thin(evidence, belief)


def _sure(evidence: Evidence, belief: Belief) -> bool:
    """The fewer runs of the full model, the surer it must be: the search looks often, and few runs agree by
    chance."""
    few = (belief.chosen_runs(FULL) - 1) / max(min(ENOUGH_SEEDS, len(evidence.spec.seeds)) - 1, 1)
    asked = 1 - (1 - evidence.asked.confidence) * min(few, 1.0)
    return belief.probability is not None and belief.probability >= asked


def _thin(evidence: Evidence, belief: Belief) -> list[Spot]:
    """What an answer must not rest on too few runs of: the full model, the answer, the depth beyond it."""
    places = [j for j in (belief.place, belief.place + 1) if 0 <= j < len(evidence.depths)]
    beside = [evidence.depths[j] for j in places]
    thin = [
        (depth, _depth_rate(evidence, belief, depth))
        for depth in beside
        if belief.chosen_runs(depth) < DEPTH_SEEDS
    ]
    full = [(FULL, belief.full_rate)] if belief.chosen_runs(FULL) < SEEDS else []
    return _available(evidence, thin + full)


def _most_telling(evidence: Evidence, belief: Belief) -> list[Spot]:
    """The spot whose next seed takes most doubt from the open depths per layer unit."""
    spots = [(depth, rate) for depth in evidence.depths if (rate := belief.best_rate(depth)) is not None]
    if not spots:
        return []
    gains = [
        (belief.gain(spot) / _cost(evidence.spec, spot[0]), spot)
        for spot in [*spots, (FULL, belief.full_rate)]
    ]
    ranked = [spot for gain, spot in sorted(gains, key=lambda g: (-g[0], g[1])) if gain > 1e-12]
    thin = _thin(evidence, belief) if belief.probability is None or _sure(evidence, belief) else []
    return thin or _available(evidence, ranked)[:1]


def _available(evidence: Evidence, spots: Iterable[Spot]) -> list[Spot]:
    return [spot for spot in spots if evidence.next_cell(spot)]


def _cost(spec: StudySpec, depth: int) -> float:
    return cell_units(depth, spec.total_layers, spec.recipe.prefix) + _OVERHEAD
