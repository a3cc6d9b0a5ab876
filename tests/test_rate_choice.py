"""Which learning rate stands for a depth: best means, searches, selection scores, diverged and lucky runs."""

from __future__ import annotations

import pytest
from tables import render, rows, table, words
from test_operating_points import only

from study.analysis.analyse import analyse


def test_whom_a_choice_of_rates_flatters() -> None:
    search = rows({0: [0.7, 0.9]}, learning_rate=2e-5) + rows({0: [0.89, 0.7]}, learning_rate=3e-5)
    runs = rows({0: [0.8, 0.805], 2: [0.73, 0.73]}, learning_rate=1e-5)
    point = only(analyse(table(search, runs)))
    assert (point.full_score, point.frozen_layers) == (pytest.approx(0.8025), 2)
    chooses = analyse(table(search, runs, rows({2: [0.5, 0.5]}, learning_rate=2e-5)))
    assert "flatters the full model beside" in words(render(analyse(table(search, runs))))
    assert "flatters every depth" in words(render(chooses))
    assert "flatters" not in render(analyse(table(runs)))


def test_a_rate_with_diverged_runs_is_the_last_choice() -> None:
    nan = float("nan")
    full = rows({0: [0.9, 0.9, 0.9]}, learning_rate=3e-5)
    steady = rows({2: [0.79, 0.80, 0.795]}, learning_rate=3e-5)
    diverged = rows({2: [nan, 0.83, 0.84]}, learning_rate=5e-5)
    failed = rows({2: [nan]}, learning_rate=5e-5, state="FAIL", reason="loss is nan")
    for fast in (diverged, failed + diverged[1:]):
        analysis = analyse(table(full, steady, fast))
        assert only(analysis).frozen_layers == 0
        notes = analysis.curves[0].notes
        assert "frozen 2: rate 5e-05 was not chosen: 1 of 3 runs diverged or collapsed" in notes
        assert "1 diverged run (not in the means)" in notes
    retried = analyse(table(full, steady, failed, rows({2: [0.82, 0.83, 0.84]}, learning_rate=5e-5)))
    assert (only(retried).frozen_layers, only(retried).learning_rate) == (2, 5e-5)
    alone = analyse(table(full, steady[:1], diverged))
    assert only(alone).learning_rate == 3e-5
    alone = analyse(table(full, diverged))
    assert (only(alone).frozen_layers, only(alone).trials) == (2, 2)
    assert any("1 of 3 runs at rate 5e-05 collapsed or diverged" in note for note in alone.curves[0].notes)


def test_per_depth_and_full_model_rates() -> None:
    slow = rows({0: [0.80, 0.80], 2: [0.60, 0.60]}, learning_rate=1e-5)
    fast = rows({0: [0.78, 0.78], 2: [0.74, 0.74]}, learning_rate=5e-5)
    per_depth = only(analyse(table(slow, fast)))
    assert (per_depth.frozen_layers, per_depth.learning_rate) == (2, 5e-5)
    assert per_depth.relative == pytest.approx(0.74 / 0.80)
    full_model = only(analyse(table(slow, fast), select="full-model"))
    assert (full_model.frozen_layers, full_model.learning_rate) == (0, 1e-5)


def test_the_full_models_rate_is_one_that_other_depths_have() -> None:
    search = rows({0: [0.85, 0.85]}, learning_rate=2e-5, protocol="paper-search")
    best = rows({0: [0.80, 0.80], 2: [0.73, 0.73]}, learning_rate=3e-5, protocol="paper")
    analysis = analyse(table(search, best), select="full-model")
    point = only(analysis)
    assert (point.full_score, point.frozen_layers) == (pytest.approx(0.80), 2)
    assert any("2e-05, was not run at other depths" in note for note in analysis.curves[0].notes)


def test_search_runs_choose_the_rate_and_stay_out_of_the_score() -> None:
    search = rows({0: [0.90, 0.90]}, learning_rate=1e-5, protocol="paper-search")
    search += rows({0: [0.70, 0.70]}, learning_rate=2e-5, protocol="paper-search")
    runs = rows({0: [0.80, 0.80], 2: [0.75, 0.75]}, learning_rate=1e-5, protocol="paper")
    runs += rows({0: [0.86, 0.86]}, learning_rate=2e-5, protocol="paper")
    analysis = analyse(table(search, runs))
    assert analysis.curves[0].selected_by == "learning-rate search"
    assert only(analysis).full_score == pytest.approx(0.80)


def test_selection_scores_choose_where_the_table_has_them() -> None:
    low = rows({0: [0.80, 0.80], 2: [0.70, 0.70]}, learning_rate=1e-5, selection_score=0.9)
    high = rows({0: [0.90, 0.90], 2: [0.71, 0.71]}, learning_rate=2e-5, selection_score=0.5)
    analysis = analyse(table(low, high))
    assert analysis.curves[0].selected_by == "selection score"
    assert only(analysis).full_score == pytest.approx(0.80)
    assert "flatters" not in render(analysis)
    half = [dict(row, selection_score=None) for row in high]
    without = analyse(table(low, half))
    assert only(without).full_score == pytest.approx(0.90)
    assert any("incomplete" in note for note in without.curves[0].notes)
    assert "flatters" in render(without)


def test_one_lucky_seed_of_a_race_does_not_choose_the_rate() -> None:
    raced = rows({0: [0.95]}, learning_rate=1e-5)
    kept = rows({0: [0.80, 0.80, 0.80, 0.80], 2: [0.75] * 4}, learning_rate=2e-5)
    analysis = analyse(table(raced, kept))
    assert only(analysis).full_score == pytest.approx(0.80)
    assert any("1e-05 was not chosen" in note for note in analysis.curves[0].notes)


def test_rates_at_the_edge_of_the_grid_are_flagged() -> None:
    parts = [
        rows({0: [full], 1: [one], 2: [two]}, learning_rate=rate)
        for rate, full, one, two in ((1e-5, 0.9, 0.7, 0.7), (2e-5, 0.8, 0.8, 0.7), (3e-5, 0.7, 0.7, 0.75))
    ]
    analysis = analyse(table(*parts, rows({3: [0.6]}, learning_rate=1e-5)))
    edges = {d.frozen_layers: d.rate_edge for d in analysis.curves[0].depths}
    assert edges == {0: "lowest", 1: None, 2: "highest", 3: None}
    assert "m RTE (lowest at 0, highest at 2 frozen): the best learning rate" in words(render(analysis))


def test_a_plateau_of_rates_has_no_edge() -> None:
    low = rows({0: [0.90, 0.88], 1: [0.90, 0.89]}, learning_rate=1e-5)
    high = rows({0: [0.89, 0.88], 1: [0.70, 0.69]}, learning_rate=2e-5)
    edges = {d.frozen_layers: d.rate_edge for d in analyse(table(low, high)).curves[0].depths}
    assert edges == {0: None, 1: "lowest"}, "at 0 the two are equal up to their noise"


def test_rates_that_differ_by_dust_are_one() -> None:
    data = table(
        rows({0: [0.8]}, learning_rate=3e-5), rows({0: [0.9]}, seeds=[2], learning_rate=3e-5 + 1e-20)
    )
    (curve,) = analyse(data).curves
    assert curve.depths[0].scores == (0.8, 0.9)


def test_a_lost_cell_does_not_change_the_full_models_rate() -> None:
    best = rows({0: [0.80, 0.80], 1: [0.79, 0.79], 3: [0.70, 0.70]}, learning_rate=1e-5)
    other = rows({0: [0.70, 0.70], 1: [0.69, 0.69], 2: [0.69, 0.69], 3: [0.69, 0.69]}, learning_rate=2e-5)
    analysis = analyse(table(best, other), select="full-model")
    point = only(analysis)
    assert (point.learning_rate, point.frozen_layers) == (1e-5, 1)
    lost = analysis.curves[0].at(2)
    assert lost is not None
    assert (lost.score, lost.relative) == (None, None)
    assert "frozen 2 was not run at the full model's rate 1e-05" in analysis.curves[0].notes
    assert "frozen 2 was not measured: at 0.9 the answer could be as deep as 2" in point.notes


def test_a_rate_with_a_diverged_run_stands_if_it_is_far_better() -> None:
    good, bad = rows({0: [0.8, 0.8, 0.81, 0.8]}, learning_rate=5e-5), rows({0: [0.6] * 5}, learning_rate=1e-5)
    lost = rows({0: [float("nan")]}, learning_rate=5e-5, seeds=[9])
    rest = rows({2: [0.68] * 5}, learning_rate=1e-5) + rows({2: [0.66] * 5}, learning_rate=5e-5)
    point = only(analyse(table(good + bad + lost + rest)))
    assert point.full_score == pytest.approx(0.8025)
    assert point.frozen_layers == 0


def test_freezes_at_one_rate_are_compared_with_the_full_model_at_that_rate() -> None:
    searched = rows({0: [0.8, 0.8, 0.8]}, learning_rate=5e-5) + rows({0: [0.78] * 4}, learning_rate=1e-5)
    lost = rows({0: [float("nan")]}, learning_rate=5e-5, seeds=[9])
    point = only(analyse(table(searched + lost + rows({2: [0.71] * 4}, learning_rate=5e-5))))
    assert point.full_score == pytest.approx(0.8)
    assert point.frozen_layers == 0
