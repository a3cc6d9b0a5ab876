"""The last layer for the first token only: the same numbers, and left alone where another token is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny
import torch

from objectives.pretrained.head_token import find_head_token
from objectives.pretrained.readout import Readout
from objectives.pretrained.replay import Replay
from objectives.pretrained.stack import find_layers

FIRST_TOKEN = ("bert", "roberta", "electra", "mpnet", "modernbert", "distilbert", "deberta-v2")


def load(family: str, folder: Path, **changes: Any) -> Any:
    from transformers import AutoModelForSequenceClassification

    path = tiny.save_model(family, folder, dropout=False, **changes)
    torch.manual_seed(1)
    return AutoModelForSequenceClassification.from_pretrained(path, num_labels=3)


def inputs() -> dict[str, torch.Tensor]:
    ids = torch.randint(5, 72, (6, 9), generator=torch.Generator().manual_seed(2))
    mask = (torch.arange(9) < torch.tensor([9, 7, 5, 9, 3, 8])[:, None]).long()
    return {"input_ids": ids * mask, "attention_mask": mask}


def loss_and_gradients(model: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    model.zero_grad()
    logits = model(**inputs()).logits
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor([0, 1, 2, 0, 1, 2]))
    loss.backward()
    return logits, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("family", FIRST_TOKEN)
def test_answers_and_gradients_are_those_of_the_whole_layer(family: str, tmp_path: Path) -> None:
    model = load(family, tmp_path).train()
    readout = Readout(model, find_layers(model))
    assert readout.first_token_only
    whole, expected = loss_and_gradients(model)
    with readout.reading():
        read, gradients = loss_and_gradients(model)
    torch.testing.assert_close(read, whole, rtol=1e-5, atol=1e-6)
    assert set(gradients) == set(expected)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-6)


def test_the_feed_forward_of_the_last_layer_sees_one_token_and_all_of_them_again_afterwards(
    tmp_path: Path,
) -> None:
    model = load("bert", tmp_path)
    readout = Readout(model, find_layers(model))
    widths: list[int] = []
    for layer in (model.bert.encoder.layer[-2], model.bert.encoder.layer[-1]):
        layer.intermediate.register_forward_hook(lambda _m, _a, out: widths.append(out.shape[1]))
    with readout.reading():
        model(**inputs())
    model(**inputs())
    assert widths == [9, 1, 9, 9]


@pytest.mark.parametrize("family", sorted(set(tiny.FAMILIES) - set(FIRST_TOKEN)))
def test_models_that_read_another_token_run_whole(family: str, tmp_path: Path) -> None:
    model = load(family, tmp_path)
    assert not Readout(model, find_layers(model)).first_token_only


def test_a_classifier_of_the_mean_over_tokens_is_found_out(tmp_path: Path) -> None:
    model = load("modernbert", tmp_path, classifier_pooling="mean")
    assert not Readout(model, find_layers(model)).first_token_only


def test_a_classifier_that_answers_everything_alike_proves_nothing(tmp_path: Path) -> None:
    model = load("bert", tmp_path)
    torch.nn.init.zeros_(model.classifier.weight)
    assert not Readout(model, find_layers(model)).first_token_only


def test_what_a_head_reads_is_found_out_without_tf32(tmp_path: Path) -> None:
    model = load("bert", tmp_path)
    stack = find_layers(model)
    seen: set[str] = set()
    model.register_forward_hook(lambda *_: seen.add(torch.get_float32_matmul_precision()))
    replay, before = Replay(model, stack), torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    seen.clear()
    try:
        Readout(model, stack)
        find_head_token(model, replay, left=False)
        assert seen == {"highest"}, "in TF32, answers that are the same differ by more than they may"
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)
