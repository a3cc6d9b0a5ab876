"""Every model family trains on a device that is not the host, with the CPU's numbers, and without waiting.

There is no GPU where these tests run: a pretend one (tests/pretend_gpu.py) holds real values, refuses to mix
host and device, and counts read-backs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import processes
import pytest
import tiny
import torch

ROOT = Path(__file__).parent.parent
DEPTHS = (0, 1, 2)
WAYS = {"cached": DEPTHS, "live": DEPTHS[1:], "uncached": DEPTHS[1:], "resident": DEPTHS[1:]}

pytestmark = pytest.mark.slow
Trials = dict[tuple[Any, ...], dict[str, Any]]


def run_trials(folder: Path) -> None:
    # Here, because it makes the device in whatever process imports it.
    import pretend_trials

    pretend_trials.main(folder, list(tiny.FAMILIES))


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Trials:
    folder = tmp_path_factory.mktemp("pretend")
    assert processes.run(run_trials, folder) == 0
    found = [json.loads(line) for line in (folder / "found.jsonl").read_text().splitlines()]
    names = ("family", "device", "way", "dropout", "depth")
    return {tuple(trial.pop(name, None) for name in names): trial for trial in found}


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_a_family_trains_there_with_the_cpus_numbers_and_no_read_back_in_a_step(
    trials: Trials, family: str
) -> None:
    for way, depths in WAYS.items():
        for depth in depths:
            there = trials[family, "pretend", way, False, depth]
            here = trials[family, "cpu", "cached", False, depth]
            assert "error" not in there, f"{way} at {depth}: {there['error']}"
            assert there["losses"] == pytest.approx(here["losses"], rel=1e-4), (way, depth)
            assert there["score"] == here["score"]
            assert there["prefix"] == (None if depth == 0 else "cached" if way == "resident" else way)
            assert there["resident"] == (way == "resident")
            assert there["ran_on"] == "a pretend GPU"
            assert there["reads"] == [0, 2], "one of the loss and one of the evaluation, after the last step"


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_with_dropout_too_cached_states_give_the_numbers_of_computed_ones(
    trials: Trials, family: str
) -> None:
    for depth in DEPTHS[1:]:
        cached, computed = (trials[family, "pretend", way, True, depth] for way in ("cached", "uncached"))
        assert cached["losses"] == pytest.approx(computed["losses"], rel=1e-6), depth


@pytest.mark.parametrize("family", ["bert", "xlnet", "deberta-v2", "modernbert", "gpt2"])
def test_a_family_trains_there_in_bf16(trials: Trials, family: str) -> None:
    def found(device: str, way: str, depth: int) -> dict[str, Any]:
        trial = trials[f"{family} in bf16", device, way, False, depth]
        assert "error" not in trial, f"{way} at {depth}: {trial['error']}"
        return trial

    for depth in DEPTHS:
        cached, here = found("pretend", "cached", depth), found("cpu", "cached", depth)
        # The CPU's autocast computes other operations in 16 bits.
        assert cached["losses"] == pytest.approx(here["losses"], rel=0.02), depth
        assert cached["losses"] != trials[family, "pretend", "cached", False, depth]["losses"]
        assert cached["reads"] == [0, 2]
    for depth in DEPTHS[1:]:
        cached, computed, resident = (
            found("pretend", way, depth) for way in ("cached", "uncached", "resident")
        )
        assert (cached["prefix"], computed["prefix"], resident["resident"]) == ("cached", "uncached", True)
        assert resident["losses"] == cached["losses"]
        assert computed["losses"] == pytest.approx(cached["losses"], rel=1e-3), depth
        assert computed["reads"] == resident["reads"] == [0, 2]


def test_fewer_tuned_layers_hold_less_of_its_memory(trials: Trials) -> None:
    peaks = [trials["bert", "pretend", "cached", False, depth]["peak"] for depth in DEPTHS]
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[-1] < peaks[0] / 2


def named(trials: Trials, name: str) -> dict[str, Any]:
    return trials[name, None, None, None, None]


def test_frozen_layers_whose_states_are_cached_leave_the_device_and_come_back(trials: Trials) -> None:
    cached, live, uncached = (named(trials, f"{way} at 1") for way in ("cached", "live", "uncached"))
    assert cached["first_layer_on"] == ["meta"]
    assert live["first_layer_on"] == uncached["first_layer_on"] == ["pretend"]
    assert cached["put_back"]
    assert live["put_back"]
    assert cached["peak"] < live["peak"]


def test_checkpointing_holds_less_and_computes_the_same(trials: Trials) -> None:
    whole, checkpointed = named(trials, "whole"), named(trials, "checkpointed")
    assert checkpointed["losses"] == whole["losses"]
    assert checkpointed["peak"] < 0.9 * whole["peak"]
    assert checkpointed["reads"] == whole["reads"]


def test_a_device_without_enough_memory_trains_with_a_smaller_micro_batch(trials: Trials) -> None:
    whole, limited = named(trials, "whole"), named(trials, "limited")
    assert "error" not in limited, limited["error"]
    assert whole["micro_batch"] == 16 > limited["micro_batch"]
    assert limited["peak"] <= 0.75 * whole["peak"]


def test_the_loss_is_read_back_once_in_a_hundred_steps(trials: Trials) -> None:
    reads = named(trials, "long")["reads"]
    assert {step: count for step, count in enumerate(reads, start=1) if count} == {100: 1, 105: 2}


def test_it_finds_a_device_whose_index_was_left_out(trials: Trials) -> None:
    """As no trial ran on a single GPU before the device was normalised."""
    assert named(trials, "index-less")["error"].startswith("BrokenThreadPool")


MIXED = """
import pretend_gpu, torch
there = torch.ones(3, device="pretend")
assert float(there.sum()) == 3 and pretend_gpu.counted.reads.total() == 1
assert torch.equal((there * 2).cpu(), torch.full((3,), 2.0)) and pretend_gpu.counted.reads.total() == 2
there[there > 1] = 0.0
assert pretend_gpu.counted.reads.total() == 3, "a mask is counted before it is used"
with torch.autocast("pretend", dtype=torch.bfloat16):
    assert (there[:, None] @ there[None]).dtype == torch.bfloat16
assert pretend_gpu.counted.reads.total() == 3
before = pretend_gpu.counted.used_bytes
more = torch.zeros(1000, device="pretend")
assert pretend_gpu.counted.used_bytes == before + 4000
del more
assert pretend_gpu.counted.used_bytes == before
there + torch.ones(3)
"""


def test_the_pretend_gpu_refuses_to_mix_and_counts_what_it_is_asked() -> None:
    done = subprocess.run(
        [sys.executable, "-c", MIXED],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.strip().endswith(
        "expected all tensors to be on the same device, found pretend and cpu"
    )
    assert not hasattr(torch, "pretend"), "it stays in processes of its own"
