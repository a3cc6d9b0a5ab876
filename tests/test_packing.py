"""`--workers-per-gpu auto`: by the peak of the study's trials, else by the estimate."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from objectives.contract import TrialRecord
from objectives.fitting import DEVICE_PROCESS_BYTES
from study.workers.gpus import Gpu
from study.workers.options import Working
from study.workers.packing import measured_peak, packed, workers_per_gpu

GPU = Gpu(index="0", name="A10", memory_bytes=24 * 10**9, capability=(8, 6))
SMALL = Gpu(index="1", name="T4", memory_bytes=15 * 10**9, capability=(7, 5))


def study(*peaks: tuple[int | None, str]) -> Any:
    trials = [
        SimpleNamespace(record=TrialRecord(metric="f1", score=0.5, peak_memory_bytes=peak, device=device))
        for peak, device in peaks
    ]
    return SimpleNamespace(trials=lambda: [*trials, SimpleNamespace(record=None)])


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
    ran = study((10**9, "NVIDIA A10"), (3 * 10**9, "NVIDIA A10"), (9 * 10**9, "cpu x8"), (None, "NVIDIA A10"))
    assert measured_peak([ran]) == 3 * 10**9 + DEVICE_PROCESS_BYTES
    assert measured_peak([study((10**9, "cpu x2"))]) is None

    def count(working: Working, *studies: Any, estimate: int | None = 7 * 10**9) -> int | None:
        return packed(working, studies, lambda: estimate, found=[GPU], cores=64).workers_per_gpu

    assert count(Working()) == count(Working(workers_per_gpu="auto")) == 3  # type: ignore[arg-type]
    assert count(Working(), ran) == 4
    assert count(Working(), estimate=None) == 1
    assert count(Working(workers_per_gpu=2), ran) == 2
    assert count(Working(workers=5), ran) == 1, "they share the GPUs in turn"
    assert count(Working(processes_per_trial=2), ran) == 1
    assert packed(Working(), [ran], lambda: None, found=[]).workers_per_gpu == 1
