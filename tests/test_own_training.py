"""Trials on data of people's own: every kind of task trains, is scored in its own unit, and tested once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import own
import pytest
import tiny
import torch

from objectives.contract import Cell, CurvePoint, Recipe, TrialRecord
from objectives.prefix.prefix_cache import PrefixCache
from objectives.tasks import metrics
from objectives.training.finetune import FineTuning
from objectives.training.targets import Targets
from study.launching.asked_tasks import asked_data
from study.launching.inputs import Inputs

Make = Callable[..., FineTuning]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """An objective of a tiny model on a file or folder."""

    def made(
        data: str, family: str = "bert", wishes: dict[str, Any] | None = None, **recipe: Any
    ) -> FineTuning:
        model = tiny.save_model(family, tmp_path / family, dropout=False)
        (found,) = asked_data(Inputs(data=data, **(wishes or {})))
        return FineTuning(
            data=found,
            model_path=model,
            model_fingerprint=family,
            recipe=Recipe(**{"epochs": 8, "batch_size": 8, "max_length": 32, **recipe}),
            cache=PrefixCache(tmp_path / "cache", 10**9, lambda _: None),
        )

    return made


FULL = Cell(0, 3e-3, 1)


def run(objective: FineTuning, cell: Cell = FULL) -> tuple[TrialRecord, list[CurvePoint]]:
    points: list[CurvePoint] = []
    return objective(cell, points.append), points


@pytest.mark.slow
def test_five_classes_are_learnt(make: Make, tmp_path: Path) -> None:
    record, _ = run(make(own.save(tmp_path / "news.csv", own.news(160))))
    assert record.metric == "accuracy"
    assert record.score > 0.8 > 0.4 > (record.chance or 0)
    assert set(record.metrics) == {"accuracy", "macro_f1"}


@pytest.mark.slow
def test_several_labels_are_learnt(make: Make, tmp_path: Path) -> None:
    objective = make(own.save(tmp_path / "tags.jsonl", own.tagged(200)))
    record, points = run(objective)
    assert record.metric == "micro_f1"
    assert record.score > (record.chance or 0) + 0.1
    assert objective.model.config.problem_type == "multi_label_classification"
    assert points[-1].train_loss < points[0].train_loss < 0.75, "the mean over labels, as Transformers has it"


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_numbers_of_any_range_are_learnt_and_scored_in_their_unit(
    make: Make, tmp_path: Path, family: str
) -> None:
    record, _ = run(make(own.save(tmp_path / "price.csv", own.priced(200)), family))
    assert record.metric == "spearman"
    assert record.score > 0.6
    assert 100 < record.metrics["mae"] < 10_000
    assert record.metrics["rmse"] < 25_000, "below what the mean price misses"


@pytest.mark.slow
def test_a_regression_by_its_error_chooses_the_lowest(make: Make, tmp_path: Path) -> None:
    objective = make(
        own.save(tmp_path / "price.csv", own.priced(120)), wishes={"metric": ("rmse",)}, score="best"
    )
    record, points = run(objective)
    assert record.metric == "rmse"
    assert record.score == min(point.metrics["rmse"] for point in points)
    assert record.chance == pytest.approx(
        metrics.get("rmse").chance(objective._splits["validation"].encoded.labels)
    )


@pytest.mark.slow
def test_the_last_layer_can_answer_in_the_labels_own_unit(make: Make, tmp_path: Path) -> None:
    objective = make(own.save(tmp_path / "price.csv", own.priced(120)))
    run(objective)
    split, targets = objective._splits["validation"], objective.targets
    inputs = {name: torch.from_numpy(block) for name, block in split.encoded.pad_rows(np.arange(8)).items()}
    objective.model.eval()
    with torch.inference_mode():
        before = targets.outputs(objective.model(**inputs).logits.numpy())
        targets.fold(objective.stack)
        after = objective.model(**inputs).logits.numpy()
    assert before.mean() > 20_000
    assert after == pytest.approx(before, rel=1e-5)


def test_a_constant_label_and_a_task_that_says_so_are_left_as_they_are() -> None:
    from objectives.tasks.definition import get_task

    assert Targets.of(get_task("stsb"), np.array([0.0, 5.0]), shifts=True) == Targets("regression")
    assert Targets.of(get_task("cola"), np.array([0, 1]), shifts=True) == Targets("classes")


@pytest.fixture
def folder(tmp_path: Path) -> str:
    for name, count in {"train": 64, "validation": 40, "test": 40}.items():
        own.save(tmp_path / "news" / f"{name}.jsonl", own.news(count, seed=count + len(name)))
    return str(tmp_path / "news")


@pytest.mark.parametrize("score", ["last", "best"])
def test_the_test_split_is_scored_where_the_score_comes_from(make: Make, folder: str, score: str) -> None:
    objective = make(folder, score=score, epochs=6)
    predicted: list[tuple[str, ...]] = []
    evaluation = objective._training.evaluation
    original = evaluation.predict

    def predict(model: Any, *names: str) -> Any:
        predicted.append(names)
        return original(model, *names)

    evaluation.predict = predict  # type: ignore[method-assign]
    record, points = run(objective, Cell(2, 3e-3, 1))
    assert set(record.metrics) == {"accuracy", "macro_f1", "test_accuracy", "test_macro_f1"}
    assert all("test_accuracy" not in point.metrics for point in points)
    tested = [i for i, names in enumerate(predicted) if names]
    if score == "last":
        assert tested == [len(predicted) - 1]
    else:
        scores = [point.metrics["accuracy"] for point in points]
        new = [i for i, value in enumerate(scores) if value > max(scores[:i], default=-1.0)]
        assert len(tested) == len(new)


@pytest.mark.slow
def test_the_test_split_changes_nothing_else(make: Make, folder: str) -> None:
    with_test, _ = run(make(folder))
    (Path(folder) / "test.jsonl").unlink()
    without, _ = run(make(folder))
    assert with_test.score == without.score
    assert with_test.curve == without.curve


def test_the_weights_that_gave_the_score_can_be_kept(make: Make, folder: str) -> None:
    objective = make(folder, score="best", epochs=6)
    objective.keep_scored()
    record, points = run(objective, Cell(0, 2e-2, 3))
    assert record.score > points[-1].metrics["accuracy"], "the last evaluation is not the best one"
    with objective._fast(0):
        logits = objective._training.evaluation.predict(objective.model)
    scores = objective._training.evaluation.scores(logits)
    assert scores["accuracy"] == record.score


def test_subsets_and_the_selection_split_do_not_overlap(make: Make, folder: str) -> None:
    objective = make(folder, selection_split=0.25)
    splits = objective._splits
    rows = [splits.rows(size) for size in (10, 30)]
    assert [len(found) for found in rows] == [10, 30]
    assert set(rows[0]) < set(rows[1])
    drawn = splits["train"].encoded.take(rows[1])
    held = splits["selection"].encoded
    texts = [
        tuple(e.columns["input_ids"][e.offsets[i] : e.offsets[i + 1]])
        for e in (drawn, held)
        for i in range(len(e))
    ]
    assert len(set(texts)) == len(texts)
