"""What is asked of Slurm for each worker: GPUs, cores, time, and further options of sbatch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from objectives import settings
from objectives.contract import UsageError
from objectives.settings import setting

DEFAULT_MINUTES = 24 * 60
CORES_PER_PROCESS = 4
"""One trains, the others read batches and send heartbeats; on a CPU all of them train."""
_GPU_OPTIONS = ("gres", "gpus", "gpus-per-node", "gpus-per-task")


def minutes(text: str) -> int:
    """Slurm's own ways to write a time: minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS."""
    match = re.fullmatch(r"(?:(\d{1,5})-)?(\d{1,7})(?::(\d{1,2}))?(?::(\d{1,2}))?", text)
    if not match:
        raise ValueError("write it as Slurm does, such as 90, 12:00:00 or 2-00:00:00")
    days, *rest = match.groups()
    numbers = [int(part) for part in rest if part is not None]
    if days is not None:
        hours, mins, seconds = [*numbers, 0, 0][:3]
    elif len(numbers) == 3:
        hours, mins, seconds = numbers
    else:
        hours, mins, seconds = 0, numbers[0], numbers[1] if len(numbers) == 2 else 0
    total = int(days or 0) * 1440 + hours * 60 + mins + (1 if seconds else 0)
    if total < 1:
        raise ValueError("at least a minute")
    return total


@dataclass(frozen=True, kw_only=True)
class Slurm(settings.Checked):
    slurm: bool = setting(False, help="plan here and run the workers as a Slurm job array", everyday=True)
    slurm_workers: int = setting(
        1, metavar="N", help="jobs, each with one worker", least=1, most=100_000, everyday=True
    )
    slurm_partition: str | None = setting(None, metavar="NAME", help="the partition", everyday=True)
    slurm_time: int = setting(
        DEFAULT_MINUTES,
        metavar="TIME",
        help="time limit of a job, which is requeued after it while cells are left",
        default_text=f"{DEFAULT_MINUTES // 60}:00:00",
        read=minutes,
        least=1,
    )
    slurm_gpus: int | None = setting(
        None,
        metavar="G",
        help="GPUs of each worker; 0 trains on the CPU",
        default_text="one per process",
        least=0,
        most=1024,
    )
    slurm_cpus: int | None = setting(
        None,
        metavar="C",
        help="CPU cores of each worker",
        default_text=f"{CORES_PER_PROCESS} per process or GPU",
        least=1,
        most=4096,
    )
    slurm_option: tuple[str, ...] = setting(
        (), metavar="KEY=VALUE", help="any other option of sbatch, such as account=nlp", repeat=True
    )
    wait: bool = setting(False, help="with --slurm: stay until all cells are finished, then report")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What each worker's job asks for; None where an option of sbatch says it."""

    slurm: Slurm
    processes: int = 1
    trains: bool = True
    """False for recorded studies, which need no GPU."""

    def check(self) -> None:
        """Refuse what Slurm would refuse only after the study is planned."""
        if self.slurm.slurm_gpus and self.slurm.slurm_gpus < self.processes:
            raise UsageError(
                f"--slurm-gpus {self.slurm.slurm_gpus}: --processes-per-trial {self.processes} "
                "needs a GPU for each process"
            )
        options(self.slurm.slurm_option)
        check_value("--slurm-partition", self.slurm.slurm_partition or "")

    @property
    def gpus(self) -> int | None:
        if self.slurm.slurm_gpus is not None:
            return self.slurm.slurm_gpus
        if any(name in options(self.slurm.slurm_option) for name in _GPU_OPTIONS):
            return None
        return self.processes if self.trains else 0

    @property
    def cores(self) -> int | None:
        """Slurm's own default is one core for all threads."""
        if self.slurm.slurm_cpus is not None:
            return self.slurm.slurm_cpus
        if any(name.startswith("cpus-per-") for name in options(self.slurm.slurm_option)):
            return None
        if not self.trains:
            return self.processes
        return CORES_PER_PROCESS * max(self.processes, self.gpus or 0)

    def parameters(self) -> dict[str, Any]:
        """What submitit is told."""
        more = options(self.slurm.slurm_option)
        found: dict[str, Any] = {
            "job_name": "elsa",
            "time": self.slurm.slurm_time,
            "array_parallelism": self.slurm.slurm_workers,
            "stderr_to_stdout": True,
            "additional_parameters": {"requeue": True, **more},
        }
        if self.slurm.slurm_partition:
            found["partition"] = self.slurm.slurm_partition
        if self.gpus:
            found["gpus_per_node"] = self.gpus
        cores = self.cores
        if cores is not None:
            found["cpus_per_task"] = cores
        cores = cores or more.get("cpus-per-task")
        # Newer versions of srun do not take it over from sbatch, and bind the worker to one core.
        return found | ({"srun_args": [f"--cpus-per-task={cores}"]} if cores else {})


def options(given: Sequence[str]) -> dict[str, Any]:
    """`account=nlp`, `exclusive`: further options of sbatch."""
    found: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        name = name.strip().removeprefix("--")
        if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
            raise UsageError(
                f"--slurm-option {text!r}: an option of sbatch as KEY=VALUE, such as account=nlp"
            )
        check_value("--slurm-option", text)
        found[name] = value if equals else True
    return found


def check_value(flag: str, value: str) -> None:
    """A line break in it would begin a line of the batch script."""
    if not value.isprintable():
        raise UsageError(f"{flag} {settings.shortened(value)}: leave out line breaks and control characters")
