"""Summaries by train size and depth, by hand."""

from __future__ import annotations

import pytest
from tables import rows, table

from study.analysis.analyse import analyse
from study.analysis.train_sizes import sized, summaries


def test_summaries_by_hand_with_the_best_marked() -> None:
    data = table(
        rows({0: [0.55, 0.6, 0.8], -1: [0.7, 0.7, 0.7], 2: [0.6]}, train_size=50, chance=0.509),
        rows({0: [0.9, 0.9], 2: [0.9, 0.9]}, train_size=100),
    )
    found = summaries(analyse(data, draws=10).curves)
    assert [(s.train_size, s.frozen_layers, s.best) for s in found] == [
        (50, 0, False),
        (50, -1, True),
        (50, 2, False),
        (100, 0, True),
        (100, 2, True),
    ]
    first = found[0]
    assert (first.mean, first.median, first.min, first.max) == (pytest.approx(1.95 / 3), 0.6, 0.55, 0.8)
    assert first.std == pytest.approx(0.1322876)  # of 0.55, 0.6, 0.8 with n - 1
    assert (first.replicates, first.chance) == (3, 0.509)
    assert found[2].std is None


def test_failed_replicates_are_not_in_the_summary() -> None:
    data = table(
        rows({0: [0.5, 0.7]}, train_size=50), rows({0: [0.0]}, seeds=[3], train_size=50, state="FAIL")
    )
    (summary,) = summaries(analyse(data, draws=10).curves)
    assert (summary.replicates, summary.mean) == (2, pytest.approx(0.6))


def test_only_pairs_with_several_sizes_are_a_low_resource_study() -> None:
    data = table(
        rows({0: [0.5]}, train_size=50),
        rows({0: [0.5]}, train_size=100),
        rows({0: [0.5]}, task="sst2"),
    )
    curves = analyse(data, draws=10).curves
    assert [(c.task, c.train_size) for c in sized(curves)] == [("rte", 50), ("rte", 100)]
