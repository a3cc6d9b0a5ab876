"""Memory is planned: what depths need is estimated as trials measure it, and what cannot fit is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tiny
from transformers import AutoConfig

from objectives.contract import UsageError
from objectives.pretrained import footprint
from objectives.pretrained.footprint import Fit, Shapes
from study import launch

ROOT = Path(__file__).parent.parent
LAYERS, TOKENS, BATCH = 6, 128, 16
MEDIUM: dict[str, Any] = {
    "hidden_size": 256,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
    "max_position_embeddings": 256,
}
LARGE: dict[str, Any] = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "vocab_size": 30522,
    "max_position_embeddings": 512,
}
BERT_LARGE_PARAMETERS = 335_143_938


def shapes(
    family: str = "bert", *, tokens: int = 16, precision: str = "no", host: bool = True, **changes: Any
) -> Shapes:
    config = AutoConfig.for_model(family, **{**tiny.FAMILIES[family], **changes})
    return footprint.shapes(config, 2, tokens=tokens, precision=precision, host=host)


def fit(**changes: Any) -> Fit:
    return Fit(**{"micro_batch": 4, "cached": True, **changes})


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_every_family_has_one_and_freezing_never_needs_more(family: str) -> None:
    found = shapes(family, host=False)
    totals = [found.footprint(depth, fit()).total for depth in (0, -1, 1, 2, 3, 4)]
    assert totals == sorted(totals, reverse=True)
    assert len(set(totals)) > 4


def test_the_parts_of_bert_large_are_those_of_its_parameters() -> None:
    found = shapes(host=False, tokens=128, **LARGE)
    full = found.footprint(0, fit(micro_batch=1))
    assert full.weights == full.gradients == BERT_LARGE_PARAMETERS * 4
    assert full.optimiser == 2 * full.weights
    top, live = (found.footprint(24, fit(micro_batch=1, cached=cached)) for cached in (True, False))
    head = 1024 * 1024 + 1024 + 2 * 1024 + 2
    assert live.gradients == 4 * head, "pooler and classifier"
    assert live.weights == full.weights
    assert top.weights == full.weights, "the states are computed with the whole model"
    assert top.gradients == top.optimiser == 0
    trained = found.footprint(12, fit(micro_batch=64))
    assert trained.weights < 0.6 * full.weights, "frozen layers of a cached depth are off the device"


def test_attention_that_is_not_fused_keeps_what_it_drops() -> None:
    def kept(family: str, rate: float) -> int:
        changes = {"attention_probs_dropout_prob": rate}
        return shapes(family, host=False, tokens=64, **changes).kept[0]

    assert kept("deberta-v2", 0.1) > kept("deberta-v2", 0.0)
    assert kept("bert", 0.1) == kept("bert", 0.0)


def test_activations_grow_with_the_micro_batch_and_shrink_with_checkpointing_and_bf16() -> None:
    found = shapes(host=False, tokens=64, **MEDIUM)
    few, many = (found.footprint(0, fit(micro_batch=size)).activations for size in (64, 256))
    assert many == pytest.approx(4 * few, rel=0.01)
    assert found.footprint(0, fit(micro_batch=64, checkpointing=True)).activations < few / 2
    half = shapes(host=False, tokens=64, precision="bf16", **MEDIUM)
    assert half.footprint(0, fit(micro_batch=64)).activations < 0.8 * few


PROGRAM = """
import sys; sys.path.insert(0, "tests")
from test_footprint import measure
measure(sys.argv[1], sys.argv[2] == "checkpointing")
"""


def measure(place: str, checkpointing: bool) -> None:
    """Peaks of trials at several depths, as their records have them."""
    from objectives.contract import Cell, Recipe
    from objectives.data.task_data import load_data
    from objectives.fitting import Fitting
    from objectives.prefix.prefix_cache import PrefixCache
    from objectives.tasks.definition import get_task
    from objectives.training.finetune import FineTuning

    folder = Path(place)
    objective = FineTuning(
        data=load_data(get_task("sst2"), str(folder / "data")),
        model_path=str(folder / "model"),
        model_fingerprint="medium",
        recipe=Recipe(epochs=1, batch_size=BATCH, max_length=TOKENS),
        cache=PrefixCache(folder / "cache", None, print),
        fitting=Fitting(gradient_checkpointing=checkpointing),
    )
    records = {depth: objective(Cell(depth, 1e-5, 1), lambda point: None) for depth in (0, 3, LAYERS)}
    print(json.dumps({depth: record.peak_memory_bytes for depth, record in records.items()}))


@pytest.mark.slow
@pytest.mark.parametrize("checkpointing", [False, True])
def test_trials_hold_what_was_estimated(tmp_path: Path, checkpointing: bool) -> None:
    tiny.save_model("bert", tmp_path / "model", **MEDIUM)
    (tmp_path / "data").mkdir()
    row = json.dumps({"sentence": " ".join(["w1"] * TOKENS), "label": 1})
    other = json.dumps({"sentence": " ".join(["w2"] * TOKENS), "label": 0})
    for name in ("train", "validation"):
        (tmp_path / "data" / f"{name}.jsonl").write_text(f"{row}\n{other}\n" * BATCH)
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), "checkpointing" if checkpointing else "plain"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "ACCELERATE_USE_CPU": "true"},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    found = shapes(tokens=TOKENS, **MEDIUM)
    for depth, peak in json.loads(ended.stdout.splitlines()[-1]).items():
        estimate = found.footprint(int(depth), fit(micro_batch=BATCH, checkpointing=checkpointing))
        assert estimate.total == pytest.approx(peak, rel=footprint.TOLERANCE), depth


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A launch of a model of 24 layers, 1,024 wide; without weights, which planning does not need."""
    tiny.save_model("bert", tmp_path / "large")
    (tmp_path / "large" / "model.safetensors").unlink()
    AutoConfig.for_model("bert", **LARGE).save_pretrained(tmp_path / "large")
    monkeypatch.chdir(tmp_path)
    data = tiny.save_data(tmp_path / "data")
    return ["--task", "sst2", "--data", data, "--model", "large", "--workers", "0"]


def test_what_cannot_fit_is_refused_before_anything_is_planned(large: list[str], tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        launch.main([*large, "--frozen-layers", "0,12,24", "--memory-limit", "4G"])
    said = str(refused.value)
    assert said.startswith("sst2-large-grid: --frozen-layers 0 needs ")
    assert "with a micro-batch of 1 (weights 2.68 GB + gradients " in said
    assert "--memory-limit has 4.00 GB: freeze at least " in said
    assert "\n" not in said
    assert not list(tmp_path.glob("elsa.db*"))


@pytest.mark.slow
def test_what_fits_is_planned(large: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert launch.main([*large, "--frozen-layers", "12,24", "--memory-limit", "7G"]) == 0
    assert "planned: sst2-large-grid" in capsys.readouterr().out


@pytest.mark.slow
def test_the_refusal_names_what_would_fit(large: list[str]) -> None:
    few = ["--frozen-layers", "12,24", "--max-length", "16", "--batch-size", "4096", "--memory-limit", "7G"]
    with pytest.raises(
        UsageError,
        match=r"use --micro-batch 128, or use --gradient-checkpointing with --micro-batch 1, or freeze",
    ):
        launch.main([*large, *few, "--micro-batch", "4096"])
