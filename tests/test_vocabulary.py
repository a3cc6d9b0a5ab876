"""Training the data's rows of the word embeddings alone: the same numbers, with less to keep."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch

from objectives.contract import Cell, Recipe
from objectives.data.encoding import Encoded
from objectives.data.task_data import load_data
from objectives.prefix.prefix_cache import PrefixCache
from objectives.pretrained.models import identify
from objectives.pretrained.vocabulary import Vocabulary
from objectives.tasks.definition import get_task
from objectives.training.finetune import FineTuning

WIDER = 400
"""A vocabulary of which the tiny data use a sixth."""


def make(family: str, folder: Path, **recipe: Any) -> FineTuning:
    path = tiny.save_model(family, folder / family, dropout=False, vocab_size=WIDER)
    return FineTuning(
        data=load_data(get_task("sst2"), tiny.save_data(folder / "data")),
        model_path=path,
        model_fingerprint=identify(path).fingerprint,
        recipe=Recipe(**{"epochs": 2, "batch_size": 8, "max_length": 32, **recipe}),
        cache=PrefixCache(folder / "cache"),
    )


@contextmanager
def whole_embeddings(objective: FineTuning) -> Iterator[None]:
    few = objective._vocabulary.alone
    objective._vocabulary.alone = nullcontext  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        objective._vocabulary.alone = few  # type: ignore[method-assign]


def words(objective: FineTuning) -> torch.nn.Embedding:
    module = objective.model.get_input_embeddings()
    assert isinstance(module, torch.nn.Embedding)
    return module


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_a_trial_gives_the_same_numbers(family: str, tmp_path: Path) -> None:
    objective = make(family, tmp_path)
    cell = Cell(0, 1e-3, 1)
    with whole_embeddings(objective):
        expected = objective(cell, lambda point: None)
        learnt = words(objective).weight.detach().clone()
    found = objective(cell, lambda point: None)
    assert [point.train_loss for point in found.curve] == pytest.approx(
        [point.train_loss for point in expected.curve], rel=1e-5
    )
    assert found.metrics == pytest.approx(expected.metrics, rel=1e-5)
    torch.testing.assert_close(words(objective).weight.detach(), learnt, rtol=1e-3, atol=1e-5)
    assert found.trainable_parameters == expected.trainable_parameters == found.total_parameters


def test_weight_decay_changes_no_row_that_is_read(tmp_path: Path) -> None:
    objective = make("bert", tmp_path, weight_decay=0.1)
    cell = Cell(0, 1e-3, 1)
    with whole_embeddings(objective):
        expected = objective(cell, lambda point: None)
    found = objective(cell, lambda point: None)
    assert found.metrics == pytest.approx(expected.metrics, rel=1e-5)
    assert found.curve[-1].train_loss == pytest.approx(expected.curve[-1].train_loss, rel=1e-5)


def test_the_optimiser_keeps_the_used_rows_only_and_only_where_embeddings_are_trained(tmp_path: Path) -> None:
    objective = make("bert", tmp_path)
    held = {}
    for depth in (-1, 0, 1):
        objective.stack.freeze(depth)
        with objective._fast(depth), objective._prepared(Cell(depth, 1e-3, 1)) as run:
            ours = [p for p in run.parameters if p is words(objective).weight]
            held[depth] = ours[0].shape[0] if ours else None
    splits = objective._splits.encoded()
    used = {0} | {int(token) for split in splits for token in split.columns["input_ids"]}
    assert held == {-1: None, 0: len(used), 1: None}
    assert words(objective).weight.shape[0] == WIDER


def test_a_token_that_no_data_holds_fails_instead_of_reading_another_row(tmp_path: Path) -> None:
    objective = make("bert", tmp_path)
    objective.stack.freeze(0)
    with objective._vocabulary.alone(), pytest.raises(IndexError):
        words(objective)(torch.tensor([[WIDER - 1]]))


class Model(torch.nn.Module):
    """Nine words, of which one pads."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(9, 2, padding_idx=4)

    def get_input_embeddings(self) -> torch.nn.Embedding:
        return self.words


ENCODED = Encoded(
    {"input_ids": np.array([7, 2, 7], np.int32)}, np.array([0, 3]), np.zeros(1), {"input_ids": 4}, False
)


def test_the_padding_row_stays_without_gradient() -> None:
    model: Any = Model()
    words = model.words
    before = words.weight.detach().clone()
    with Vocabulary(model, [ENCODED]).alone():
        assert words.padding_idx == 1
        words(torch.tensor([7, 4, 2])).sum().backward()
        assert words.weight.grad.tolist() == [[1, 1], [0, 0], [1, 1]]
        with torch.no_grad():
            words.weight -= words.weight.grad
    assert words.padding_idx == 4
    expected = before.clone()
    expected[[2, 7]] -= 1
    torch.testing.assert_close(words.weight.detach(), expected)


def test_a_weight_that_another_module_uses_too_stays_whole() -> None:
    model: Any = Model()
    with Vocabulary(model, [ENCODED]).alone():
        assert model.words.weight.shape == (3, 2)
    model.decoder = torch.nn.Linear(2, 9)
    model.decoder.weight = model.words.weight
    with Vocabulary(model, [ENCODED]).alone():
        assert model.words.weight.shape == (9, 2)
