"""What is asked of Slurm for each worker: GPUs, cores, time, and further options of sbatch."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any

from objectives.contract import UsageError

DEFAULT_MINUTES = 24 * 60
CORES_PER_PROCESS = 4
"""One trains, the others read batches and keep the lease; and on the CPU all train."""
_GPU_OPTIONS = ("gres", "gpus", "gpus-per-node", "gpus-per-task")


def minutes(text: str | None) -> int:
    """Slurm's own ways to write a time: minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS."""
    if text is None:
        return DEFAULT_MINUTES
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if not match:
        raise UsageError(f"--slurm-time {text!r}: as Slurm writes it, such as 90, 12:00:00 or 2-00:00:00")
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
        raise UsageError(f"--slurm-time {text!r}: at least a minute")
    return total


def options(given: Sequence[str]) -> dict[str, Any]:
    """`account=nlp`, `exclusive`: further options of sbatch."""
    found: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        name = name.strip().removeprefix("--")
        if not re.fullmatch(r"[a-z][a-z-]*", name):
            raise UsageError(
                f"--slurm-option {text!r}: an option of sbatch as KEY=VALUE, such as account=nlp"
            )
        found[name] = value if equals else True
    return found


def gpus(arguments: argparse.Namespace) -> int | None:
    """Of each worker: one per process unless told otherwise; None where an option of sbatch says it."""
    if arguments.slurm_gpus is not None:
        return int(arguments.slurm_gpus)
    if any(name in options(arguments.slurm_option) for name in _GPU_OPTIONS):
        return None
    return 0 if arguments.recorded else int(arguments.processes_per_trial)


def cores(arguments: argparse.Namespace) -> int | None:
    """Of each worker; None where an option of sbatch says it. Slurm's own default is one, for all threads."""
    if arguments.slurm_cpus is not None:
        return int(arguments.slurm_cpus)
    if any(name.startswith("cpus-per-") for name in options(arguments.slurm_option)):
        return None
    if arguments.recorded:
        return int(arguments.processes_per_trial)
    return CORES_PER_PROCESS * max(arguments.processes_per_trial, gpus(arguments) or 0)


def settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """What submitit is told."""
    more = options(arguments.slurm_option)
    found: dict[str, Any] = {
        "job_name": "elsa",
        "time": minutes(arguments.slurm_time),
        "array_parallelism": arguments.slurm_workers,
        "stderr_to_stdout": True,
        "additional_parameters": {"requeue": True, **more},
    }
    if arguments.slurm_partition:
        found["partition"] = arguments.slurm_partition
    if wanted := gpus(arguments):
        found["gpus_per_node"] = wanted
    if (each := cores(arguments)) is not None:
        found["cpus_per_task"] = each
    each = each or more.get("cpus-per-task")
    # Newer versions of srun do not take it over from sbatch, and bind the worker to one core.
    return found | ({"srun_args": [f"--cpus-per-task={each}"]} if each else {})
