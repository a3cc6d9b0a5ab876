"""The loop's state: saved between two steps and gone on from, it ends as if nothing had happened."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch

from objectives.contract import Cell, Recipe
from objectives.data.task_data import load_data
from objectives.prefix.prefix_cache import PrefixCache
from objectives.tasks.definition import get_task
from objectives.training.finetune import FineTuning
from objectives.training.loop import Run

CELL = Cell(2, 1e-3, 1)


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., FineTuning]:
    def build(**recipe: Any) -> FineTuning:
        return FineTuning(
            data=load_data(get_task("sst2"), tiny.save_data(tmp_path / "data")),
            model_path=tiny.save_model("bert", tmp_path / "bert"),
            model_fingerprint="tiny",
            recipe=Recipe(**{"epochs": 2, "batch_size": 8, "max_length": 32, **recipe}),
            cache=PrefixCache(tmp_path / "cache"),
        )

    return build


class Killed(Exception):
    pass


@pytest.mark.parametrize("kill_after", [3, 6, 11])
@pytest.mark.parametrize("depth", [0, 2])
def test_a_run_restored_in_another_process_ends_with_the_same_bits(
    make: Callable[..., FineTuning], depth: int, kill_after: int
) -> None:
    cell = Cell(depth, 1e-3, 1)
    expected = make()(cell, lambda point: None)
    kept: dict[str, Any] = {}

    def save_and_die(run: Run) -> None:
        if run.progress.step == kill_after:
            alike, own = run.state()
            kept["state"] = copy.deepcopy(alike | own)
            raise Killed

    objective = make()
    objective._training.after_step = save_and_die
    with pytest.raises(Killed):
        objective(cell, lambda point: None)
    other = make()
    other(Cell(1, 1e-2, 7), lambda point: None)
    other._training.begin = lambda run: run.restore(kept["state"])
    record = other(cell, lambda point: None)
    assert [p.train_loss for p in record.curve] == [p.train_loss for p in expected.curve]
    assert record.metrics == expected.metrics
    assert [p.step for p in record.curve] == [6, 12]


def test_the_logits_of_the_evaluation_that_counts_are_kept(make: Callable[..., FineTuning]) -> None:
    for score, counted in (("last", -1), ("best", 0)):
        objective = make(score=score, epochs=3)
        seen: list[Any] = []
        predict = objective._training.evaluation.predict
        runs: list[Run] = []

        def predicted(model: Any, predict: Any = predict, seen: list[Any] = seen) -> Any:
            seen.append(predict(model))
            return seen[-1]

        objective._training.evaluation.predict = predicted  # type: ignore[method-assign]
        # Scores that fall from one evaluation to the next.
        objective._training.evaluation.scores = lambda logits, seen=seen: {"accuracy": -len(seen)}  # type: ignore[method-assign, misc]
        objective._training.after_step = runs.append
        objective(CELL, lambda point: None)
        assert np.array_equal(runs[-1].progress.logits["validation"], seen[counted]["validation"])
        assert seen[0]["validation"].shape == (24, 2)


def test_between_trials_the_model_holds_what_the_last_one_trained(make: Callable[..., FineTuning]) -> None:
    objective = make()
    objective(Cell(0, 1e-3, 1), lambda point: None)
    with torch.no_grad():
        trained = objective.model.get_input_embeddings().weight.clone()  # type: ignore[operator, union-attr]
    assert trained.shape[0] == 72, "whole, not only the rows that the data use"
    name = next(n for n in dict(objective.model.named_parameters()) if n.endswith("word_embeddings.weight"))
    assert not torch.equal(trained, objective.pretrained.pretrained(name))
