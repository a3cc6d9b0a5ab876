"""The paper's claims beside our figures: agree, differ and cannot tell each for a reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats
from tables import Scores, rows, table

from study.analysis import published
from study.analysis.analyse import Analysis, analyse
from study.analysis.costs import BACKBONES
from study.analysis.paper_claims import Claim, claims, gains, published_scores

METRICS = {"cola": "matthews_correlation", "mrpc": "f1", "qqp": "f1", "stsb": "spearman"}


def model(
    name: str, need: Scores, *, tasks: tuple[str, ...] = published.TASKS, layers: int = 12
) -> list[dict[str, Any]]:
    """Every task with the same scores."""
    return [
        row
        for task in tasks
        for row in rows(
            need, model=name, task=task, total_layers=layers, metric=METRICS.get(task, "accuracy")
        )
    ]


def analysed(*parts: list[dict[str, Any]]) -> Analysis:
    return analyse(table(*parts), draws=500)


def claim(analysis: Analysis, words: str) -> Claim:
    (found,) = [c for c in claims(analysis) if words in c.claim]
    return found


NINE = {0: [0.9, 0.9, 0.9], 9: [0.85, 0.85, 0.85], 10: [0.5, 0.5, 0.5]}


def test_the_same_number_agrees() -> None:
    found = claim(analysed(model("bert-base-uncased", NINE)), "tuned layers")
    assert (found.published, found.verdict) == ("3", "agree")
    assert found.ours.startswith("3 ")
    assert "1911.03090" in found.source


def test_another_number_that_no_draw_gives_differs() -> None:
    eight = {0: [0.9, 0.9, 0.9], 8: [0.85, 0.85, 0.85], 9: [0.5, 0.5, 0.5]}
    found = claim(analysed(model("bert-base", eight)), "tuned layers")
    assert (found.ours[:1], found.verdict) == ("4", "differ")


def test_another_number_that_seeds_may_explain_cannot_tell() -> None:
    # frozen 9 fails on average but passes in a good share of the draws
    eight = {0: [0.90, 0.90, 0.90], 8: [0.85, 0.85, 0.85], 9: [0.70, 0.80, 0.90]}
    found = claim(analysed(model("bert-base", eight, tasks=published.TASKS[:1])), "tuned layers")
    assert found.verdict == "cannot tell"
    everywhere = model("bert-base", NINE, tasks=published.TASKS[1:])
    found = claim(analysed(everywhere, model("bert-base", eight, tasks=published.TASKS[:1])), "tuned layers")
    assert (found.ours[:1], found.verdict) == ("4", "cannot tell")
    assert "probability" in found.because


def test_missing_tasks_cannot_tell_unless_more_is_needed_already() -> None:
    few = published.TASKS[:2]
    found = claim(analysed(model("bert-base", NINE, tasks=few)), "tuned layers")
    assert found.verdict == "cannot tell"
    assert "RTE" in found.because
    more = {0: [0.9, 0.9, 0.9], 6: [0.85, 0.85, 0.85], 7: [0.5, 0.5, 0.5]}
    assert claim(analysed(model("bert-base", more, tasks=few)), "tuned layers").verdict == "differ"


def test_one_seed_cannot_differ() -> None:
    single = {0: [0.9], 8: [0.85], 9: [0.5]}
    found = claim(analysed(model("bert-base", single)), "tuned layers")
    assert (found.ours[:1], found.verdict) == ("4", "cannot tell")


def test_one_seed_cannot_agree() -> None:
    single = {0: [0.9], 9: [0.85], 10: [0.5]}
    found = claim(analysed(model("bert-base", single)), "tuned layers")
    assert (found.ours[:1], found.verdict) == ("3", "cannot tell")


def test_models_the_paper_does_not_have_make_no_claim() -> None:
    found = claims(analysed(model("my-bert", NINE)))
    assert [c.claim for c in found] == ["mean quality relative to full with everything frozen"]
    assert found[0].verdict == "cannot tell"


def test_everything_frozen_needs_all_four_models() -> None:
    def frozen(name: str, layers: int, share: float) -> list[dict[str, Any]]:
        return model(name, {0: [0.9, 0.9], layers: [0.9 * share] * 2}, layers=layers)

    base = [frozen("bert-base", 12, 0.6), frozen("roberta-base", 12, 0.7), frozen("bert-large", 24, 0.5)]
    found = claim(analysed(*base), "everything frozen")
    assert found.verdict == "cannot tell"
    assert "roberta-large" in found.because
    found = claim(analysed(*base, frozen("roberta-large", 24, 0.76)), "everything frozen")
    assert (found.verdict, found.ours) == ("agree", "64.0 % over 28 pairs")
    other = claim(
        analysed(*base, frozen("roberta-large", 24, 0.76), frozen("mine", 12, 0.1)), "everything frozen"
    )
    assert other.ours == found.ours
    found = claim(analysed(*base, frozen("roberta-large", 24, 0.2)), "everything frozen")
    assert found.verdict == "differ"


FULL = [0.950, 0.951, 0.949, 0.952, 0.948]


def test_a_gain_is_tested_by_pairs_and_for_the_best_of_several() -> None:
    better = [0.956, 0.954, 0.957, 0.955, 0.956]
    analysis = analysed(rows({0: FULL, 2: better, 3: [0.9] * 5}, model="roberta-large", task="sst2"))
    (gain,) = gains(analysis.curves)
    expected = stats.ttest_rel(better, FULL)
    assert gain.gain == pytest.approx(np.mean(better) - np.mean(FULL))
    assert (gain.frozen_layers, gain.compared, gain.paired) == (2, 2, True)
    assert gain.p_value == pytest.approx(2 * expected.pvalue)
    assert gain.low == pytest.approx(expected.confidence_interval(1 - 0.05 / 2).low)
    found = claim(analysis, "freezing beats")
    assert found.verdict == "agree"
    assert found.published == "+0.73 points at 5 seeds"


def test_without_shared_seeds_welch_is_used() -> None:
    better = [0.96, 0.95, 0.97]
    data = rows({0: FULL}, model="m") + rows({2: better}, model="m", seeds=[7, 8, 9])
    (gain,) = gains(analysed(data).curves)
    assert not gain.paired
    assert gain.p_value == pytest.approx(stats.ttest_ind(better, FULL, equal_var=False).pvalue)


def test_a_gain_the_runs_cannot_tell_from_none() -> None:
    noisy = [0.93, 0.96, 0.97, 0.93, 0.97]
    found = claim(analysed(rows({0: FULL, 2: noisy}, model="roberta-large", task="sst2")), "freezing beats")
    assert found.verdict == "cannot tell"
    none = claim(
        analysed(rows({0: FULL, 2: [0.9] * 5}, model="roberta-large", task="sst2")), "freezing beats"
    )
    assert (none.verdict, none.ours) == ("cannot tell", "no freeze has a higher mean")
    (one,) = gains(analysed(rows({0: [0.9], 2: [0.91]})).curves)
    assert (one.p_value, one.low) == (None, None)


def test_a_sure_gain_that_the_paper_does_not_report_differs() -> None:
    better = [0.976, 0.974, 0.977, 0.975, 0.976]
    found = claim(analysed(rows({0: FULL, 2: better}, model="bert-base", task="qnli")), "freezing beats")
    assert (found.published, found.verdict) == ("no gain", "differ")


def test_published_scores_square_by_square() -> None:
    analysis = analysed(
        rows(
            {0: [0.67, 0.68], 9: [0.50, 0.51], 12: [0.60]},
            model="bert-base",
            task="rte",
            total_layers=12,
            metric="accuracy",
        )
    )
    found = {score.frozen_layers: score for score in published_scores(analysis)}
    assert (found[0].published, found[0].ours) == (67.5, pytest.approx(67.5))
    assert [found[n].verdict for n in (0, 9, 12)] == ["agree", "differ", "cannot tell"]
    assert found[9].difference == pytest.approx(50.5 - 62.3)
    # t(.975, 2) x 0.01 x sqrt(1/3 + 1/5) = 3.14 points, besides 0.05 of rounding: 62.3 is 3.1 and 3.3 away
    for scores, verdict in (([0.644, 0.654, 0.664], "agree"), ([0.646, 0.656, 0.666], "differ")):
        analysis = analysed(
            rows({9: scores}, model="bert-base", task="rte", total_layers=12, metric="accuracy")
        )
        (square,) = [score for score in published_scores(analysis) if score.frozen_layers == 9]
        assert square.verdict == verdict
    demo = analysed(rows({0: [0.6]}, model="bert-base", task="rte", total_layers=12, demo=True))
    assert published_scores(demo) == ()


def test_published_figures_are_about_the_same_models() -> None:
    assert set(published.TUNED_LAYERS) == set(published.OPERATING_TABLES) == set(BACKBONES)
    for name, depths in published.OPERATING_TABLES.items():
        layers = BACKBONES[name][0]
        assert set(depths) == {0, layers - published.TUNED_LAYERS[name], layers}
