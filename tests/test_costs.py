"""The cost of each depth, relative to full, and the Pareto front, by hand."""

from __future__ import annotations

from typing import Any

import pytest
from tables import rows, table

from study.analysis.analyse import analyse
from study.analysis.costs import CurveCosts, costs, pareto_front


def measured(
    depth: int, seconds: list[float], memory: int, trainable: int, **columns: Any
) -> list[dict[str, Any]]:
    made = rows({depth: [0.8 - depth / 100] * len(seconds)}, **columns)
    for row, value in zip(made, seconds, strict=True):
        row |= {
            "train_seconds": value,
            "peak_memory_bytes": memory,
            "trainable_parameters": trainable,
            "total_parameters": 1000,
        }
    return made


def only(*parts: list[dict[str, Any]]) -> CurveCosts:
    data = table(*parts)
    (found,) = costs(data, analyse(data, draws=10))
    return found


def test_costs_are_medians_relative_to_full() -> None:
    found = only(measured(0, [10, 12, 50], 4000, 1000), measured(3, [3, 4, 5], 1000, 200))
    deep = found.at(3)
    assert deep is not None
    assert (deep.runs, deep.train_seconds, deep.trainable_share) == (3, 4.0, 0.2)
    assert deep.storage_bytes == 800
    assert deep.relative == {
        "trainable_share": pytest.approx(0.2),
        "seconds": pytest.approx(4 / 12),
        "peak_memory_bytes": pytest.approx(0.25),
        "storage_bytes": pytest.approx(0.2),
    }
    assert found.parameters == "measured"
    assert found.pareto["seconds"] == (0, 3)


def test_the_states_of_frozen_layers_are_paid_once() -> None:
    deep = measured(3, [3.0, 4.0, 5.0], 1000, 200)
    for row, seconds in zip(deep, (2.5, 0.0, 0.0), strict=True):
        row["prefix_seconds"] = seconds
    cost = only(measured(0, [10.0, 10.0, 10.0], 4000, 1000), deep).at(3)
    assert cost is not None
    assert (cost.prefix_seconds, cost.seconds) == (2.5, 6.5)
    assert cost.relative["seconds"] == pytest.approx(0.65)


def test_failed_trials_cost_nothing_here_and_what_was_not_recorded_is_unknown() -> None:
    failed = measured(3, [99.0], 9, 9, state="FAIL")
    found = only(measured(0, [10.0], 4000, 1000), rows({3: [0.7]}, seeds=[2]), failed)
    deep = found.at(3)
    assert deep is not None
    assert (deep.runs, deep.seconds, deep.storage_bytes, deep.relative) == (1, None, None, {})
    assert found.pareto["seconds"] == (0,)


def test_without_a_full_model_nothing_is_relative() -> None:
    cost = only(measured(3, [3.0], 1000, 200)).at(3)
    assert cost is not None
    assert (cost.seconds, cost.relative) == (3.0, {})


def test_the_papers_models_are_counted_from_their_configurations() -> None:
    scores = {0: [0.8], -1: [0.8], 9: [0.75], 12: [0.5]}
    found = only(rows(scores, model="google-bert/bert-base-uncased", total_layers=12))
    assert found.parameters == "counted"
    trainable = {d.frozen_layers: d.trainable_parameters for d in found.depths}
    assert trainable == {0: 109_482_240, -1: 85_645_056, 9: 21_854_208, 12: 590_592}
    assert found.pareto["trainable_share"] == (-1, 9, 12)  # full costs more and is no better than -1
    assert found.pareto["seconds"] == ()
    other = only(rows(scores, model="bert-base", total_layers=13))
    assert other.parameters == "unknown"


def test_costs_of_several_machines_say_so() -> None:
    here = measured(0, [10.0], 1, 1, host="a", device="cpu")
    there = measured(3, [1.0], 1, 1, host="b", device="gpu")
    assert "2 machines" in only(here, there).notes[0]
    assert only(here, measured(3, [1.0], 1, 1, host="a", device="cpu")).notes == ()


def test_the_pareto_front() -> None:
    points = [(0, 10.0, 0.9), (1, 8.0, 0.91), (2, 5.0, 0.85), (3, 5.0, 0.80), (4, 1.0, 0.5), (5, 1.0, 0.5)]
    assert pareto_front(points) == (1, 2, 4, 5)
    assert pareto_front([]) == ()
