"""A machine in a few facts, from which follows which checks it needs; found here or written by hand."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field

from study.diagnosis.finding import Finding
from study.workers import devices, gpus
from study.workers.gpus import Gpu


@dataclass(frozen=True, kw_only=True)
class Machine:
    cores: int
    memory_bytes: int
    gpus: tuple[Gpu, ...] = ()
    unknown_gpus: tuple[str, ...] = ()
    """GPUs or slices of GPUs that workers would use and that say nothing of themselves."""
    system: str = ""
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def places(self) -> tuple[str, ...]:
        """Where a process can be put, as CUDA_VISIBLE_DEVICES spells it; the CPU is the empty text."""
        return (*(gpu.index for gpu in self.gpus), *self.unknown_gpus) or ("",)

    def name(self, place: str) -> str:
        return f"GPU {place}" if place else "CPU"


def this_machine() -> Machine:
    import psutil

    from objectives.machine import versions

    found = gpus.describe()
    known = {name for gpu in found for name in (gpu.index, gpu.uuid)}
    names = [name for name in devices.find() if not any(one.startswith(name) for one in known)]
    return Machine(
        cores=devices.cores(),
        memory_bytes=psutil.virtual_memory().total,
        gpus=tuple(found),
        unknown_gpus=tuple(names),
        system=platform.platform(),
        versions=versions(),
    )


def describe(machine: Machine) -> list[Finding]:
    """What is known before anything is tried."""
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    memory = f"{machine.memory_bytes / 2**30:.0f} GiB"
    found = [
        Finding(check="versions", found=f"{versions}; {machine.system}", details=dict(machine.versions)),
        Finding(check="host", found=f"{machine.cores} cores, {memory} of memory"),
    ]
    for gpu in machine.gpus:
        major, minor = gpu.capability
        kind = f"ROCm {gpu.driver}" if gpu.rocm else f"compute capability {major}.{minor}"
        driver = "" if gpu.rocm else f", driver {gpu.driver or 'unknown'}"
        found.append(
            Finding(
                check=f"GPU {gpu.index}",
                found=f"{gpu}, {kind}{driver}; --mixed-precision auto is {gpu.precision}",
                details={"name": gpu.name, "memory_bytes": gpu.memory_bytes, "driver": gpu.driver},
            )
        )
    found += [
        Finding(
            check=f"GPU {name}",
            found="does not say what it is; name --mixed-precision and --memory-limit for it",
        )
        for name in machine.unknown_gpus
    ]
    if len({gpu.precision for gpu in machine.gpus}) > 1:
        found.append(
            Finding(
                check="GPUs",
                verdict="slow",
                found="some multiply in bf16 and some do not, and a study has one precision",
                next_step="auto is no here; set CUDA_VISIBLE_DEVICES to GPUs of one kind for bf16",
            )
        )
    return found
