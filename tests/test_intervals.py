"""Student's intervals: quantiles as tabled, Fieller by hand, and the coverage they promise."""

from __future__ import annotations

import numpy as np
import pytest

from study.analysis.intervals import Compared, compare, mean_interval, student


@pytest.mark.parametrize(
    ("share", "degrees", "expected"),
    [(0.975, 1, 12.7062), (0.975, 2, 4.30265), (0.95, 4, 2.13185), (0.975, 30, 2.04227), (0.5, 3.5, 0.0)],
)
def test_quantiles_are_the_tabled_ones(share: float, degrees: float, expected: float) -> None:
    assert student(share, degrees) == pytest.approx(expected, abs=1e-4)


def test_the_interval_of_a_mean() -> None:
    assert mean_interval(np.array([0.5])) is None
    assert mean_interval(np.array([0.1, 0.1, 0.1])) == (pytest.approx(0.1), pytest.approx(0.1))
    low, high = mean_interval(np.array([1.0, 3.0])) or (0.0, 0.0)  # 2 +- 12.7062 x 1
    assert (low, high) == (pytest.approx(-10.7062, abs=1e-4), pytest.approx(14.7062, abs=1e-4))


def test_fieller_holds_the_shares_that_students_test_does_not_reject() -> None:
    generator = np.random.default_rng(0)
    for paired in (True, False):
        runs = Compared(generator.normal(0.7, 0.02, 4), generator.normal(0.8, 0.03, 4), paired)
        low, high = runs.ratio_interval() or (0.0, 0.0)
        assert low < runs.scores.mean() / runs.full.mean() < high
        degrees = 3 if paired else runs._degrees(runs.scores.mean() / runs.full.mean())
        for share in (low, high):
            difference = runs.scores - share * runs.full
            variance = np.var(difference, ddof=1) / 4
            if not paired:
                variance = (np.var(runs.scores, ddof=1) + share**2 * np.var(runs.full, ddof=1)) / 4
            assert abs(difference.mean()) == pytest.approx(student(0.975, degrees) * variance**0.5)


def test_welchs_degrees_of_freedom() -> None:
    scores, full = np.array([0.0, 0.02]), np.array([0.5, 0.54, 0.52])  # errors 0.01 and 0.04 / sqrt(12)
    runs = Compared(scores, full, False)
    # variances of the means 1e-4 and 4e-4 / 3: (7e-4 / 3)^2 / (1e-8 / 1 + (4e-4 / 3)^2 / 2)
    assert runs._degrees(1.0) == pytest.approx(2.882, abs=1e-3)
    expected = (0.01 - 0.52) - student(0.95, 2.882) * (7e-4 / 3) ** 0.5
    assert runs.lower_bound(1.0) == pytest.approx(expected)


def test_a_full_mean_that_may_be_zero_bounds_nothing() -> None:
    scores = np.array([0.3, 0.3, 0.3])
    assert Compared(scores, np.array([0.0, 0.5, 1.0]), True).ratio_interval() is None  # 0.5 < 4.3 x 0.289
    assert Compared(scores, np.array([-0.3, -0.3, -0.3]), True).ratio_interval() is None


def test_runs_are_paired_by_seed_where_the_seeds_are_the_same() -> None:
    full, seeds = np.array([0.5, 0.7, 0.9]), np.array([1, 2, 3])
    turned = np.array([3, 1, 2])
    paired = compare(0.9 * full[turned - 1], turned, full, seeds, paired=True)
    assert paired is not None
    assert paired.ratio_interval() == (pytest.approx(0.9), pytest.approx(0.9))
    assert paired.lower_bound(0.9) == pytest.approx(0.0, abs=1e-12)
    for others, wanted in ((np.array([1, 2, 4]), True), (np.array([1, 1, 2]), True), (seeds, False)):
        apart = compare(0.9 * full, others, full, seeds, paired=wanted)
        assert apart is not None
        assert not apart.paired
        assert apart.lower_bound(0.9) < -0.1
    assert compare(full[:1], seeds[:1], full, seeds, paired=True) is None


@pytest.mark.parametrize("runs", [3, 5])
@pytest.mark.parametrize("paired", [True, False])
def test_the_relative_interval_covers_the_truth_as_often_as_it_says(runs: int, paired: bool) -> None:
    generator = np.random.default_rng(runs)
    studies, full, deep = 1000, 0.80, 0.74
    of_seed = generator.normal(0, 0.01 * paired, (studies, 1, runs))
    scores = np.array([[full], [deep]]) + of_seed + generator.normal(0, 0.015, (studies, 2, runs))
    seeds = np.arange(runs)
    covered = sure = 0
    for here in scores:
        compared = compare(here[1], seeds, here[0], seeds, paired=paired)
        assert compared is not None
        low, high = compared.ratio_interval() or (1.0, 0.0)
        covered += low <= deep / full <= high
        sure += compared.lower_bound(deep / full) >= 0
    assert 0.92 <= covered / studies <= 0.99
    assert 0.03 <= sure / studies <= 0.07
