"""Operating points recomputed by hand on small tables, and the JSON contract."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from scipy.special import stdtr
from tables import render, rows, table, words

from objectives.contract import UsageError
from study import operating_points
from study.analysis.analyse import Analysis, analyse, to_json
from study.analysis.points import OperatingPoint
from study.operating_points import main
from study.reporting.content import telling
from study.trials import trial_table

CONTRACT = {
    "model", "task", "train_size", "metric", "threshold", "total_layers", "full_score", "frozen_layers",
    "tuned_layers", "score", "relative", "learning_rate", "trials", "confident_frozen_layers",
    "probability", "sustained",
}  # fmt: skip


def only(analysis: Analysis, threshold: float = 0.9) -> OperatingPoint:
    (point,) = [p for p in analysis.points if p.threshold == threshold]
    return point


def test_the_deepest_freeze_that_reaches_the_threshold_is_the_answer() -> None:
    # full 0.80; 90 % is 0.72, 95 % is 0.76, 99 % is 0.792
    scores = {0: [0.79, 0.81], 1: [0.80, 0.80], 2: [0.77, 0.77], 3: [0.73, 0.73], 4: [0.5, 0.5]}
    analysis = analyse(table(rows(scores)))
    answers = [(p.threshold, p.frozen_layers, p.tuned_layers, p.sustained) for p in analysis.points]
    assert answers == [(0.90, 3, 1, True), (0.95, 2, 2, True), (0.99, 1, 3, True)]
    point = only(analysis)
    assert point.full_score == pytest.approx(0.80)
    assert point.score == pytest.approx(0.73)
    assert point.relative == pytest.approx(0.9125)
    assert (point.learning_rate, point.trials, point.full_trials) == (1e-5, 2, 2)


def test_probabilities_by_hand() -> None:
    # Squares about the means: 0, 0.0018 and 0, three degrees of freedom, so 0.0006 pooled, worth half of the
    # other two: variances of a run 0.0003, 0.0012, 0.0003. 0.73 - 0.9 x 0.80 = 0.01 with 0.0012/2 + 0.81 x
    # 0.0003/2.
    scores = {0: [0.8, 0.8], 2: [0.70, 0.76], 4: [0.1, 0.1]}
    point = only(analyse(table(rows(scores, seeds=[1, 2])), draws=40_000, pairing="independent"))
    share = float(stdtr(2, 0.01 / 0.0007215**0.5))
    assert (point.frozen_layers, point.probability.get(4, 0)) == (2, pytest.approx(0, abs=0.001))
    assert [(b.first, b.last) for b in point.probability_between] == [(0, 1), (2, 3)]
    assert [b.probability for b in point.probability_between] == pytest.approx([1 - share, share], abs=0.01)
    assert point.confident_frozen_layers == 0


def test_depths_beyond_which_nothing_was_measured_have_no_probability_of_their_own() -> None:
    whole = {0: [0.8, 0.8], 1: [0.79, 0.8], 2: [0.79, 0.8], 3: [0.4, 0.41], 4: [0.1, 0.1]}
    assert only(analyse(table(rows(whole)))).probability[2] > 0.99
    gap = only(analyse(table(rows({n: whole[n] for n in (0, 2, 4)}))))
    assert gap.probability == {}
    assert [(b.first, b.last, round(b.probability, 2)) for b in gap.probability_between][-1] == (2, 3, 1.0)
    assert (gap.sureness, gap.deepest_frozen_layers) == (pytest.approx(1.0, abs=0.01), 3)


def test_pairing_uses_what_a_seed_does_to_both_arms() -> None:
    # Each run keeps exactly 92 % of the full run with its seed: sure when paired, a toss-up otherwise.
    full = [0.50, 0.60, 0.70, 0.80]
    data = table(rows({0: full, 2: [0.92 * s for s in full]}))
    paired, apart = only(analyse(data)), only(analyse(data, pairing="independent"))
    assert paired.confident_frozen_layers == 2
    assert (paired.relative_low or 0) > 0.89
    assert apart.confident_frozen_layers == 0
    assert (apart.relative_low or 0) < 0.8


def test_confident_goes_from_shallow_to_deep_and_stops_at_the_first_doubt() -> None:
    sure, doubtful, beyond = [0.77, 0.771, 0.772], [0.70, 0.745, 0.73], [0.78, 0.781, 0.782]
    scores = {0: [0.8, 0.801, 0.802], 1: sure, 2: doubtful, 3: beyond}
    point = only(analyse(table(rows(scores))))
    assert (point.frozen_layers, point.confident_frozen_layers) == (3, 1)
    assert only(analyse(table(rows(scores | {2: sure})))).confident_frozen_layers == 3


def test_intervals_by_hand() -> None:
    # Squares 0 and 0.0002, four degrees of freedom: pooled 5e-5, worth one run, half of what the other depth
    # knows. Depth 2: (5e-5 + 2e-4) / 3 of a run, a third of that of the mean, t(.975, 3) = 3.18245.
    analysis = analyse(table(rows({0: [0.8, 0.8, 0.8], 2: [0.74, 0.75, 0.76]})))
    full, deep = analysis.curves[0].depths
    half = 3.18245 * (25e-5 / 3 / 3) ** 0.5
    assert (deep.score_low, deep.score_high) == (pytest.approx(0.75 - half), pytest.approx(0.75 + half))
    assert (full.score_low, full.score_high) == (
        pytest.approx(0.8 - 3.18245 * (5e-5 / 3 / 3) ** 0.5),
        pytest.approx(0.8 + 3.18245 * (5e-5 / 3 / 3) ** 0.5),
    )
    assert (full.relative_low, full.relative_high) == (None, None)


def test_the_outlier_filter_is_in_point_interval_and_probability() -> None:
    scores = {0: [0.8, 0.81, 0.0], 2: [0.74, 0.75, 0.3], 3: [0.2, 0.21, 0.22], 4: [0.1, 0.1, 0.1]}
    filtered = analyse(table(rows(scores)), outliers="paper")
    kept = analyse(table(rows({0: [0.8, 0.81], 2: [0.74, 0.75], 3: [0.2, 0.21, 0.22], 4: [0.1] * 3})))
    here, there = only(filtered), only(kept)
    assert here.score == there.score == pytest.approx(0.745)
    assert (here.relative_low, here.relative_high) == (there.relative_low, there.relative_high)
    assert here.probability == there.probability
    assert filtered.curves[0].depths[1].score_low == kept.curves[0].depths[1].score_low


def test_seeds_that_contradict_themselves_are_not_paired() -> None:
    full = [0.50, 0.60, 0.70, 0.80]
    again = rows({0: [0.55]}, protocol="paper-search", learning_rate=1e-5)
    runs = rows({0: full, 2: [0.92 * s for s in full]}, protocol="paper")
    analysis = analyse(table(runs, again))
    assert not analysis.curves[0].paired
    assert only(analysis).probability == only(analyse(table(runs), pairing="independent")).probability
    assert any("not paired by seed" in note for note in analysis.curves[0].notes)
    same = analyse(table(runs, rows({0: [0.50]}, protocol="paper-search")))
    assert same.curves[0].paired


def test_a_tie_reaches_the_threshold_and_equal_rates_take_the_lower() -> None:
    scores = {0: [0.9, 0.9, 0.9], 3: [0.81, 0.81, 0.81]}
    data = table(rows(scores, learning_rate=2e-5), rows(scores, learning_rate=1e-5))
    point = only(analyse(data))
    assert (point.frozen_layers, point.learning_rate) == (3, 1e-5)
    assert (point.sureness, point.confident_frozen_layers) == (1.0, 3)


def test_not_sustained_where_a_smaller_freeze_fails() -> None:
    point = only(analyse(table(rows({0: [0.8], 1: [0.6], 2: [0.78], 3: [0.5]}))))
    assert (point.frozen_layers, point.sustained) == (2, False)
    (told,) = telling(analyse(table(rows({0: [0.8], 1: [0.6], 2: [0.78]})), thresholds=[0.9])).tables[:1]
    cells = {column.title: column.text(told.rows[0].item) for column in told.shown}
    assert (cells["frozen"], cells["tuned"], cells["sustained"]) == ("2–4", "0–2", "no")


def test_one_seed_claims_no_uncertainty() -> None:
    point = only(analyse(table(rows({0: [0.8], 2: [0.79], 4: [0.3]}))))
    assert point.frozen_layers == 2
    assert point.confident_frozen_layers is None
    assert point.probability == {}
    assert (point.relative_low, point.relative_high) == (None, None)
    assert any("no uncertainty" in note and "no probability" in note for note in point.notes)


def test_one_run_at_a_depth_is_never_confident() -> None:
    point = only(analyse(table(rows({0: [0.8, 0.8], 1: [0.79, 0.79], 2: [0.79]}))))
    assert (point.frozen_layers, point.confident_frozen_layers) == (2, 1)
    assert any("one run only at frozen 2" in note for note in point.notes)


def test_one_run_of_the_full_model_makes_no_depth_confident() -> None:
    point = only(analyse(table(rows({0: [0.8], 2: [0.79, 0.78, 0.79]}))))
    assert (point.frozen_layers, point.confident_frozen_layers, point.relative_low) == (2, None, None)
    assert any("one run of the full model" in note for note in point.notes)


def test_a_missing_full_model_is_said_not_invented() -> None:
    analysis = analyse(table(rows({1: [0.8, 0.8], 2: [0.7, 0.7]})))
    point = only(analysis)
    assert (point.full_score, point.frozen_layers, point.relative, point.probability) == (
        None,
        None,
        None,
        {},
    )
    assert not point.sustained
    assert "frozen_layers 0" in point.notes[0]
    assert [d.score for d in analysis.curves[0].depths] == pytest.approx([0.8, 0.7])
    assert analysis.models[0].tuned_layers is None
    assert "rte" in analysis.models[0].left_out
    assert "not in the table" in render(analysis)


@pytest.mark.parametrize("full", [[0.0, 0.0], [-0.1, 0.05]])
def test_a_full_score_of_zero_or_less_has_no_ratio(full: list[float]) -> None:
    analysis = analyse(table(rows({0: full, 2: [0.3, 0.3]}, task="stsb")))
    point = only(analysis)
    assert point.full_score == pytest.approx(np.mean(full))
    assert (point.frozen_layers, point.relative, point.confident_frozen_layers) == (None, None, None)
    assert "a ratio to it means nothing" in point.notes[0]
    json.dumps(to_json(analysis), allow_nan=False)


def test_draws_without_a_ratio_are_counted() -> None:
    scores = {0: [-0.4, 0.8, 0.8, 0.9], 2: [0.3, -0.4, -0.4, -0.4]}
    point = only(analyse(table(rows(scores, metric="mcc", task="cola")), outliers="paper", draws=40_000))
    assert point.status == "ok"  # the filter took -0.4 away
    plain = only(analyse(table(rows({0: [0.3, 0.9], 2: [-0.3, -0.3]})), draws=40_000))
    assert (plain.frozen_layers, plain.relative) == (0, 1.0)
    assert 0 < plain.probability_undefined < 0.2
    assert sum(b.probability for b in plain.probability_between) == pytest.approx(
        1 - plain.probability_undefined
    )


@pytest.mark.parametrize(
    "full",
    [
        [0.0, -0.01, 0.06],
        [0.005, 0.01, 0.06],
    ],
)
def test_a_full_score_not_clearly_above_chance_is_no_answer(full: list[float]) -> None:
    data = table(rows({0: full, 2: [0.02, 0.01, 0.02]}, task="cola", metric="matthews_correlation"))
    analysis = analyse(data)
    point = only(analysis)
    assert (point.status, point.frozen_layers, point.relative, point.probability) == (
        "no answer",
        None,
        None,
        {},
    )
    assert "not clearly better than chance (0)" in (point.reason or "")
    assert analysis.curves[0].depths[1].relative is None


def test_a_ratio_without_bounds_is_an_answer_without_interval() -> None:
    analysis = analyse(table(rows({0: [0.5, 0.9], 2: [0.6, 0.85]}, metric="quality")))
    point = only(analysis)
    assert (point.frozen_layers, point.relative) == (2, pytest.approx(0.725 / 0.7))
    assert (point.relative_low, point.relative_high, point.confident_frozen_layers) == (None, None, 0)
    assert any("no interval" in note and "frozen 2" in note for note in analysis.curves[0].notes)


def test_all_failed_says_so() -> None:
    failed = rows({0: [0.0], 2: [0.0]}, state="FAIL", reason="out of memory")
    for row in failed:
        row["score"] = None
    analysis = analyse(table(failed))
    point = only(analysis)
    assert (point.frozen_layers, point.full_score, point.trials) == (None, None, 0)
    assert "no complete run" in point.notes[0]
    assert (analysis.counts.failed, analysis.counts.failed_cells, analysis.counts.complete) == (2, 2, 0)
    assert "2 failed" in render(analysis)


def test_the_full_model_alone_is_no_answer() -> None:
    point = only(analyse(table(rows({0: [0.8, 0.82]}))))
    assert (point.status, point.frozen_layers, point.tuned_layers) == ("no answer", None, None)
    assert (point.probability, point.probability_between, point.sustained) == ({}, (), False)
    assert "only the full model was run" in (point.reason or "")


def test_embeddings_alone_freeze_less_than_any_layer_and_tune_every_layer() -> None:
    analysis = analyse(table(rows({-1: [0.79, 0.79], 0: [0.8, 0.8], 1: [0.5, 0.5]})))
    point = only(analysis)
    assert (point.frozen_layers, point.tuned_layers, point.sustained) == (-1, 4, True)
    assert [d.frozen_layers for d in analysis.curves[0].depths] == [0, -1, 1]


def test_chance_corrected_by_hand_and_from_the_table() -> None:
    # MRPC F1: majority 558/687 = 0.81223. (0.85 - c) / (0.90 - c) = 0.430; raw 0.944
    mrpc = analyse(table(rows({0: [0.9], 2: [0.85]}, task="mrpc", metric="f1")))
    c = 558 / 687
    assert mrpc.curves[0].depths[1].chance_corrected == pytest.approx((0.85 - c) / (0.9 - c))
    point = only(mrpc)
    assert (point.frozen_layers, point.chance) == (2, pytest.approx(c))
    assert point.chance_corrected is not None
    assert point.chance_corrected.frozen_layers == 0
    qqp = only(analyse(table(rows({0: [0.9]}, task="qqp", metric="f1"))))
    assert qqp.chance == pytest.approx(0.5382, abs=1e-4)  # precision 0.3682 (14885 of 40430), recall 1
    own = only(analyse(table(rows({0: [0.9], 2: [0.85]}, task="mrpc", metric="f1", chance=0.4))))
    assert own.chance_corrected is not None
    assert own.chance_corrected.frozen_layers == 2
    assert own.chance_corrected.relative == pytest.approx(0.45 / 0.5)
    unknown = only(analyse(table(rows({0: [0.9], 2: [0.85]}, task="mine"))))
    assert (unknown.chance, unknown.chance_corrected) == (None, None)
    below = only(analyse(table(rows({0: [0.8], 2: [0.79]}, task="mrpc", metric="f1"))))
    assert (below.chance_corrected, below.frozen_layers, below.status) == (None, None, "no answer")


def test_the_answer_above_chance_has_an_interval_and_a_confident_depth() -> None:
    scores = {
        0: [0.90, 0.901, 0.902],
        1: [0.897, 0.898, 0.896],
        2: [0.87, 0.88, 0.875],
        3: [0.82, 0.815, 0.818],
    }
    point = only(analyse(table(rows(scores, task="mrpc", metric="f1"))))
    corrected = point.chance_corrected
    assert (point.frozen_layers, corrected and corrected.frozen_layers) == (3, 1)
    assert corrected is not None
    assert (corrected.relative_low or 1) < (corrected.relative or 0) < (corrected.relative_high or 0)
    assert corrected.confident_frozen_layers == 1
    assert corrected.probability[1] > 0.9


def test_a_demo_says_demo() -> None:
    assert "DEMO" in render(analyse(table(rows({0: [0.8], 2: [0.79]}, demo=True))))
    assert "demo" not in render(analyse(table(rows({0: [0.8], 2: [0.79]}, demo=False)))).lower()


def test_the_json_holds_the_contract(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = tmp_path / "trials.csv", tmp_path / "out.json"
    data = table(rows({0: [0.8, 0.82], 2: [0.79, 0.78], 4: [0.3, 0.4]}), rows({1: [0.5]}, task="sst2"))
    data.drop(columns=[trial_table.ORIGIN]).to_csv(source, index=False)
    assert main([str(source), "--json", str(out), "--thresholds", "0.9,0.5", "--draws", "100"]) == 0
    written = json.loads(out.read_text())
    assert {"points", "models"} <= set(written)
    assert [p["threshold"] for p in written["points"]] == [0.9, 0.5, 0.9, 0.5]
    for point in written["points"]:
        assert set(point) >= CONTRACT
    known, _, unknown, _ = written["points"]
    assert known["probability_between"][-1] == {
        "first": 2,
        "last": 3,
        "probability": pytest.approx(0.92, abs=0.05),
    }
    assert (known["status"], known["reason"]) == ("ok", None)
    assert (known["train_size"], known["frozen_layers"], known["tuned_layers"]) == (None, 2, 2)
    assert (unknown["frozen_layers"], unknown["status"]) == (None, "no answer")
    assert "not in the table" in unknown["reason"]
    assert written["models"][0] | {"excluded": []} == written["models"][0]
    assert {"model", "threshold", "tuned_layers", "limiting_task", "excluded"} <= set(written["models"][0])
    said = capsys.readouterr().out
    assert said.startswith("Fine-tune the last 2 of 4 layers")
    assert "As few as 1 may do" in words(said)
    assert list(tmp_path.glob(".*")) == []


@pytest.mark.parametrize("bad", ["90", "0.9,x", "0", "-0.5"])
def test_a_bad_threshold_is_refused(bad: str) -> None:
    with pytest.raises(UsageError, match="thresholds"):
        main(["trials.csv", f"--thresholds={bad}"])


@pytest.mark.parametrize("bad", ["0", "-5", "2000000000", "9" * 5000, "1e3", "nan", "many", ""])
def test_a_bad_number_of_draws_is_refused(bad: str) -> None:
    with pytest.raises(
        UsageError, match=r"--draws .*: use a whole number at least 1, at most 1,000,000"
    ) as refused:
        main(["trials.csv", f"--draws={bad}"])
    assert len(str(refused.value)) < 200


def test_an_unwritable_json_path_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "trials.csv"
    table(rows({0: [0.8]})).to_csv(source, index=False)
    with pytest.raises(UsageError, match="cannot be written"):
        main([str(source), "--json", str(tmp_path / "absent" / "out.json")])


def test_help_is_instant_and_ends_in_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert left.value.code == 0
    assert operating_points.EXAMPLES.strip() in capsys.readouterr().out


REFERENCE = os.environ.get("ELSA_REFERENCE_TABLE")


@pytest.mark.skipif(not REFERENCE, reason="ELSA_REFERENCE_TABLE does not name the paper's released logs")
def test_the_papers_logs_give_the_papers_answers() -> None:
    data = trial_table.load([str(REFERENCE)])
    filtered = analyse(data, as_paper=True, thresholds=[0.9])
    plain = analyse(data, select="full-model", thresholds=[0.9])
    assert {m.model: (m.tuned_layers, m.limiting_task) for m in filtered.models} == {
        "bert-base": (3, "rte"),
        "roberta-base": (5, "rte"),
    }
    assert {m.model: (m.tuned_layers, m.excluded) for m in plain.models} == {
        "bert-base": (6, ()),
        "roberta-base": (4, ()),
    }
    for analysis in (filtered, plain):
        point = analysis.point("bert-base", "rte", 0.9)
        assert point is not None
        assert max(point.probability, key=lambda n: point.probability[n]) == 9


def test_a_chance_that_is_assumed_is_said_to_be() -> None:
    scores = {0: [0.9, 0.9], 4: [0.8, 0.8]}
    assumed = analyse(table(rows(scores, task="mrpc", metric="f1")))
    assert any("no chance is recorded" in note for note in assumed.curves[0].notes)
    recorded = analyse(table(rows(scores, task="mrpc", metric="f1", chance=0.62)))
    assert recorded.curves[0].chance == 0.62
    assert not any("no chance is recorded" in note for note in recorded.curves[0].notes)
