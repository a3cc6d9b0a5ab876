"""What decays is what Transformers' Trainer decays, and the paper's recipe is the paper's."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny
from transformers import AutoConfig, AutoModelForSequenceClassification, Trainer

from objectives.contract import Recipe
from objectives.pretrained.stack import find_layers
from objectives.training.optimiser import make_optimizer, trainable
from study.protocols import Subject, get


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_biases_and_norms_do_not_decay_as_with_trainer(family: str) -> None:
    config = AutoConfig.for_model(family, **{**tiny.FAMILIES[family], "pad_token_id": 0})
    model = AutoModelForSequenceClassification.from_config(config)
    find_layers(model).freeze(2)
    optimizer = make_optimizer(model, Recipe(weight_decay=0.1), 1e-3)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decays = {
        names[id(parameter)]: group["weight_decay"]
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    theirs = set(Trainer.get_decay_parameter_names(None, model))  # type: ignore[arg-type]
    assert decays == {
        name: 0.1 if name in theirs else 0.0 for name, p in model.named_parameters() if p.requires_grad
    }
    assert {0.0, 0.1} == set(decays.values())


def test_without_decay_all_parameters_are_one_group(tmp_path: Path) -> None:
    config = AutoConfig.for_model("bert", **tiny.FAMILIES["bert"])
    model = AutoModelForSequenceClassification.from_config(config)
    (group,) = make_optimizer(model, Recipe(), 1e-3).param_groups
    assert [id(p) for p in group["params"]] == [id(p) for p in trainable(model)]


def test_the_paper_draws_its_batches_at_random() -> None:
    subject = Subject(model="bert-base", total_layers=12, demo=False)
    assert get("paper").defaults(subject).recipe["group_by_length"] is False
