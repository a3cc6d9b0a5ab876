"""The layer stack of every family, parameter counts of the paper's models, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny

from objectives.contract import UsageError
from objectives.pretrained.stack import find_layers
from study.layers import count_parameters, main, render

PUBLISHED = {
    "bert-base": (23_837_184, 7_087_872, 590_592, 109_482_240),
    "roberta-base": (39_000_576, 7_087_872, 590_592, 124_645_632),
    "bert-large": (31_782_912, 12_596_224, 1_049_600, 335_141_888),
    "roberta-large": (52_000_768, 12_596_224, 1_049_600, 355_359_744),
}


@pytest.mark.parametrize("model", PUBLISHED)
def test_parameter_counts_agree_with_the_published_ones(model: str) -> None:
    table = count_parameters(model)
    assert (table.embeddings, table.layers[0], table.pooler, table.backbone) == PUBLISHED[model]
    assert set(table.layers) == {table.layers[0]}
    total = len(table.layers)
    assert table.trainable[0] == 1
    head = table.pooler + table.classifier
    assert table.trainable[total] == pytest.approx(head / table.total)
    assert table.trainable[total - 1] == pytest.approx((head + table.layers[0]) / table.total)
    shares = [table.trainable[n] for n in range(1, total + 1)]
    assert shares == sorted(shares, reverse=True)
    assert f"{table.backbone:,}" in render(table)


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_every_parameter_of_every_family_is_in_exactly_one_group(tmp_path: Path, family: str) -> None:
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(tiny.save_model(family, tmp_path))
    stack = find_layers(model)
    inside = {
        f"{name}.{n}"
        for name, layer in zip(stack.layer_names, stack.layers, strict=True)
        for n, _ in layer.named_parameters()
    }
    groups = [set(stack.embeddings), inside, set(stack.head)]
    assert set.union(*groups) == {name for name, _ in model.named_parameters()}
    assert sum(map(len, groups)) == len(set.union(*groups))
    assert stack.total_layers == tiny.LAYERS
    assert any("emb" in name or "wte" in name for name in stack.embeddings)
    assert set(stack.classifier) <= set(stack.head)
    assert not any(
        "norm" in name and "emb" not in name.lower() and "encoder" not in name for name in stack.embeddings
    ), "a final norm belongs to the head"


def test_shared_layers_are_refused_with_the_reason(tmp_path: Path) -> None:
    from transformers import AlbertConfig

    AlbertConfig(num_hidden_layers=4).save_pretrained(tmp_path)
    with pytest.raises(UsageError, match="albert shares one layer's weights"):
        count_parameters(str(tmp_path))


def test_a_model_without_a_list_of_layers_is_refused(tmp_path: Path) -> None:
    from transformers import T5Config

    T5Config().save_pretrained(tmp_path)
    with pytest.raises(UsageError, match="encoder-decoder"):
        count_parameters(str(tmp_path))


def test_unknown_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        main(["--model", str(tmp_path / "nowhere")])
    with pytest.raises(UsageError, match=r"no config\.json"):
        main(["--model", str(tmp_path)])


def test_the_table_is_written_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--demo", "--json", str(tmp_path / "layers.json")]) == 0
    assert "demo: 12 layers" in capsys.readouterr().out
    assert (tmp_path / "layers.json").stat().st_size > 100
