"""`--workers-per-gpu auto`: how many workers share a GPU, by the memory of its largest trial.

Small trials leave a GPU waiting for the host; several of them fill it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from objectives.fitting import DEVICE_PROCESS_BYTES
from study.cli.command import note
from study.workers import devices, gpus

if TYPE_CHECKING:
    from storage.studies import StoredStudy
    from study.workers.gpus import Gpu
    from study.workers.options import Working

MOST = 4
"""Chosen, not measured: each further worker gains less and takes cores from the others."""
CORES = 2
"""Of the host, for each worker: one that computes and one that reads."""
USABLE = 0.9
"""Share of a GPU's memory that trials can have; the rest is lost between them."""


def workers_per_gpu(found: Sequence[Gpu], peak_bytes: int, cores: int) -> int:
    """Of a trial that holds so much at most, all that a process takes included."""
    smallest = min(gpu.memory_bytes for gpu in found)
    return max(1, min(MOST, int(USABLE * smallest) // peak_bytes, cores // (CORES * len(found))))


def measured_peak(studies: Sequence[StoredStudy]) -> int | None:
    """The most that a trial of these studies has held on a GPU so far, with its process."""
    records = [trial.record for study in studies for trial in study.trials() if trial.record is not None]
    peaks = [
        record.peak_memory_bytes
        for record in records
        if record.peak_memory_bytes and not str(record.device or "cpu").startswith("cpu")
    ]
    return max(peaks) + DEVICE_PROCESS_BYTES if peaks else None


def packed(
    working: Working,
    studies: Sequence[StoredStudy],
    estimate: Callable[[], int | None],
    found: Sequence[Gpu] | None = None,
    cores: int | None = None,
) -> Working:
    """With as many workers per GPU as were asked for, else as fit by what was measured or estimated.

    One where nothing is known, where a number of workers was asked for, and for trials on several GPUs.
    """
    if working.workers_per_gpu is not None:
        return working
    here = gpus.describe() if found is None else found
    alone = working.workers is not None or working.processes_per_trial > 1
    peak = None if alone or not here else measured_peak(studies) or estimate()
    if peak is None:
        return replace(working, workers_per_gpu=1)
    count = workers_per_gpu(here, peak, devices.cores() if cores is None else cores)
    if count > 1:
        note(
            f"{count} workers share each GPU: a trial needs up to {peak / 1e9:.1f} GB; --workers-per-gpu 1 "
            "for one each"
        )
    return replace(working, workers_per_gpu=count)
