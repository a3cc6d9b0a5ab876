"""The joint distribution of the depths' quality: by hand, by Student's tests, and how often it is right."""

from __future__ import annotations

import numpy as np
import pytest

from study.analysis.estimate import Prior, Runs, estimate
from study.analysis.intervals import fieller, student


def runs(*values: float, seeds: list[int] | None = None) -> Runs:
    return Runs(np.array(seeds or range(1, len(values) + 1)), np.array(values))


@pytest.mark.parametrize(
    ("share", "degrees", "expected"),
    [(0.975, 1, 12.7062), (0.975, 2, 4.30265), (0.95, 4, 2.13185), (0.975, 30, 2.04227), (0.5, 3.5, 0.0)],
)
def test_quantiles_are_the_tabled_ones(share: float, degrees: float, expected: float) -> None:
    assert student(share, degrees) == pytest.approx(expected, abs=1e-4)


def test_one_depth_alone_has_students_interval() -> None:
    low, high = estimate([runs(1.0, 3.0)], paired=True).interval(0) or (0.0, 0.0)  # 2 +- 12.7062 x 1
    assert (low, high) == (pytest.approx(-10.7062, abs=1e-4), pytest.approx(14.7062, abs=1e-4))
    assert estimate([runs(0.5)], paired=True).interval(0) is None
    assert estimate([runs(0.1, 0.1, 0.1)], paired=True).interval(0) == (
        pytest.approx(0.1),
        pytest.approx(0.1),
    )


def test_variances_are_shrunk_to_the_pooled_one() -> None:
    found = estimate([runs(0.0, 2.0), runs(5.0, 5.0, 5.0), runs(7.0)], paired=False)
    pooled = (
        2.0 / 3
    )  # squares 2 and 0 over 1 + 2 degrees of freedom; half of what the other depths know counts
    expected = [(1 * pooled + 2.0) / 2 / 2, 0.5 * pooled / 2.5 / 3, pooled]
    assert np.diag(found.over_seeds) == pytest.approx(expected)
    assert found.degrees.tolist() == [2.0, 2.5, 1.5]
    many = estimate([runs(0.0, 2.0)] * 9, paired=False)
    assert many.degrees.tolist() == [3.0] * 9  # two runs' worth at most


def test_fieller_holds_the_shares_that_students_test_does_not_reject() -> None:
    low, high = fieller(0.7, 0.8, 1e-4, 2e-4, 5e-5, 2.5) or (0.0, 0.0)
    assert low < 0.7 / 0.8 < high
    for share in (low, high):
        variance = 1e-4 - 2 * share * 5e-5 + share**2 * 2e-4
        assert abs(0.7 - share * 0.8) == pytest.approx(2.5 * variance**0.5)
    assert fieller(0.3, 0.5, 1e-4, 0.09, 0.0, 2.0) is None  # 0.5 < 2 x 0.3
    assert fieller(0.3, -0.3, 1e-4, 1e-4, 0.0, 2.0) is None


def test_runs_with_the_same_seed_share_what_it_does_to_them() -> None:
    full = runs(0.5, 0.7, 0.9)
    same = estimate([full, runs(0.46, 0.63, 0.82)], paired=True).contrast(1, 0.9)
    turned = estimate([full, runs(0.82, 0.46, 0.63, seeds=[3, 1, 2])], paired=True).contrast(1, 0.9)
    others = estimate([full, runs(0.46, 0.63, 0.82, seeds=[4, 5, 6])], paired=True).contrast(1, 0.9)
    apart = estimate([full, runs(0.46, 0.63, 0.82)], paired=False).contrast(1, 0.9)
    assert same.variance == pytest.approx(turned.variance)
    assert others.variance == pytest.approx(apart.variance)
    assert same.variance < apart.variance / 10


def test_one_run_everywhere_claims_nothing_without_a_prior() -> None:
    single = [runs(0.8), runs(0.7)]
    assert not estimate(single, paired=True).certain
    told = estimate(single, paired=True, prior=Prior(0.01**2, 3.0))
    assert told.over_seeds[1, 1] == pytest.approx(0.01**2)


@pytest.mark.parametrize("shared", [0.0, 0.5])
@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_intervals_cover_the_truth_and_draws_agree_with_them(seeds: int, shared: float) -> None:
    generator = np.random.default_rng(seeds)
    truth = np.array([0.80, 0.79, 0.77, 0.72, 0.60])
    covered = passed = expected = drawn = 0.0
    studies = 400
    for _ in range(studies):
        common = generator.standard_normal(seeds)
        own = generator.standard_normal((5, seeds))
        scores = truth[:, None] + 0.015 * (shared**0.5 * common + (1 - shared) ** 0.5 * own)
        found = estimate([runs(*row) for row in scores], paired=True)
        low, high = found.ratio_interval(3) or (0.0, 2.0)
        covered += low <= 0.72 / 0.80 <= high
        chance = found.contrast(3, 0.9).passing
        passed += chance >= 0.95
        expected += chance
        sample = found.draws(500)
        drawn += float((sample[3] >= 0.9 * sample[0]).mean())
    assert 0.90 <= covered / studies <= 0.99
    assert passed / studies <= 0.08  # exactly at the threshold a claim is false in 5 % at most
    assert drawn == pytest.approx(expected, rel=0.03)
