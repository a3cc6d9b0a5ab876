"""The demo's model: small, loadable, pretrained for real, and made by a script that runs."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from itertools import islice
from pathlib import Path
from types import ModuleType

import processes
import pytest

from objectives.demo import examples as demo
from objectives.tasks.definition import get_task

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "scripts" / "make_demo_model.py"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_demo_model", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make(arguments: list[str]) -> None:
    load().main(arguments)


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load()


def test_the_folder_is_small_and_holds_no_pickle() -> None:
    files = [path for path in demo.MODEL_PATH.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 4_000_000
    assert {path.suffix for path in files} <= {".json", ".safetensors", ".txt"}


def test_it_loads_as_a_classifier_with_twelve_pretrained_layers() -> None:
    import torch
    from transformers import AutoModelForSequenceClassification

    model, info = AutoModelForSequenceClassification.from_pretrained(
        demo.MODEL_PATH, num_labels=3, output_loading_info=True
    )
    assert model.config.num_hidden_layers == len(model.bert.encoder.layer) == 12
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    fresh = set(info["missing_keys"])
    assert fresh
    assert all(name.startswith("classifier.") for name in fresh), fresh


@pytest.mark.parametrize("task", ["cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli"])
def test_every_word_of_every_task_is_one_known_token(task: str) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(demo.MODEL_PATH)
    splits = ("train", "validation_matched", "validation_mismatched") if task == "mnli" else ("validation",)
    longest = 0
    for split in splits:
        for example in demo.examples(task, str(get_task(task).demo), split):
            texts = [value for value in example.values() if isinstance(value, str)]
            tokens = tokenizer(*texts)["input_ids"]
            longest = max(longest, len(tokens))
            assert tokenizer.unk_token_id not in tokens
            assert len(tokens) == sum(len(text.split()) for text in texts) + 1 + len(texts), texts
    assert longest <= demo.RECIPE["max_length"] <= tokenizer.model_max_length


def test_text_outside_the_language_is_spelt_not_lost() -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(demo.MODEL_PATH)
    assert tokenizer.tokenize("Zebras") == ["z", "##e", "##b", "##r", "##a", "##s"]


def test_masked_words_are_guessed_far_better_than_by_frequency(script: ModuleType) -> None:
    import torch
    from transformers import AutoModelForPreTraining, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(demo.MODEL_PATH)
    model = AutoModelForPreTraining.from_pretrained(demo.MODEL_PATH)
    words = Counter(
        word
        for passage in islice(script.passages("held out"), 1_000)
        for text in filter(None, passage[:2])
        for word in text.split()
    )
    commonest = max(words.values()) / words.total()
    accuracy = script.masked_accuracy(model, tokenizer, count=500)
    assert accuracy > 0.5 > 2 * commonest
    torch.manual_seed(0)
    untrained = script.masked_accuracy(type(model)(model.config), tokenizer, count=100)
    assert untrained < 0.05


@pytest.mark.slow
def test_the_script_makes_a_loadable_folder_twice_the_same(script: ModuleType, tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    quick = ["--steps", "3", "--batch-size", "4", "--out"]
    assert processes.run(make, [*quick, str(tmp_path / "one")]) == 0
    script.main([*quick, str(tmp_path / "two")])
    one, two = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two"))
    assert one == two
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "one")
    assert len(model.bert.encoder.layer) == 12
    shipped = json.loads((demo.MODEL_PATH / "config.json").read_text())
    assert json.loads((tmp_path / "one" / "config.json").read_text()) == shipped
    vocabulary = AutoTokenizer.from_pretrained(tmp_path / "one").get_vocab()
    assert vocabulary == AutoTokenizer.from_pretrained(demo.MODEL_PATH).get_vocab()


@pytest.mark.slow
def test_the_script_goes_on_with_a_model_and_gives_it_dropout(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import AutoModelForPreTraining, AutoTokenizer

    shipped = (demo.MODEL_PATH / "model.safetensors").read_bytes()
    further = ["--start", str(demo.MODEL_PATH), "--dropout", "0.1", "--steps", "3", "--batch-size", "4"]
    with monkeypatch.context() as patch:
        patch.setattr(script, "load", None)  # Should the refusal fail, nothing is written.
        with pytest.raises(SystemExit):
            script.main(further)
    script.main([*further, "--out", str(tmp_path)])
    assert (demo.MODEL_PATH / "model.safetensors").read_bytes() == shipped
    assert (tmp_path / "model.safetensors").read_bytes() != shipped
    model = AutoModelForPreTraining.from_pretrained(tmp_path)
    config = model.config
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.1, 0.1)
    # Only a model that kept what it had learnt guesses so well after three steps.
    assert script.masked_accuracy(model, AutoTokenizer.from_pretrained(tmp_path), count=100) > 0.5
