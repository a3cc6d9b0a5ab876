"""Resampled means: right distribution, paired where seeds are shared, independent where they are not."""

from __future__ import annotations

import numpy as np
import pytest

from study.analysis import bootstrap
from study.analysis.bootstrap import Resampler, Runs


def runs(seeds: list[int], *columns: list[float]) -> Runs:
    return Runs(np.array(seeds), np.array(columns).T)


def expanded(resampler: Resampler, cells: list[Runs], *, paired: bool) -> np.ndarray:
    drawn = resampler.resample(cells, paired=paired)
    return np.repeat(drawn.means, drawn.times, axis=2)


@pytest.mark.parametrize("paired", [True, False])
def test_two_runs_have_three_means_in_proportion_one_two_one(paired: bool) -> None:
    means = expanded(Resampler(40_000), [runs([1, 2], [0.0, 1.0])], paired=paired)[0, 0]
    values, counts = np.unique(means, return_counts=True)
    assert values.tolist() == [0.0, 0.5, 1.0]
    assert counts / 40_000 == pytest.approx([0.25, 0.5, 0.25], abs=0.01)


def test_paired_cells_share_their_seeds_in_every_draw() -> None:
    scores = [0.5, 0.7, 0.6, 0.9]
    cells = [runs([1, 2, 3, 4], scores), runs([4, 3, 2, 1], [s * 0.9 for s in reversed(scores)])]
    first, second = expanded(Resampler(1000), cells, paired=True)[0]
    assert second == pytest.approx(0.9 * first)
    assert np.ptp(first) > 0.1


def test_independent_cells_have_nothing_in_common() -> None:
    scores = [0.5, 0.7, 0.6, 0.9]
    first, second, third = expanded(Resampler(20_000), [runs([1, 2, 3, 4], scores)] * 3, paired=False)[0]
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.03
    assert abs(np.corrcoef(first, third)[0, 1]) < 0.03
    assert first.std() == pytest.approx(np.std(scores) / 2, rel=0.03)


@pytest.mark.parametrize("seeds", [5, 12])
def test_many_and_few_seeds_agree_with_the_formula(seeds: int) -> None:
    scores = np.random.default_rng(1).random(seeds).tolist()
    for paired in (True, False):
        means = expanded(Resampler(30_000), [runs(list(range(seeds)), scores)], paired=paired)[0, 0]
        assert means.mean() == pytest.approx(np.mean(scores), abs=0.005)
        assert means.std() == pytest.approx(np.std(scores) / seeds**0.5, rel=0.03)


def test_a_cell_that_lacks_seeds_is_still_an_ordinary_bootstrap_of_its_own_runs() -> None:
    whole = runs(list(range(1, 11)), np.linspace(0, 1, 10).tolist())
    part = runs([2, 3, 7], [0.1, 0.5, 0.9])
    lone = runs([5], [0.3])
    means = expanded(Resampler(30_000), [whole, part, lone], paired=True)[0]
    assert means[1].mean() == pytest.approx(0.5, abs=0.005)
    assert means[1].std() == pytest.approx(np.std([0.1, 0.5, 0.9]) / 3**0.5, rel=0.03)
    assert np.unique(np.round(means[1], 9)).size == 7  # sums of three of {1, 5, 9} / 30
    assert means[2] == pytest.approx(0.3)
    assert np.corrcoef(means[0], means[1])[0, 1] > 0.2  # what they share stays shared


def test_a_seed_with_two_runs_is_drawn_as_one() -> None:
    twice = runs([1, 1, 2], [0.0, 1.0, 0.2])
    means = expanded(Resampler(10_000), [twice], paired=True)[0, 0]
    # seeds (1,1): 2/4 = 0.5; (1,2): 1.2/3 = 0.4; (2,2): 0.4/2 = 0.2
    values, counts = np.unique(np.round(means, 9), return_counts=True)
    assert values.tolist() == [0.2, 0.4, 0.5]
    assert counts / 10_000 == pytest.approx([0.25, 0.5, 0.25], abs=0.02)


@pytest.mark.parametrize("paired", [True, False])
def test_columns_are_drawn_together(paired: bool) -> None:
    score = [0.1, 0.4, 0.2]
    cells = [runs([1, 2, 3], score, [1 - s for s in score]), runs([1, 2], [0.5, 0.6], [0.5, 0.4])]
    means = expanded(Resampler(500), cells, paired=paired)
    assert means[0] + means[1] == pytest.approx(np.ones((2, 500)))


def test_the_same_cells_always_get_the_same_draws() -> None:
    cells = [runs(list(range(9)), np.linspace(0, 1, 9).tolist())]
    used = Resampler(200)
    used.resample([runs([1, 2, 3], [1.0, 2.0, 3.0])], paired=False)
    for paired in (True, False):
        first = used.resample(cells, paired=paired).means
        assert np.array_equal(first, Resampler(200).resample(cells, paired=paired).means)
        assert not np.array_equal(first, Resampler(200, seed=1).resample(cells, paired=paired).means)


@pytest.mark.parametrize("paired", [True, False])
def test_chunks_of_draws_are_joined(paired: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "_MOST_WEIGHTS", 100)
    monkeypatch.setattr(bootstrap, "_MOST_KEPT", 0)
    scores = np.linspace(0, 1, 10).tolist()
    cells = [runs(list(range(10)), scores), runs([0, 1], [0.0, 1.0])]
    means = expanded(Resampler(5003), cells, paired=paired)[0]
    assert means.shape == (2, 5003)
    assert means.mean(axis=1) == pytest.approx([0.5, 0.5], abs=0.02)
    assert means[0].std() == pytest.approx(np.std(scores) / 10**0.5, rel=0.05)
