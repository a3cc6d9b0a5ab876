"""The adaptive search: pure, finite, thrifty, honest about its budget, and right on known curves."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objectives.contract import Cell, Outcome, Recipe, UsageError
from study import protocols
from study.protocols import adaptive
from study.protocols.adaptive_settings import asked
from study.protocols.outcomes import closed_cells
from study.protocols.units import cell_units, study_units
from study.specs.study_spec import StudySpec

RATES = (1e-5, 2e-5, 3e-5, 4e-5, 5e-5)
Score = Callable[[Cell], float]
OWN = {"select", "threshold", "confidence", "budget"}

SEARCH = adaptive.Adaptive()


def make_spec(layers: int = 12, **changes: object) -> StudySpec:
    spec = StudySpec(
        task="made up",
        metric="accuracy",
        model="m",
        model_fingerprint="m",
        data="d",
        data_fingerprint="d",
        total_layers=layers,
        protocol="adaptive",
        frozen_layers=(0, *range(max(layers // 2, 1), layers + 1)),
        learning_rates=RATES,
        seeds=tuple(range(1, 11)),
        recipe=Recipe(prefix="live"),
    )
    own = {name: changes.pop(name) for name in OWN & changes.keys()}
    settings = tuple(sorted({"select": "full-model", **own}.items()))
    return replace(spec, protocol_settings=settings, **changes)


def curve(relative: dict[int, float], noise: float = 0.003, seed: int = 0) -> Score:
    """A full quality of 0.8 at 3e-5, times what is left at a depth, with noise fixed by the cell."""

    def score(cell: Cell) -> float:
        draw = np.random.default_rng([seed, cell.frozen_layers + 1, int(cell.learning_rate * 1e6), cell.seed])
        rate = 1 - 0.008 * (cell.learning_rate * 1e5 - 3) ** 2
        return float(0.8 * relative[cell.frozen_layers] * rate + 0.8 * noise * draw.standard_normal())

    return score


def search(
    spec: StudySpec,
    score: Score,
    *,
    workers: int = 1,
    fails: frozenset[Cell] = frozenset(),
    order: int = 0,
) -> list[Outcome]:
    """Run a study with `workers` cells at once; which of them ends first is drawn from `order`."""
    shuffle = random.Random(order)
    outcomes: dict[Cell, Outcome] = {}
    for _ in range(10_000):
        running = [cell for cell, outcome in outcomes.items() if outcome.state == "RUNNING"]
        waiting = [cell for cell, outcome in outcomes.items() if outcome.state == "WAITING"]
        if len(running) < workers and not waiting:
            wanted = SEARCH.wanted(spec, list(outcomes.values()))
            assert len(wanted) == len(set(wanted))
            waiting = [cell for cell in wanted if cell not in outcomes]
            outcomes |= {cell: Outcome(cell, "WAITING") for cell in waiting}
        if len(running) < workers and waiting:
            outcomes[waiting[0]] = Outcome(waiting[0], "RUNNING")
        elif running:
            cell = shuffle.choice(running)
            failed = cell in fails
            outcomes[cell] = Outcome(cell, "FAIL" if failed else "COMPLETE", None if failed else score(cell))
        else:
            return list(outcomes.values())
    raise AssertionError("the search never ends")


def answer(spec: StudySpec, outcomes: list[Outcome]) -> int | None:
    belief = adaptive.believe(spec, outcomes)
    assert belief is not None
    return belief.frozen_layers


def smooth_curve(layers: int, answer_at: int, fall: float = 0.03) -> dict[int, float]:
    """Quality that crosses 90 % half a step beyond `answer_at`."""
    depths = [0, *range(layers // 2, layers + 1)]
    return {n: 1.0 if n == 0 else min(1.0, 0.9 - fall * (n - answer_at - 0.5)) for n in depths}


def cliff(layers: int, last_good: int) -> dict[int, float]:
    return {n: 0.98 if n <= last_good else 0.5 for n in range(layers + 1)}


@pytest.mark.parametrize("layers", [12, 24])
@pytest.mark.parametrize("offset", [0, 1, 3, 5])
def test_finds_where_a_falling_curve_crosses(layers: int, offset: int) -> None:
    spec = make_spec(layers)
    outcomes = search(spec, curve(smooth_curve(layers, layers - offset)))
    assert answer(spec, outcomes) == layers - offset


@pytest.mark.parametrize(("layers", "last_good"), [(12, 6), (12, 11), (24, 13), (24, 20)])
def test_finds_a_cliff(layers: int, last_good: int) -> None:
    spec = make_spec(layers)
    assert answer(spec, search(spec, curve(cliff(layers, last_good)))) == last_good


def test_a_flat_curve_costs_little() -> None:
    spec = make_spec()
    outcomes = search(spec, curve(dict.fromkeys(range(13), 0.99)))
    assert answer(spec, outcomes) == 12
    assert len(outcomes) <= 9


def test_finds_a_deep_recovery_beyond_a_dip() -> None:
    dip = {0: 1.0, 6: 0.97, 7: 0.8, 8: 0.8, 9: 0.96, 10: 0.7, 11: 0.6, 12: 0.5}
    spec = make_spec()
    outcomes = search(spec, curve(dip))
    assert answer(spec, outcomes) == 9
    assert {10, 11, 12} <= {o.cell.frozen_layers for o in outcomes}


def test_says_full_model_when_no_depth_reaches_the_threshold() -> None:
    spec = make_spec()
    outcomes = search(spec, curve({0: 1.0, **dict.fromkeys(range(6, 13), 0.6)}))
    assert answer(spec, outcomes) == 0
    assert "0 frozen (12 tuned)" in SEARCH.explain(spec, outcomes)


def test_frozen_embeddings_leave_every_layer_tuned() -> None:
    spec = make_spec(frozen_layers=(-1, 0, 6, 12))
    outcomes = search(spec, curve({0: 1.0, -1: 0.99, 6: 0.5, 12: 0.4}))
    assert answer(spec, outcomes) == -1
    assert "answer -1 frozen (12 tuned)" in SEARCH.explain(spec, outcomes)


def test_is_thrifty_on_a_clear_curve() -> None:
    spec = make_spec()
    outcomes = search(spec, curve(smooth_curve(12, 9)))
    full = study_units(
        [Cell(0, rate, seed) for rate in RATES for seed in range(5)]
        + [Cell(depth, 3e-5, seed) for depth in range(6, 13) for seed in range(5)],
        12,
        "live",
        3,
    )
    assert study_units([o.cell for o in outcomes], 12, "live", 3) < 0.28 * full


def test_moves_to_the_best_rate_at_the_edge_of_the_grid() -> None:
    def score(cell: Cell) -> float:
        return curve(smooth_curve(12, 9))(cell) * (0.7 + cell.learning_rate * 6e3)

    spec = make_spec()
    belief = adaptive.believe(spec, search(spec, score))
    assert belief is not None
    assert belief.leader == 4


def test_tries_other_rates_where_they_would_move_the_answer() -> None:
    """Deep freezes want larger rates: at the full model's rate depth 10 fails, at a larger one it passes."""

    def score(cell: Cell) -> float:
        best = 3e-5 if cell.frozen_layers < 10 else 5e-5
        base = {0: 1.0, 6: 1.0, 7: 0.99, 8: 0.98, 9: 0.97, 10: 0.95, 11: 0.7, 12: 0.5}[cell.frozen_layers]
        return 0.8 * base * (1 - 0.03 * abs(cell.learning_rate - best) * 1e5) + cell.seed * 1e-4

    per_depth, full_model = make_spec(select="per-depth"), make_spec(select="full-model")
    assert answer(per_depth, search(per_depth, score)) == 10
    assert answer(full_model, search(full_model, score)) == 9


@pytest.mark.parametrize("workers", [2, 5, 16])
def test_many_workers_find_the_same_answer(workers: int) -> None:
    spec = make_spec()
    for order in range(3):
        outcomes = search(spec, curve(smooth_curve(12, 9)), workers=workers, order=order)
        assert answer(spec, outcomes) == 9


def test_a_hungry_worker_gets_a_cell_while_others_run() -> None:
    spec = make_spec()
    flying = [Outcome(cell, "RUNNING") for cell in SEARCH.wanted(spec, [])]
    offered = [cell for cell in SEARCH.wanted(spec, flying) if cell not in {o.cell for o in flying}]
    assert offered
    waiting = [*flying, Outcome(offered[0], "WAITING")]
    assert set(SEARCH.wanted(spec, waiting)) == {o.cell for o in waiting}


NOISY_STUDY = search(make_spec(), curve(smooth_curve(12, 8), noise=0.02))


@given(st.randoms(use_true_random=False), st.integers(0, len(NOISY_STUDY)))
@settings(max_examples=25)
def test_the_same_table_gives_the_same_plan_in_any_order(shuffle: random.Random, length: int) -> None:
    spec = make_spec()
    outcomes = NOISY_STUDY[:length]
    mixed = list(outcomes)
    shuffle.shuffle(mixed)
    assert SEARCH.wanted(spec, mixed) == SEARCH.wanted(spec, outcomes)
    assert SEARCH.explain(spec, mixed) == SEARCH.explain(spec, outcomes)


@st.composite
def studies(draw: st.DrawFn) -> tuple[StudySpec, Score, frozenset[Cell], int]:
    layers = draw(st.integers(1, 8))
    depths = draw(st.sets(st.sampled_from([-1, *range(1, layers + 1)]), min_size=1))
    spec = make_spec(
        layers,
        frozen_layers=(0, *sorted(depths)),
        learning_rates=RATES[: draw(st.integers(1, 5))],
        seeds=tuple(range(1, draw(st.integers(1, 4)) + 1)),
        budget=draw(st.none() | st.integers(1, 20).map(str) | st.integers(1, 20).map("{}units".format)),
        select=draw(st.sampled_from(["per-depth", "full-model"])),
    )
    cells = [Cell(n, r, s) for n in spec.frozen_layers for r in spec.learning_rates for s in spec.seeds]
    fails = draw(st.frozensets(st.sampled_from(cells)))
    values = draw(st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=20))
    return spec, lambda cell: values[hash(cell) % len(values)], fails, draw(st.integers(1, 6))


@given(studies())
@settings(max_examples=40)
def test_any_study_ends_inside_its_grid_and_budget(
    study: tuple[StudySpec, Score, frozenset[Cell], int],
) -> None:
    spec, score, fails, workers = study
    outcomes = search(spec, score, workers=workers, fails=fails)
    cells = [outcome.cell for outcome in outcomes]
    assert len(cells) == len(set(cells))
    for cell in cells:
        assert cell.frozen_layers in spec.frozen_layers
        assert cell.learning_rate in spec.learning_rates
        assert cell.seed in spec.seeds
    budget = asked(spec).budget
    if budget is not None and budget.isdigit():
        assert len(cells) <= int(budget)
    assert SEARCH.wanted(spec, outcomes) == []
    assert "\n" not in protocols.get(spec.protocol).explain(spec, outcomes)


def test_goes_on_without_failed_cells() -> None:
    spec = make_spec()
    score = curve(smooth_curve(12, 9))
    failing = frozenset(Cell(n, r, 1) for n in spec.frozen_layers for r in RATES)
    assert answer(spec, search(spec, score, fails=failing)) == 9
    every_full = frozenset(Cell(0, rate, seed) for rate in RATES for seed in spec.seeds)
    outcomes = search(spec, score, fails=every_full)
    assert {o.cell for o in outcomes} <= every_full
    assert "full-model run" in SEARCH.explain(spec, outcomes)


def test_says_when_the_budget_was_spent() -> None:
    spec = make_spec(budget="6", confidence=0.99)
    outcomes = search(spec, curve(smooth_curve(12, 9, fall=0.01), noise=0.03))
    assert len(outcomes) == 6
    assert "the budget of 6 cells is spent before confidence 0.99" in SEARCH.explain(spec, outcomes)


@pytest.mark.parametrize("prefix", ["cached", "live"])
@pytest.mark.parametrize("layers", [12, 24])
def test_the_default_budget_is_55_percent_of_the_paper_with_its_caches(layers: int, prefix: Any) -> None:
    spec = make_spec(layers, recipe=Recipe(prefix=prefix), confidence=1.0, seeds=tuple(range(1, 21)))
    outcomes = search(spec, curve(smooth_curve(layers, layers - 3, fall=0.002), noise=0.03))
    cells = [Cell(0, rate, seed) for rate in RATES for seed in range(5)]
    cells += [Cell(depth, 3e-5, seed) for depth in spec.frozen_layers[1:] for seed in range(5)]
    spent = study_units([outcome.cell for outcome in outcomes], layers, prefix, spec.recipe.epochs)
    paper = study_units(cells, layers, prefix, spec.recipe.epochs)
    assert 0.50 * paper < spent <= 0.55 * paper
    assert "default budget" in SEARCH.explain(spec, outcomes)


def test_says_when_the_seeds_were_not_enough() -> None:
    spec = make_spec(seeds=(1,), confidence=0.999, budget="1000")
    outcomes = search(spec, curve(smooth_curve(12, 9, fall=0.005), noise=0.03))
    assert "no seed is left" in SEARCH.explain(spec, outcomes)


def test_says_when_it_is_sure() -> None:
    spec = make_spec()
    outcomes = search(spec, curve(cliff(12, 9)))
    assert "answer 9 frozen (3 tuned) at 90%" in SEARCH.explain(spec, outcomes)
    assert "confidence 0.9 reached" in SEARCH.explain(spec, outcomes)


def test_a_full_score_below_zero_has_no_answer() -> None:
    spec = make_spec()
    outcomes = search(spec, lambda cell: -0.1 - 0.001 * cell.seed)
    assert "means nothing" in SEARCH.explain(spec, outcomes)


@pytest.mark.parametrize("prefix", ["cached", "live"])
def test_the_answer_and_what_lies_beyond_it_rest_on_four_runs(prefix: Any) -> None:
    spec = make_spec(recipe=Recipe(prefix=prefix))
    outcomes = search(spec, curve(cliff(12, 9), noise=0.0001))
    runs = Counter(outcome.cell.frozen_layers for outcome in outcomes)
    assert (runs[9], runs[10]) == (4, 4)
    assert runs[0] <= 6


def collapsing(relative: dict[int, float], rates: set[float], chance: float = 0.5) -> Score:
    """Runs of the full model that learn nothing at some rates."""

    def score(cell: Cell) -> float:
        fallen = cell.frozen_layers == 0 and cell.learning_rate in rates
        return chance + 0.001 * cell.seed if fallen else curve(relative)(cell)

    return score


def rates_tried(outcomes: list[Outcome]) -> set[float]:
    return {outcome.cell.learning_rate for outcome in outcomes if outcome.cell.frozen_layers == 0}


def test_after_a_collapse_the_lowest_untried_rate_is_next() -> None:
    spec = make_spec(chance=0.5)
    first = SEARCH.wanted(spec, [])
    assert {cell.learning_rate for cell in first} == {2e-5, 3e-5}
    fine = [Outcome(cell, "COMPLETE", 0.8 + 0.001 * i) for i, cell in enumerate(first)]
    one_fell = [replace(fine[0], score=0.801), replace(fine[1], score=0.502)]
    assert [c.learning_rate for c in SEARCH.wanted(spec, one_fell)] == [1e-5]
    # Not only because it is beside the best one.
    lower_fell = [replace(fine[0], score=0.502), replace(fine[1], score=0.801)]
    assert [c.learning_rate for c in SEARCH.wanted(spec, lower_fell)] == [1e-5]
    lower_lost = [Outcome(first[0], "FAIL", reason="diverged: the loss is nan"), fine[1]]
    assert [c.learning_rate for c in SEARCH.wanted(spec, lower_lost)] == [1e-5]
    diverged = [replace(fine[0], score=0.801), Outcome(first[1], "FAIL", reason="diverged: the loss is nan")]
    assert [c.learning_rate for c in SEARCH.wanted(spec, diverged)] == [1e-5]
    assert 1e-5 not in {c.learning_rate for c in SEARCH.wanted(spec, fine)}


@pytest.mark.parametrize("fallen", [{2e-5}, {3e-5, 4e-5, 5e-5}, {2e-5, 3e-5, 4e-5, 5e-5}])
def test_a_search_does_not_stop_beside_a_collapse_while_a_lower_rate_is_untried(fallen: set[float]) -> None:
    spec = make_spec(chance=0.5)
    outcomes = search(spec, collapsing(smooth_curve(12, 9), fallen))
    assert 1e-5 in rates_tried(outcomes)
    assert answer(spec, outcomes) == 9


def test_a_full_model_at_chance_is_no_answer_and_no_freeze_is_run_for_it() -> None:
    spec = make_spec(chance=0.5)
    outcomes = search(spec, lambda cell: 0.5 + 0.001 * cell.seed - 0.002 * (cell.seed % 2))
    assert rates_tried(outcomes) == set(RATES)
    assert {outcome.cell.frozen_layers for outcome in outcomes} == {0}
    assert answer(spec, outcomes) is None
    assert "no answer: the full model scores 0.5" in SEARCH.explain(spec, outcomes)
    assert "confidence 0.9 not reached" in SEARCH.explain(spec, outcomes)


def test_a_depth_whose_only_run_fell_to_chance_is_run_again() -> None:
    def score(cell: Cell) -> float:
        unlucky = cell.frozen_layers == 10 and cell.seed == 1
        return 0.5 if unlucky else curve(smooth_curve(12, 10))(cell)

    spec = make_spec(chance=0.5)
    outcomes = search(spec, score)
    assert answer(spec, outcomes) == 10


def test_layer_units() -> None:
    assert cell_units(0, 12, "live") == cell_units(-1, 12, "cached") == 36
    assert cell_units(12, 12, "live") == 12
    assert cell_units(9, 12, "cached") == 9
    cells = [Cell(9, 1e-5, 1), Cell(9, 1e-5, 2), Cell(0, 1e-5, 1)]
    assert study_units(cells, 12, "cached", 3) == 9 + 9 + 36 + 3


def at_rate(outcomes: list[Outcome], depth: int) -> Counter[float]:
    return Counter(o.cell.learning_rate for o in outcomes if o.cell.frozen_layers == depth)


def test_a_clear_answer_takes_two_runs_of_the_full_model_at_its_rate() -> None:
    outcomes = search(make_spec(), curve(cliff(12, 9), noise=0.003))
    assert at_rate(outcomes, 0).most_common(1)[0][1] == 2


def done(scores: dict[tuple[int, float], list[float]]) -> list[Outcome]:
    return [
        Outcome(Cell(depth, rate, seed), "COMPLETE", score)
        for (depth, rate), runs in scores.items()
        for seed, score in enumerate(runs, start=1)
    ]


def test_three_runs_of_the_full_model_must_be_surer_than_five() -> None:
    """The search looks after every run: at one of many looks a few runs agree by chance."""
    spec = make_spec()
    spread = [0.01, -0.01, 0.004, -0.004, 0.0]
    rates = {(0, 2e-5): [0.7], (0, 4e-5): [0.7]}
    for runs, stops in ((3, False), (5, True)):
        full = {(0, 3e-5): [0.8 + x for x in spread[:runs]], (12, 3e-5): [0.6 + x for x in spread[:4]]}
        found = [
            done(rates | full | {(11, 3e-5): [0.72 + above + x for x in spread[:4]]})
            for above in np.linspace(0.0, 0.02, 80).tolist()
        ]
        beliefs = [(adaptive.believe(spec, outcomes), outcomes) for outcomes in found]
        likely = [o for belief, o in beliefs if belief and 0.91 <= (belief.probability or 0.0) <= 0.94]
        assert likely
        assert all((SEARCH.wanted(spec, outcomes) == []) is stops for outcomes in likely)


def test_the_full_model_is_run_at_the_rate_of_the_freezes() -> None:
    """A table may hold freezes at one rate only: beside a poorer full model they would look better."""
    spec = make_spec(select="per-depth", recorded=True)
    relative = smooth_curve(12, 9, fall=0.02)

    def score(cell: Cell) -> float:
        # The full model is a little better at 2e-5; all freezes were recorded at 5e-5.
        slow = 0.01 if cell.frozen_layers == 0 and cell.learning_rate == 2e-5 else 0.0
        return 0.8 * relative[cell.frozen_layers] + slow + 0.001 * (cell.seed % 3)

    kept = {cell for cell in spec.every_cell() if cell.frozen_layers == 0 or cell.learning_rate == 5e-5}
    closed = closed_cells(spec, kept)
    outcomes: dict[Cell, Outcome] = {}
    for _ in range(200):
        wanted = SEARCH.wanted(spec, [*outcomes.values(), *closed])
        if not wanted:
            break
        outcomes |= {cell: Outcome(cell, "COMPLETE", score(cell)) for cell in wanted}
    found = list(outcomes.values())
    assert at_rate(found, 0)[5e-5] >= 2
    belief = adaptive.believe(spec, found)
    assert belief is not None
    assert belief.evidence.rates[belief.full_rate] == 5e-5


def test_a_rate_that_only_looks_better_is_not_raced_once_freezes_were_run() -> None:
    """One lucky run at a rate asks for its neighbours before there are freezes, but not after."""
    spec = make_spec(select="per-depth")
    raced = {(0, 3e-5): [0.80, 0.80], (0, 4e-5): [0.79], (0, 2e-5): [0.805]}
    assert [(c.frozen_layers, c.learning_rate) for c in SEARCH.wanted(spec, done(raced))] == [(0, 1e-5)]
    frozen = {(12, 3e-5): [0.5], (11, 3e-5): [0.5], (10, 3e-5): [0.78]}
    wanted = SEARCH.wanted(spec, done(raced | frozen))
    assert wanted
    assert all(cell.frozen_layers != 0 for cell in wanted)
    better = raced | {(0, 2e-5): [0.86]}
    assert [c.frozen_layers for c in SEARCH.wanted(spec, done(better | frozen))] == [0]


def test_a_search_knows_how_little_a_small_test_set_says_of_chance() -> None:
    """Three points above chance on a test set that leaves a standard error of three: nothing was learned."""
    spec = make_spec(chance=0.5)
    outcomes = [
        Outcome(Cell(depth, 3e-5, seed), "COMPLETE", 0.53 + 0.001 * seed, score_error=0.03)
        for depth in (0, 12)
        for seed in (1, 2, 3)
    ]
    belief = adaptive.believe(spec, outcomes)
    assert belief is not None
    assert belief.no_answer is not None
    assert "is not clearly better than chance (0.5)" in belief.no_answer
    large = [replace(outcome, score_error=0.002) for outcome in outcomes]
    assert adaptive.believe(spec, large).no_answer is None  # type: ignore[union-attr]


def test_a_budget_that_affords_no_run_is_refused_and_the_default_always_does() -> None:
    """Else nothing is planned, and the launch calls all cells finished."""
    with pytest.raises(UsageError, match=r"--budget 0\.5units is less than one run"):
        SEARCH.wanted(make_spec(budget="0.5units"), [])
    small = make_spec(seeds=(1,), learning_rates=(1e-5,), frozen_layers=(0, 9))
    assert [cell.frozen_layers for cell in SEARCH.wanted(small, [])] == [0]
