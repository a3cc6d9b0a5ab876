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
from objectives.fitting import DEVICE_WORKERS
from study.cli.command import note

VISIBLE = "CUDA_VISIBLE_DEVICES"
HIP_VISIBLE = "HIP_VISIBLE_DEVICES"
"""ROCm's own name for it. Where both are set CUDA's is read here, and workers get both alike."""
ORDER = "CUDA_DEVICE_ORDER"
DEVICE_NODES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/kfd", "/dev/dxg")
"""Where a GPU shows, even in a container without any of its programs."""
INTEL_NODES = ("/dev/dri/renderD128", "/dev/dxg")
"""Where a GPU of Intel shows, among others."""
_LISTED = re.compile(r"\s*(GPU \d+|MIG \S+).*\(UUID: ([^)]+)\)")


@dataclass(frozen=True, kw_only=True)
class Share:
    """What one worker gets of the machine."""

    devices: tuple[str, ...] = ()
    """As CUDA_VISIBLE_DEVICES spells them; empty is the CPU."""
    threads: int = 1
    """CPU threads of each of its processes."""
    workers: int = 1
    """That share these devices, this one included."""

    def environment(self, current: Mapping[str, str]) -> dict[str, str]:
        """The variables to set; what a person chose of threads and order is left alone."""
        # GNU's OpenMP, which PyTorch has on Linux, spins for milliseconds while threads wait for each other:
        # beside other work that takes the cores from the very threads that are waited for.
        chosen = {"OMP_NUM_THREADS": str(self.threads), "GOMP_SPINCOUNT": "10000"}
        if self.devices:
            # nvidia-smi, which the names come from, counts GPUs by their place in the machine.
            chosen |= {ORDER: "PCI_BUS_ID"}
        chosen = {name: value for name, value in chosen.items() if name not in current}
        if self.devices:
            chosen |= only(self.devices, current)
        return chosen | ({DEVICE_WORKERS: str(self.workers)} if self.workers > 1 else {})

    def __str__(self) -> str:
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        return f"GPU {','.join(self.devices)}" if self.devices else f"CPU, {threads}"


def only(names: Sequence[str], current: Mapping[str, str]) -> dict[str, str]:
    """The variables that show a process these GPUs and no others."""
    return {name: ",".join(names) for name in (VISIBLE, HIP_VISIBLE) if name == VISIBLE or name in current}


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
    given = [groups[number % len(groups)] if groups else () for number in range(count)]
    return [Share(devices=own, threads=threads, workers=given.count(own) if own else 1) for own in given]


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
    """The GPUs a process here may use: those that a variable names, else all that are listed.

    `listing` is what `nvidia-smi -L` prints, None where there is no such program.
    """
    if environment.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true", "yes"):
        return []
    named = environment.get(VISIBLE, environment.get(HIP_VISIBLE))
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
    if VISIBLE in current or HIP_VISIBLE in current:
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


def check_group(processes: int, environment: Mapping[str, str] | None = None) -> None:
    """Refuse processes that would train together on the CPU, silently, beside a device of Apple or Intel."""
    current = os.environ if environment is None else environment
    if processes == 1 or current.get("ACCELERATE_USE_CPU") or current.get(VISIBLE) == "" or find(current):
        return
    # Asking torch takes seconds: only where there may be such a device.
    if sys.platform != "darwin" and not any(Path(node).exists() for node in INTEL_NODES):
        return
    program = "import torch; print(torch.accelerator.current_accelerator() or '')"
    kind = (answer([sys.executable, "-c", program]) or "").strip()
    if kind in ("mps", "xpu"):
        raise UsageError(
            f"--processes-per-trial {processes}: on {kind} a trial runs in one process; leave it out, or set "
            "ACCELERATE_USE_CPU=true to train on the CPU"
        )


def answer(command: Sequence[str], environment: Mapping[str, str] | None = None) -> str | None:
    """What a program prints; None where there is no such program, or it fails."""
    program = shutil.which(command[0])
    if program is None:
        return None
    try:
        answer = subprocess.run(
            [program, *command[1:]],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=None if environment is None else dict(environment),
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
