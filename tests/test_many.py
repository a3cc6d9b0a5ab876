"""Many tasks on one base: the same bits as separate models, one copy of what is frozen, one base only."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch

from objectives.contract import UsageError
from objectives.pretrained.stack import find_layers
from study.models import load, load_many

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))
from bench_many import main as bench
from bench_many import random_task

TEXTS = ["w1 w2 w3", "w7", "w20 w21 w22 w23 w24 w25 w26 w27 w28"]


def delta(folder: Path, base: str, depth: int, seed: int, **details: Any) -> str:
    return random_task(
        folder, base, depth, seed, **{"labels": 2 + seed, "max_length": 32, "noise": 0.1, **details}
    )


def tokens(base: str, texts: list[str]) -> dict[str, torch.Tensor]:
    from transformers import AutoTokenizer

    return dict(AutoTokenizer.from_pretrained(base)(texts, padding=True, return_tensors="pt"))


@pytest.mark.parametrize("family", ["bert", "modernbert", "deberta-v2", "xlnet", "gpt2"])
def test_tasks_of_every_depth_answer_as_their_own_models_do(tmp_path: Path, family: str) -> None:
    base = tiny.save_model(family, tmp_path / "base")
    depths = (2, 4, 0, -1, 3)
    folders = [delta(tmp_path / f"{i}", base, depth, i) for i, depth in enumerate(depths)]
    many = load_many(folders)
    inputs = tokens(base, TEXTS)
    found = many(inputs)
    assert list(found) == [f"task{i}" for i in range(len(depths))]
    for name, folder in zip(found, folders, strict=True):
        with torch.inference_mode():
            expected = load(folder)(**inputs).logits
        assert torch.equal(found[name], expected), name
    assert not torch.equal(found["task0"], many(tokens(base, TEXTS[::-1]))["task0"])


def test_the_bases_layers_run_once_and_are_in_memory_once(tmp_path: Path) -> None:
    base = tiny.save_model("bert", tmp_path / "base")
    depths = (3, 1, 3)
    many = load_many([delta(tmp_path / f"{i}", base, depth, i) for i, depth in enumerate(depths)])
    ran: list[int] = []
    for model in many.tasks.values():
        for number, layer in enumerate(find_layers(model).layers):
            layer.attention.register_forward_hook(lambda *_, number=number: ran.append(number))  # type: ignore[operator, union-attr]
    many(tokens(base, TEXTS))
    own = [number for depth in depths for number in range(depth, tiny.LAYERS)]
    assert sorted(ran) == sorted([0, 1, 2, *own])
    models = list(many.tasks.values())
    tensors = {parameter.data_ptr() for model in models for parameter in model.parameters()}
    layer = len(list(find_layers(models[0]).layers[0].parameters()))
    whole = len(list(models[0].parameters()))
    # Of the three, the second holds layers 1 and 2 of its own, and all but the first share the rest.
    head = len(find_layers(models[0]).head)
    assert len(tensors) == whole + (3 * layer + head) + (layer + head)


def test_answers_have_labels_and_scores_and_texts_are_cut_as_in_training(tmp_path: Path) -> None:
    base = tiny.save_model("bert", tmp_path / "base")
    folders = [
        delta(tmp_path / "a", base, 2, 1),
        delta(tmp_path / "b", base, 3, 2, problem_type="multi_label_classification", max_length=6),
        delta(tmp_path / "c", base, 4, 3, problem_type="regression", labels=1),
    ]
    many = load_many(folders)
    found = many.predict(TEXTS, batch_size=2)
    with torch.inference_mode():
        expected = load(folders[0])(**tokens(base, TEXTS[:2])).logits.softmax(-1)
    first = found["task1"][0]
    assert first["label"] == f"LABEL_{int(expected[0].argmax())}"
    assert first["score"] == pytest.approx(float(expected[0].max()), abs=1e-6)
    assert [len(answer) for answer in found["task2"]] == [4, 4, 4]
    assert all(isinstance(answer, float) for answer in found["task3"])
    cut = many.predict([" ".join(TEXTS[2].split()[:4])])["task2"][0]
    assert found["task2"][2][0]["score"] == pytest.approx(cut[0]["score"], abs=1e-6), "cut at 6 tokens"
    assert many.predict([]) == {"task1": [], "task2": [], "task3": []}


def test_texts_of_another_kind_than_the_task_reads_are_refused(tmp_path: Path) -> None:
    base = tiny.save_model("bert", tmp_path / "base")
    folders = [delta(tmp_path / name, base, 2, seed) for seed, name in enumerate(("one", "two"))]
    for folder, text in zip(folders, (["body"], ["left", "right"]), strict=True):
        path = Path(folder) / "tuned.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "text": text}))
    one, two = load_many(folders[:1]), load_many(folders[1:])
    with pytest.raises(UsageError, match=r"one text was given: write \[text\]"):
        one.predict("w1 w2")
    with pytest.raises(UsageError, match=r"task0 reads body, and pairs were given: .* single texts"):
        one.predict([("w1", "w2")])
    with pytest.raises(UsageError, match=r"task1 reads left and right, and single texts were given"):
        two.predict(["w1"])
    with pytest.raises(UsageError, match="both were given"):
        one.predict(["w1", ("w1", "w2")])  # type: ignore[list-item]
    assert len(one.predict(["w1"])["task0"]) == len(two.predict([("w1", "w2")])["task1"]) == 1


def test_a_base_of_the_hub_is_loaded_at_its_recorded_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import AutoModelForSequenceClassification

    base = tiny.save_model("bert", tmp_path / "base")
    folder = delta(tmp_path / "a", base, 2, 1)
    path = Path(folder) / "tuned.json"
    commit = "0123456789" * 4
    path.write_text(json.dumps({**json.loads(path.read_text()), "base": "owner/name", "revision": commit}))
    asked: list[tuple[str, str | None]] = []
    whole = AutoModelForSequenceClassification.from_pretrained

    def from_pretrained(place: str, *, revision: str | None = None, **details: Any) -> Any:
        asked.append((place, revision))
        return whole(base, **details)

    monkeypatch.setattr(AutoModelForSequenceClassification, "from_pretrained", from_pretrained)
    load(folder)
    load(folder, base=base)
    assert asked == [("owner/name", commit), (base, None)]


def test_two_folders_of_one_task_have_names_of_their_own(tmp_path: Path) -> None:
    base = tiny.save_model("bert", tmp_path / "base")
    folder = delta(tmp_path / "a", base, 2, 1)
    assert list(load_many([folder, folder]).tasks) == ["task1", "task1 2"]


def test_another_base_is_refused(tmp_path: Path) -> None:
    base = tiny.save_model("bert", tmp_path / "base")
    other = tiny.save_model("bert", tmp_path / "other", initializer_range=0.05)
    folders = [delta(tmp_path / "a", base, 2, 1), delta(tmp_path / "b", other, 3, 2)]
    with pytest.raises(UsageError, match=r"/b has another base than the folders before it") as caught:
        load_many(folders)
    assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="is not the base of"):
        load_many(folders[:1], base=other)
    with pytest.raises(UsageError, match="no folder is named"):
        load_many([])
    with pytest.raises(UsageError, match=r"no tuned.json"):
        load_many([tmp_path])


def test_the_benchmark_compares_measurement_and_arithmetic(tmp_path: Path) -> None:
    out = tmp_path / "many.json"
    shape = "--tasks 1,3 --layers 4 --frozen-layers 3 --width 64 --length 8 --repeats 1"
    assert bench([*shape.split(), "--json", str(out)]) == 0
    rows = json.loads(out.read_text())
    assert [(row["tasks"], row["arithmetic"]) for row in rows] == [(1, 1.0), (3, 0.5)]
    assert rows[1]["together_bytes"] < rows[1]["apart_bytes"]
