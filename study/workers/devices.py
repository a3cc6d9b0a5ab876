"""Which GPUs each worker gets, as a pure plan; finds the GPUs of a machine without importing torch."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from objectives.contract import UsageError
from study.cli.command import note

VISIBLE = "CUDA_VISIBLE_DEVICES"
DEVICE_NODES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/kfd", "/dev/dxg")
"""Where a GPU shows, even in a container without any of its programs."""
_LISTED = re.compile(r"\s*(GPU \d+|MIG \S+).*\(UUID: ([^)]+)\)")


@dataclass(frozen=True, kw_only=True)
class Share:
    """What one worker gets of the machine."""

    devices: tuple[str, ...] = ()
    """As CUDA_VISIBLE_DEVICES spells them; empty is the CPU."""
    threads: int = 1
    """CPU threads of each of its processes."""

    def environment(self, current: Mapping[str, str]) -> dict[str, str]:
        """The variables to set; a number of threads that a person chose is left alone."""
        chosen = {VISIBLE: ",".join(self.devices)} if self.devices else {}
        return chosen | ({} if "OMP_NUM_THREADS" in current else {"OMP_NUM_THREADS": str(self.threads)})

    def __str__(self) -> str:
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        return f"GPU {','.join(self.devices)}" if self.devices else f"CPU, {threads}"


def plan(
    devices: Sequence[str],
    *,
    workers: int | None = None,
    workers_per_gpu: int = 1,
    processes_per_trial: int = 1,
    cores: int = 1,
) -> list[Share]:
    """One share per worker: as many workers as there are GPUs (or groups of GPUs), unless told otherwise.

    More workers than that share GPUs in turn; a process has one GPU, so a group of processes has as many.
    """
    if devices and processes_per_trial > 1:
        _check_group(devices, processes_per_trial)
    groups = [
        tuple(devices[first : first + processes_per_trial])
        for first in range(0, len(devices) - processes_per_trial + 1, processes_per_trial)
    ]
    count = workers if workers is not None else max(1, len(groups) * workers_per_gpu)
    threads = max(1, cores // max(1, count * processes_per_trial))
    return [
        Share(devices=groups[number % len(groups)] if groups else (), threads=threads)
        for number in range(count)
    ]


def _check_group(devices: Sequence[str], processes: int) -> None:
    if processes > len(devices):
        raise UsageError(
            f"--processes-per-trial {processes}: each process needs a GPU of its own, and this machine shows "
            f"{len(devices)} ({VISIBLE}={','.join(devices)}); set {VISIBLE}= to use the CPU"
        )
    if any(device.startswith("MIG") for device in devices):
        raise UsageError(
            f"--processes-per-trial {processes}: slices of a GPU (MIG) cannot train one trial together; "
            "use one process per trial"
        )


def visible(environment: Mapping[str, str], listing: str | None) -> list[str]:
    """The GPUs a process here may use: CUDA_VISIBLE_DEVICES where it is set, else all that are listed.

    `listing` is what `nvidia-smi -L` prints, None where there is no such program.
    """
    if environment.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true", "yes"):
        return []
    named = environment.get(VISIBLE)
    if named is None:
        return _listed(listing or "")
    found: list[str] = []
    for device in (part.strip() for part in named.split(",")):
        # As CUDA reads it: an invalid entry hides itself and all that follow.
        if not re.match(r"\d+$|GPU-|MIG-", device) or device in found:
            break
        found.append(device)
    return found


def _listed(listing: str) -> list[str]:
    """Indices of whole GPUs; of a GPU that is cut into slices, the ids of the slices."""
    found: list[str] = []
    index = None
    for kind, name in _LISTED.findall(listing):
        if kind.startswith("GPU"):
            index = kind.split()[1]
            found.append(index)
        else:
            if found and found[-1] == index:
                found.pop()
            found.append(name)
    return found


def find(environment: Mapping[str, str] | None = None) -> list[str]:
    """The GPUs of this machine that a worker may use."""
    current = os.environ if environment is None else environment
    if current.get(VISIBLE) is not None:
        return visible(current, None)
    listing = answer(["nvidia-smi", "-L"])
    if listing is None and any(Path(node).exists() for node in DEVICE_NODES):
        # A container without that program, or GPUs of another maker: torch knows, in a process of its own.
        program = "import torch; print(torch.cuda.device_count())"
        count = (answer([sys.executable, "-c", program]) or "").strip()
        listing = "".join(f"GPU {index}: (UUID: {index})\n" for index in range(int(count or 0)))
        if not listing and visible(current, "GPU 0: (UUID: 0)"):
            note(
                "this machine has a GPU, but neither nvidia-smi nor torch can use it: training on the CPU; "
                f"set {VISIBLE}= (empty) to mean that"
            )
    return visible(current, listing)


def answer(command: Sequence[str]) -> str | None:
    """What a program prints; None where there is no such program, or it fails."""
    program = shutil.which(command[0])
    if program is None:
        return None
    try:
        answer = subprocess.run(
            [program, *command[1:]], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout if answer.returncode == 0 else None


def check_used(device: object, environment: Mapping[str, str]) -> None:
    """Refuse to train on the CPU, silently and for days, where this process was given GPUs.

    `device` is the objective's, None for one that uses none.
    """
    given = visible(environment, None)
    if given and str(device).partition(":")[0] == "cpu":
        raise UsageError(
            f"{VISIBLE}={','.join(given)} gives this worker a GPU, but torch finds none that it can use: "
            f"install a torch build that fits the driver, or set {VISIBLE}= (empty) to train on the CPU"
        )


def cores() -> int:
    """CPU cores that this process may use, by its affinity, its container's quota and its Slurm job."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(here, _quota(Path("/sys/fs/cgroup/cpu.max")) or here, _allocated() or here))


def _quota(file: Path) -> int | None:
    """`200000 100000` is two cores; `max 100000` is no limit."""
    try:
        most, period = file.read_text().split()
        return max(1, int(most) // int(period))
    except (OSError, ValueError):
        return None


def _allocated() -> int | None:
    text = os.environ.get("SLURM_CPUS_ON_NODE", "")
    return int(text) if text.isdigit() else None
