"""A model's one number: the largest need over its tasks, what has no say in it, and what was not measured."""

from __future__ import annotations

import pytest
from tables import render, rows, table, words

from objectives.contract import UsageError
from study.analysis.analyse import analyse
from study.analysis.paper_claims import claims


def test_a_models_number_is_the_largest_need() -> None:
    data = table(
        rows({0: [0.8, 0.8], 1: [0.3, 0.3]}, task="CoLA"),
        rows({0: [0.5, 0.5], 1: [0.1, 0.1]}, task="wnli"),
        rows({0: [0.8, 0.8], 2: [0.76, 0.76], 3: [0.1, 0.1]}, task="rte"),
        rows({0: [0.8, 0.8], 2: [0.73, 0.73], 3: [0.1, 0.1]}, task="mrpc"),
        rows({0: [0.8, 0.8], 3: [0.73, 0.73]}, task="sst2"),
    )
    model = analyse(data, thresholds=[0.9]).models[0]
    assert (model.tuned_layers, model.limiting_tasks) == (4, ("CoLA", "wnli"))
    assert (model.excluded, model.left_out) == ((), {})
    paper = analyse(data, thresholds=[0.9], as_paper=True)
    model = paper.models[0]
    assert (model.tuned_layers, model.limiting_task) == (2, "mrpc")
    assert model.limiting_tasks == ("mrpc", "rte")
    assert (model.excluded, list(model.left_out)) == (("CoLA",), ["wnli"])
    assert model.probability == {2: pytest.approx(1.0)}
    assert "Not counted CoLA and WNLI, as in the paper." in words(render(paper))


def test_a_task_that_was_not_followed_deep_enough_does_not_set_a_models_number() -> None:
    known = rows({0: [0.8, 0.8], 2: [0.79, 0.79], 3: [0.3, 0.3]}, task="rte")
    full_only = rows({0: [0.8, 0.8]}, task="qnli")
    shallow = rows({0: [0.8, 0.8], 1: [0.79, 0.79]}, task="qqp")
    harmless = rows({0: [0.8, 0.8], 3: [0.79, 0.79]}, task="mnli")
    model = analyse(table(known, full_only, shallow, harmless), thresholds=[0.9]).models[0]
    assert (model.tuned_layers, model.limiting_tasks) == (2, ("rte",))
    assert model.left_out == {
        "qnli": "only the full model was run: add depths to --frozen-layers",
        "qqp": "it needs 3 tuned layers or fewer: nothing deeper was measured",
    }
    assert (model.at_most_tuned_layers, model.at_most_task, model.probability) == (3, "qqp", {})
    said = words(render(analyse(table(known, full_only, shallow, harmless), thresholds=[0.9])))
    assert "Fine-tune the last 2 of 4 layers" in said
    assert "on RTE, the one of 2 tasks that needs the most layers" in said
    assert "QQP may need up to 3" in said
    assert "Not counted QNLI: only the full model was run" in said
    settled = analyse(table(known, full_only, harmless), thresholds=[0.9]).models[0]
    assert (settled.at_most_tuned_layers, settled.at_most_task) == (None, None)
    alone = analyse(table(shallow), thresholds=[0.9])
    assert (alone.models[0].tuned_layers, alone.points[0].open_ended) == (3, True)
    assert analyse(table(full_only), thresholds=[0.9]).models[0].tuned_layers is None


def test_a_models_probability_is_that_of_the_largest_of_its_tasks() -> None:
    scores = {0: [0.8, 0.8], 1: [0.79, 0.8], 2: [0.70, 0.76], 3: [0.3, 0.3], 4: [0.1, 0.1]}
    parts = [rows(scores, task=task) for task in ("rte", "sst2")]
    found = analyse(table(*parts), thresholds=[0.9], draws=40_000)
    share = found.points[0].probability[2]
    assert 0.5 < share < 0.9
    assert found.models[0].probability[2] == pytest.approx(share**2, abs=0.01)
    gap = analyse(table(*parts, rows({0: [0.8, 0.8], 2: [0.79, 0.79]}, task="qqp")), thresholds=[0.9])
    assert (
        gap.models[0].probability.get(2) is None
    )  # it may be 1 or 0, too: 3 and 4 frozen were not run for QQP


def test_train_sizes_metrics_and_models_are_kept_apart() -> None:
    data = table(
        rows({0: [0.8], 2: [0.79]}, train_size=100),
        rows({0: [0.9], 2: [0.5]}, train_size=""),
        rows({0: [0.7], 2: [0.69]}, metric="other"),
        rows({0: [0.6], 2: [0.1]}, model="n"),
    )
    analysis = analyse(data, thresholds=[0.9])
    keys = [(p.model, p.train_size, p.metric, p.frozen_layers) for p in analysis.points]
    assert keys == [
        ("m", 100, "quality", 2),
        ("m", None, "other", 2),
        ("m", None, "quality", 0),
        ("n", None, "quality", 0),
    ]
    assert [(m.model, m.train_size, m.tuned_layers) for m in analysis.models] == [
        ("m", 100, 2),
        ("m", None, 4),
        ("n", None, 4),
    ]
    assert "m at 100 training examples: fine-tune" in words(render(analysis))


def test_studies_of_the_same_task_are_never_pooled() -> None:
    grid = rows({0: [0.8, 0.8], 2: [0.79, 0.79]}, study="a", protocol="grid", trial=1)
    adaptive = rows({0: [0.6, 0.6], 2: [0.1, 0.1]}, study="b", protocol="adaptive", trial=1)
    analysis = analyse(table(grid, adaptive), thresholds=[0.9])
    assert [(p.study, p.full_score, p.frozen_layers, p.full_trials) for p in analysis.points] == [
        ("a", 0.8, 2, 2),
        ("b", 0.6, 0, 2),
    ]
    assert [(m.protocol, m.tuned_layers) for m in analysis.models] == [("grid", 2), ("adaptive", 4)]
    assert "m (adaptive): fine-tune all 4 layers: no freeze that was measured keeps 90 % of" in words(
        render(analysis)
    )


def test_a_study_without_answer_does_not_silence_another_of_the_same_task() -> None:
    good = rows({0: [0.8, 0.8], 2: [0.79, 0.79], 3: [0.3, 0.3]}, study="a", protocol="grid")
    bad = rows({2: [0.79, 0.79]}, study="b", protocol="grid")
    analysis = analyse(table(good, bad), thresholds=[0.9])
    (model,) = analysis.models
    assert (model.tuned_layers, model.limiting_task) == (2, "rte")
    assert list(model.left_out) == ["rte (study b)"]
    other = rows({2: [0.79, 0.79]}, study="a", protocol="grid", metric="f1")
    assert list(analyse(table(good, other)).models[0].left_out) == ["rte (f1)"]


@pytest.mark.parametrize("task", ["rte", "sst2"])
def test_two_layer_counts_for_one_model_are_refused(task: str) -> None:
    data = table(rows({0: [0.8]}), rows({2: [0.8]}, total_layers=12, task=task))
    with pytest.raises(UsageError, match="total_layers 4 and 12"):
        analyse(data)


def test_a_models_number_between_unmeasured_depths_is_a_range_and_no_disagreement() -> None:
    scores = {0: [0.8, 0.8, 0.81], 6: [0.79, 0.8, 0.8], 12: [0.4, 0.4, 0.41]}
    tasks = ("mrpc", "rte", "sst2", "stsb", "qnli", "qqp", "mnli")
    found = analyse(
        table([r for t in tasks for r in rows(scores, task=t, model="bert-base", total_layers=12)]),
        thresholds=(0.9,),
    )
    (model,) = found.models
    assert (model.tuned_layers, model.at_least_tuned_layers) == (6, 1)
    assert "As few as 1 may do" in words(render(found))
    claim = next(c for c in claims(found) if "tuned layers" in c.claim)
    assert (claim.verdict, claim.because) == ("cannot tell", "it lies between the depths that were measured")
