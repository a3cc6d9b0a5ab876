"""The training benchmark: the ways run the same study, and table and JSON say what was asked of them."""

# ruff: noqa: E402 - the scripts are found by path

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import tiny

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import bench_training
import bench_ways


@pytest.mark.slow
def test_ways_run_one_study_and_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tiny.save_model("bert", tmp_path / "model")
    data = tiny.save_data(tmp_path / "data", 24)
    out = tmp_path / "bench.json"
    settings = (
        f"--model {model} --data {data} --task sst2 --frozen-layers 0,4 --learning-rates 1e-4,3e-4 "
        "--epochs 1 --batch-size 8 --max-length 32 --ways cached,trainer --repeats 1 --threads 1 "
        f"--json {out}"
    )
    monkeypatch.setattr(sys, "argv", ["bench_training.py", *settings.split()])
    for name in ("matmul_peak", "product_rate"):
        monkeypatch.setattr(bench_training, name, partial(getattr(bench_training, name), seconds=0.1))
    bench_training.main()
    shown = capsys.readouterr().out
    result = json.loads(out.read_text())
    assert set(result["ways"]) == {"cached", "trainer"}
    for way, figures in result["ways"].items():
        assert set(figures["depths"]) == {"0", "4"}, way
        for cell in figures["depths"].values():
            assert cell["seconds_per_cell"] > 0
            assert cell["peak_memory_bytes"] > 1_000_000
            assert 0 <= cell["score"] <= 1
    # The rates of a depth share their cache; elsewhere one of them stands for all.
    assert sum(row["way"] == "cached" for row in result["rows"]) == 4
    assert sum(row["way"] == "trainer" for row in result["rows"]) == 2
    assert result["step_share_of_peak"] > 0
    assert sum(result["step_parts"].values()) > 0
    assert "whole grid" in shown
    assert "where the step goes" in shown


@pytest.mark.slow
def test_the_authors_way_computes_gradients_for_all_and_trains_the_tuned_layers(tmp_path: Path) -> None:
    way = bench_ways.WithTrainer(
        {
            "task": "sst2",
            "model": tiny.save_model("bert", tmp_path / "model"),
            "data": tiny.save_data(tmp_path / "data", 16),
            "cache": str(tmp_path / "cache"),
            "max_length": 16,
            "batch_size": 8,
            "epochs": 1,
        },
        padded=True,
        authors=True,
    )
    assert {len(row) for row in way.train["input_ids"]} == {16}, "padded"
    assert 0 <= way.run({"frozen_layers": 2, "learning_rate": 1e-2, "seed": 1})["score"] <= 1
    now = way.model.state_dict()
    changed = {name for name, value in way.weights.items() if not (now[name] == value).all()}
    assert not any(".layer.0." in name or ".layer.1." in name or "embeddings" in name for name in changed)
    assert any(".layer.2." in name for name in changed)
    assert all(parameter.requires_grad for parameter in way.model.parameters())


def test_an_unknown_way_is_refused_before_anything_runs() -> None:
    command = [sys.executable, "scripts/bench_training.py", "--ways", "cached,fastest"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2
    assert "unknown way 'fastest': choose from cached, live" in done.stderr
