"""The training benchmark: the ways run the same study, and table and JSON say what was asked of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import tiny

ROOT = Path(__file__).parent.parent


def test_ways_run_one_study_and_are_compared(tmp_path: Path) -> None:
    model = tiny.save_model("bert", tmp_path / "model")
    data = tiny.save_data(tmp_path / "data", 24)
    out = tmp_path / "bench.json"
    settings = (
        "--task sst2 --frozen-layers 0,4 --learning-rates 1e-4,3e-4 --epochs 1 --batch-size 8 --max-length 32"
    )
    command = [sys.executable, "scripts/bench_training.py", "--model", model, "--data", data]
    command += ["--ways", "cached,trainer,authors"]
    done = subprocess.run(
        [*command, *settings.split(), "--repeats", "1", "--threads", "1", "--json", str(out)],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(out.read_text())
    assert set(result["ways"]) == {"cached", "trainer", "authors"}
    for way, figures in result["ways"].items():
        assert set(figures["depths"]) == {"0", "4"}, way
        for cell in figures["depths"].values():
            assert cell["seconds_per_cell"] > 0
            assert cell["peak_memory_bytes"] > 1_000_000
            assert 0 <= cell["score"] <= 1
    # The rates of a depth share their cache; elsewhere one of them stands for all.
    assert sum(row["way"] == "cached" for row in result["rows"]) == 4
    assert sum(row["way"] == "trainer" for row in result["rows"]) == 2
    assert 0 < result["step_share_of_peak"] < 1
    assert sum(result["step_parts"].values()) > 0
    assert "whole grid" in done.stdout
    assert "where the step goes" in done.stdout


def test_an_unknown_way_is_refused_before_anything_runs() -> None:
    command = [sys.executable, "scripts/bench_training.py", "--ways", "cached,fastest"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2
    assert "unknown way 'fastest': choose from cached, live" in done.stderr
