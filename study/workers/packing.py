"""`--workers-per-gpu auto`: how many workers share a GPU, by the memory of its largest trial.

Small trials leave a GPU waiting for the host; several of them fill it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from objectives.depths import freeze_order
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
_WEIGHT_BYTES = 4
USABLE = 0.9
"""Share of a GPU's memory that trials can have; the rest is lost between them."""


def workers_per_gpu(found: Sequence[Gpu], peak_bytes: int, cores: int) -> int:
    """Of a trial that holds so much at most, all that a process takes included."""
    smallest = min(gpu.memory_bytes for gpu in found)
    return max(1, min(MOST, int(USABLE * smallest) // peak_bytes, cores // (CORES * len(found))))


@dataclass(frozen=True, kw_only=True)
class Need:
    """What decides how much memory the trials of one study take."""

    study: StoredStudy
    depths: Collection[int]
    micro_batch: int
    """That its trials begin with."""
    estimate: Callable[[], int | None]
    """Of the most that one of them holds, with its process; None where nothing is trained."""

    def peak_bytes(self) -> int | None:
        """As measured where the depth that holds most has been; a deeper one says nothing of it."""
        found = self._measured()
        shallowest = min(map(freeze_order, self.depths))
        if any(freeze_order(depth) <= shallowest for depth in found):
            return max(found.values())
        estimate = self.estimate()
        return None if estimate is None else max(estimate, *found.values(), 0)

    def _measured(self) -> dict[int, int]:
        """By depth, what trials have held on a GPU, alone and with as large a micro-batch as is meant now."""
        found: dict[int, int] = {}
        for trial in self.study.trials():
            record = trial.record
            if record is None or not record.peak_memory_bytes or str(record.device or "cpu")[:3] == "cpu":
                continue
            if (record.processes or 1) > 1 or (record.micro_batch or 0) < self.micro_batch:
                continue
            # The whole model is there too before a trial begins, for its prefix states.
            held = max(record.peak_memory_bytes, _WEIGHT_BYTES * (record.total_parameters or 0))
            depth = trial.cell.frozen_layers
            found[depth] = max(found.get(depth, 0), held + DEVICE_PROCESS_BYTES)
        return found


def packed(
    working: Working,
    needs: Callable[[], Sequence[Need]],
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
    peaks = [] if alone or not here else [need.peak_bytes() for need in needs()]
    peak = max((one for one in peaks if one is not None), default=None)
    if peak is None:
        return replace(working, workers_per_gpu=1)
    count = workers_per_gpu(here, peak, devices.cores() if cores is None else cores)
    if count > 1:
        note(
            f"{count} workers share each GPU: a trial needs up to {peak / 1e9:.1f} GB; --workers-per-gpu 1 "
            "for one each"
        )
    return replace(working, workers_per_gpu=count)
