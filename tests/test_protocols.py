"""The protocols that want everything at once, the paper's two phases, and their defaults."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objectives.contract import Cell, Outcome, Recipe, UsageError
from study import protocols
from study.launching.arguments import make_parser
from study.specs.study_spec import StudySpec

RATES = (1e-5, 2e-5, 3e-5, 4e-5, 5e-5)


def make_spec(protocol: str = "grid", **changes: object) -> StudySpec:
    spec = StudySpec(
        task="mrpc",
        metric="f1",
        model="m",
        model_fingerprint="m",
        data="d",
        data_fingerprint="d",
        total_layers=12,
        protocol=protocol,
        frozen_layers=(0, *range(6, 13)),
        learning_rates=RATES,
        seeds=(1, 2, 3),
        recipe=Recipe(),
        protocol_settings=tuple(sorted(protocols.get(protocol).own_settings({}, (1, 2, 3)).items())),
    )
    return replace(spec, **changes)


def score(cell: Cell) -> float:
    """Best at 3e-5, falling with depth."""
    return 0.9 - abs(cell.learning_rate - 3e-5) * 1e3 - 0.01 * max(cell.frozen_layers, 0) + cell.seed * 1e-4


def run_to_end(
    spec: StudySpec, shuffle: random.Random, fails: frozenset[Cell] = frozenset()
) -> list[Outcome]:
    """A study whose cells end one by one in any order."""
    outcomes: dict[Cell, Outcome] = {}
    for _ in range(5_000):
        for cell in protocols.get(spec.protocol).wanted(spec, list(outcomes.values())):
            outcomes.setdefault(cell, Outcome(cell, "WAITING"))
        open_cells = [cell for cell, outcome in outcomes.items() if outcome.state == "WAITING"]
        if not open_cells:
            return list(outcomes.values())
        cell = shuffle.choice(open_cells)
        state = "FAIL" if cell in fails else "COMPLETE"
        outcomes[cell] = Outcome(cell, state, None if cell in fails else score(cell))
    raise AssertionError("the protocol never ends")


def explain(spec: StudySpec, outcomes: list[Outcome]) -> str:
    return protocols.get(spec.protocol).explain(spec, outcomes)


def defaults(protocol: str, **subject: object) -> protocols.Defaults:
    return protocols.get(protocol).defaults(protocols.Subject(**{"model": "m", **subject}))  # type: ignore[arg-type]


def test_grid_wants_every_cell_that_is_not_final() -> None:
    spec = make_spec()
    cells = protocols.get("grid").wanted(spec, [])
    assert len(cells) == len(set(cells)) == 8 * 5 * 3
    done = [Outcome(cells[0], "COMPLETE", 0.5), Outcome(cells[1], "FAIL"), Outcome(cells[2], "RUNNING")]
    assert set(cells) - set(protocols.get("grid").wanted(spec, done)) == {cells[0], cells[1]}
    assert "2 of 120" in explain(spec, done)


def test_a_recorded_grid_counts_the_cells_that_its_table_holds() -> None:
    held = [Outcome(Cell(0, 1e-5, 1), "COMPLETE", 0.9), Outcome(Cell(6, 1e-5, 1), "WAITING")]
    assert "1 of 2" in explain(make_spec(recorded=True), held)


def test_low_resource_crosses_sizes_with_depths() -> None:
    spec = make_spec("low-resource", train_sizes=(50, 100), learning_rates=(5e-5,), frozen_layers=(-1, 0, 12))
    cells = protocols.get("low-resource").wanted(spec, [])
    assert {(cell.train_size, cell.frozen_layers) for cell in cells} == {
        (size, depth) for size in (50, 100) for depth in (-1, 0, 12)
    }
    assert len(cells) == 2 * 3 * 3


def test_paper_searches_rates_on_the_full_model_first() -> None:
    spec = make_spec("paper")
    cells = protocols.get("paper").wanted(spec, [])
    assert {cell.frozen_layers for cell in cells} == {0}
    assert len(cells) == 5 * 3
    one_left = [Outcome(cell, "COMPLETE", score(cell)) for cell in cells[1:]]
    assert protocols.get("paper").wanted(spec, one_left) == cells[:1]
    assert "phase 1 of 2" in explain(spec, one_left)


@given(st.randoms(use_true_random=False))
@settings(max_examples=20)
def test_paper_runs_the_same_cells_in_any_order_of_completion(shuffle: random.Random) -> None:
    spec = make_spec("paper")
    outcomes = run_to_end(spec, shuffle)
    cells = {outcome.cell for outcome in outcomes}
    assert len(cells) == 5 * 3 + 8 * 3
    assert {cell.learning_rate for cell in cells if cell.frozen_layers} == {3e-5}
    assert "24 of 24 cells finished" in explain(spec, outcomes)


def test_paper_scores_the_full_model_by_other_runs_than_chose_its_rate() -> None:
    spec = make_spec("paper")
    cells = {outcome.cell for outcome in run_to_end(spec, random.Random(3))}
    searched = {cell for cell in cells if cell.seed in spec.search_seeds}
    scored = cells - searched
    assert {cell.frozen_layers for cell in searched} == {0}
    assert {(cell.frozen_layers, cell.seed) for cell in scored} == {
        (depth, seed) for depth in spec.frozen_layers for seed in spec.seeds
    }
    assert set(spec.space()["seed"]) == {*spec.seeds, *spec.search_seeds}
    assert set(spec.every_cell()) >= cells


def test_paper_takes_seeds_after_the_studys_own_for_its_search() -> None:
    own = protocols.get("paper").own_settings
    assert own({}, (1, 2, 3)) == {"search_seeds": (4, 5, 6)}
    assert own({"search_seeds": (9, 10)}, (1, 2, 3)) == {"search_seeds": (9, 10)}


def test_paper_goes_on_without_failed_cells() -> None:
    spec = make_spec("paper")
    search = protocols.get("paper").wanted(spec, [])
    best = frozenset(cell for cell in search if cell.learning_rate == 3e-5)
    outcomes = run_to_end(spec, random.Random(1), fails=best)
    assert {o.cell.learning_rate for o in outcomes if o.cell.frozen_layers} == {2e-5}
    everything = run_to_end(spec, random.Random(1), fails=frozenset(search))
    assert {o.cell.frozen_layers for o in everything} == {0}
    assert "failed" in explain(spec, everything)


def test_paper_chooses_by_the_selection_score_where_there_is_one() -> None:
    spec = make_spec("paper")
    search = protocols.get("paper").wanted(spec, [])
    outcomes = [
        Outcome(cell, "COMPLETE", score(cell), selection_score=-abs(cell.learning_rate - 4e-5))
        for cell in search
    ]
    assert {cell.learning_rate for cell in protocols.get("paper").wanted(spec, outcomes)} == {4e-5}


@pytest.mark.parametrize("protocol", ["paper", "adaptive"])
def test_a_search_without_the_full_model_is_refused(protocol: str) -> None:
    spec = make_spec(protocol, frozen_layers=(6, 12))
    with pytest.raises(UsageError, match="add 0 to --frozen-layers 6,12"):
        protocols.get(protocol).check(spec)


def test_unknown_protocol_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="did you mean paper"):
        protocols.get("papper")
    with pytest.raises(UsageError, match="choose from grid, paper, low-resource, adaptive"):
        protocols.get("x")


def test_defaults_of_the_paper_follow_the_model() -> None:
    bert = defaults("paper", total_layers=12, model="bert-base")
    roberta = defaults("paper", total_layers=24, model="FacebookAI/roberta-large")
    assert (bert.recipe["epochs"], roberta.recipe["epochs"]) == (3, 10)
    assert bert.recipe["prefix"] == "live"
    assert bert.recipe["optimizer"] == "adam"
    assert bert.frozen_layers == (0, 6, 7, 8, 9, 10, 11, 12)
    assert roberta.frozen_layers == (0, *range(12, 25))
    assert Recipe(**bert.recipe).score == "last"


def test_defaults_of_the_blog_scale_with_the_depth() -> None:
    for layers, depths in [(12, (-1, 0, 2, 4, 8, 10, 12)), (24, (-1, 0, 4, 8, 16, 20, 24)), (1, (-1, 0, 1))]:
        blog = defaults("low-resource", total_layers=layers)
        assert blog.frozen_layers == depths
    assert blog.train_sizes == (50, 100, 200, 500, 1000)
    assert (Recipe(**blog.recipe).warmup, blog.learning_rates, len(blog.seeds)) == (1.0, (5e-5,), 5)


def test_defaults_start_at_half_of_an_odd_number_of_layers() -> None:
    assert defaults("grid", total_layers=7, demo=True).frozen_layers == (0, 4, 5, 6, 7)


def test_help_names_every_protocol_within_80_columns() -> None:
    lines = make_parser(full=False).format_help().splitlines()
    for name, protocol in protocols.known().items():
        (line,) = [line for line in lines if line.split()[:1] == [name]]
        assert line.endswith(protocol.summary)
        assert len(line) <= 80
