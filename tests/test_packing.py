"""`--workers-per-gpu auto`: by the peak of the study's trials, else by the estimate."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiny

from objectives.contract import Cell, Recipe, TrialRecord
from objectives.fitting import DEVICE_PROCESS_BYTES
from objectives.pretrained.models import identify
from study.launching.memory import stored_needs
from study.specs.study_spec import StudySpec
from study.workers.gpus import Gpu
from study.workers.options import Places, Working
from study.workers.packing import Need, packed, workers_per_gpu

GPU = Gpu(index="0", name="A10", memory_bytes=24 * 10**9, capability=(8, 6))
SMALL = Gpu(index="1", name="T4", memory_bytes=15 * 10**9, capability=(7, 5))


def trial(
    peak: int | None, depth: int = 0, device: str = "NVIDIA A10", micro_batch: int = 16, **changes: Any
) -> Any:
    record = TrialRecord(
        metric="f1",
        score=0.5,
        peak_memory_bytes=peak,
        device=device,
        **{"micro_batch": micro_batch, "processes": 1, **changes},
    )
    return SimpleNamespace(record=record, cell=Cell(depth, 1e-4, 1))


def need(*trials: Any, estimate: int | None = 7 * 10**9) -> Need:
    waits = SimpleNamespace(record=None, cell=Cell(0, 1e-4, 2))
    study: Any = SimpleNamespace(trials=lambda: [*trials, waits])
    return Need(study=study, depths=(0, 6, 12), micro_batch=16, estimate=lambda: estimate)


@pytest.mark.parametrize(
    ("found", "gigabytes", "cores", "wanted"),
    [
        ([GPU], 5, 64, 4),
        ([GPU], 7, 64, 3),
        ([GPU, SMALL], 5, 64, 2),
        ([GPU], 30, 64, 1),
        ([GPU], 1, 64, 4),
        ([GPU, GPU], 1, 8, 2),
        ([GPU], 1, 1, 1),
    ],
)
def test_as_many_as_memory_and_cores_hold(found: list[Gpu], gigabytes: int, cores: int, wanted: int) -> None:
    assert workers_per_gpu(found, gigabytes * 10**9, cores) == wanted


def test_what_trials_held_counts_more_than_the_estimate() -> None:
    ran = need(trial(10**9), trial(3 * 10**9), trial(9 * 10**9, device="cpu x8"), trial(None))
    assert ran.peak_bytes() == 3 * 10**9 + DEVICE_PROCESS_BYTES
    assert need(trial(10**9, device="cpu x2")).peak_bytes() == 7 * 10**9

    def count(working: Working, *needs: Need) -> int | None:
        return packed(working, lambda: needs, found=[GPU], cores=64).workers_per_gpu

    assert count(Working(), need()) == count(Working(workers_per_gpu="auto"), need()) == 3  # type: ignore[arg-type]
    assert count(Working(), ran) == 4
    assert count(Working(), need(estimate=None)) == 1
    assert count(Working(), need(), need(estimate=None)) == 3, "one of them trains nothing"
    assert count(Working(workers_per_gpu=2), ran) == 2
    assert count(Working(workers=5), ran) == 1, "they share the GPUs in turn"
    assert count(Working(processes_per_trial=2), ran) == 1
    assert packed(Working(), list, found=[]).workers_per_gpu == 1


@pytest.mark.parametrize(
    "other", [trial(10**9, depth=12), trial(10**9, micro_batch=8), trial(10**9, processes=2)]
)
def test_a_trial_that_held_less_by_its_nature_says_nothing_of_the_largest(other: Any) -> None:
    assert need(other, estimate=12 * 10**9).peak_bytes() == 12 * 10**9
    assert need(other, estimate=None).peak_bytes() is None


def test_a_deep_trial_that_held_more_than_the_estimate_is_believed() -> None:
    held = need(trial(9 * 10**9, depth=6)).peak_bytes()
    assert held == 9 * 10**9 + DEVICE_PROCESS_BYTES


def test_the_whole_model_is_there_before_a_trial_begins() -> None:
    held = need(trial(10**9, total_parameters=10**9)).peak_bytes()
    assert held == 4 * 10**9 + DEVICE_PROCESS_BYTES


def test_work_estimates_by_the_stored_spec(tmp_path: Path) -> None:
    path = tiny.save_model("bert", tmp_path / "model")
    identity = identify(path)
    spec = StudySpec(
        protocol="grid",
        task="sst2",
        metric="accuracy",
        model="tiny",
        model_fingerprint=identity.fingerprint,
        model_path=str(tmp_path / "moved"),
        data="",
        data_fingerprint="",
        total_layers=identity.total_layers,
        frozen_layers=(0, 4),
        learning_rates=(1e-4,),
        seeds=(1,),
        recipe=Recipe(max_length=16),
    )
    study: Any = SimpleNamespace(name="s", trials=list, attributes=lambda: {"spec": spec.to_json()})
    (found,) = stored_needs([study], Working(), Places(models=(path,)))
    peak = found.peak_bytes()
    assert peak is not None
    assert peak > DEVICE_PROCESS_BYTES
