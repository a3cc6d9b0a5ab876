"""Workers on Slurm, through submitit: submits them and lets them be requeued; the database keeps the truth.

Job states are not trusted: without Slurm's accounting they stay unknown, and a job killed hard looks alive.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from objectives.contract import UsageError
from study import command
from study.planning import plan_study
from study.workers.devices import VISIBLE
from study.workers.interrupts import STOPPED
from study.workers.slurm_settings import cores, gpus, minutes, options, settings

if TYPE_CHECKING:
    from submitit.helpers import DelayedSubmission

    from study.workers.worker import Job

MOST_TIMEOUTS = 10_000
"""A worker that runs into its time limit is requeued for as long as there are cells."""
RELEASE_SECONDS = 30.0
LOOK_SECONDS = 2.0
EMPTY_LOOKS = 5
"""How often in a row no job is to be seen before they are believed to be gone."""

_OWN = ("--slurm", "--wait", "--retry-failed")
_OWN_WITH_VALUE = (
    *("--slurm-partition", "--slurm-time", "--slurm-gpus", "--slurm-cpus", "--slurm-workers"),
    "--slurm-option",
)


def check(arguments: argparse.Namespace) -> None:
    """Refuse what Slurm would refuse only after the study is planned."""
    if arguments.slurm_workers < 1:
        raise UsageError(f"--slurm-workers {arguments.slurm_workers}: at least 1")
    for flag, least in (("slurm_gpus", 0), ("slurm_cpus", 1)):
        number = getattr(arguments, flag)
        if number is not None and number < least:
            raise UsageError(f"--{flag.replace('_', '-')} {number}: at least {least}")
    if arguments.slurm_gpus and arguments.slurm_gpus < arguments.processes_per_trial:
        raise UsageError(
            f"--slurm-gpus {arguments.slurm_gpus}: --processes-per-trial {arguments.processes_per_trial} "
            "needs a GPU for each process"
        )
    minutes(arguments.slurm_time)
    options(arguments.slurm_option)
    if shutil.which("sbatch") is None:
        raise UsageError("--slurm: there is no sbatch here; run this on a login node of the cluster")
    try:
        import submitit  # noqa: F401
    except ImportError:
        raise UsageError("--slurm needs submitit: pip install 'elsa-study[slurm]'") from None


def task_arguments(argv: Sequence[str]) -> list[str]:
    """The same command without what concerns Slurm, for a worker that joins what is planned."""
    kept: list[str] = []
    rest = iter(argv)
    for text in rest:
        if text in _OWN_WITH_VALUE:
            next(rest, None)
        elif text not in _OWN and not text.startswith(tuple(f"{name}=" for name in _OWN_WITH_VALUE)):
            kept.append(text)
    return [*kept, "--joined"]


@dataclass
class SlurmWorker:
    """What submitit pickles and calls in each job: the launcher of one worker, ended before a requeue."""

    arguments: list[str]
    on_cpu: bool = False
    """No GPU was asked for: the worker keeps off those of the node, which may be others'."""
    _pid: int | None = field(default=None, init=False)

    def __call__(self) -> int:
        process = subprocess.Popen(
            [sys.executable, "-m", "study.launch", *self.arguments],
            env=os.environ | ({VISIBLE: ""} if self.on_cpu else {}),
            # Slurm sends it to every process of the job; it is meant for submitit alone.
            preexec_fn=lambda: signal.signal(signal.SIGUSR2, signal.SIG_IGN),
        )
        self._pid = process.pid
        # Not wait(): a signal handler that asks after the same process would wait for its lock for ever.
        while process.poll() is None:
            time.sleep(0.2)
        if process.returncode not in (0, *STOPPED):
            raise RuntimeError(f"the worker ended with exit code {process.returncode}")
        return process.returncode

    def checkpoint(self) -> DelayedSubmission:
        """Preempted or out of time: release the trial, then begin again whenever Slurm lets us."""
        from submitit.helpers import DelayedSubmission

        if self._pid is not None:
            os.kill(self._pid, signal.SIGTERM)
            deadline = time.monotonic() + RELEASE_SECONDS
            exited = os.WEXITED | os.WNOWAIT | os.WNOHANG
            while time.monotonic() < deadline and os.waitid(os.P_PID, self._pid, exited) is None:
                time.sleep(0.05)
        return DelayedSubmission(SlurmWorker(self.arguments, self.on_cpu))


def submit(arguments: argparse.Namespace, argv: Sequence[str]) -> tuple[list[str], Path]:
    """Submit the workers as one job array; their job ids, and the folder of their logs."""
    import submitit

    folder = _private_folder(arguments.cache_dir)
    executor = submitit.SlurmExecutor(folder=folder / "%j", max_num_timeout=MOST_TIMEOUTS)
    executor.update_parameters(**settings(arguments))
    worker = SlurmWorker(task_arguments(argv), on_cpu=gpus(arguments) == 0)
    try:
        with executor.batch():
            jobs = [executor.submit(worker) for _ in range(arguments.slurm_workers)]
    except submitit.core.utils.FailedJobError as error:
        said = " ".join(str(error).split())[:500]
        hint = " (without GPUs: --slurm-gpus 0)" if gpus(arguments) and arguments.slurm_gpus is None else ""
        raise UsageError(f"sbatch refused the workers{hint}: {said}") from error
    return [job.job_id for job in jobs], jobs[0].paths.folder


def _private_folder(cache_dir: str) -> Path:
    """What submitit hands over holds the command, and with it perhaps the database's password."""
    folder = (Path(cache_dir).expanduser() / "slurm").resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}; name a --cache-dir of your own") from None
    return folder


def run(arguments: argparse.Namespace, argv: Sequence[str], jobs: Sequence[Job]) -> int:
    """Submit, say how to watch, and leave; with --wait stay until every cell is done. 0 is done."""
    ids, folder = submit(arguments, argv)
    array = ids[0].partition("_")[0]
    asked = {"GPUs": gpus(arguments), "cores": cores(arguments)}
    each = "; ".join(f"{what} of each: {number}" for what, number in asked.items() if number is not None)
    print(f"submitted {len(ids)} workers as Slurm job {array} ({', '.join(ids)}); {each}")
    print(f"their logs: {folder}")
    shown = jobs[0].study.database.display_url
    print(f"watch: elsa status --watch --storage '{shown}'    stop: scancel {array}")
    if not arguments.wait:
        print("this terminal may be closed; run the same command without --slurm for the answer at the end")
        return 0
    return wait(arguments, jobs, lambda: _queued(array))


def wait(arguments: argparse.Namespace, jobs: Sequence[Job], queued: Callable[[], bool | None]) -> int:
    """Until nothing waits or runs and no protocol wants more, by the database."""
    said = ""
    empty = 0
    while True:
        counts = [job.study.counts() for job in jobs]
        tally = ", ".join(
            f"{job.study.name} {found.complete}/{found.open + found.complete + found.failed}"
            for job, found in zip(jobs, counts, strict=True)
        )
        if tally != said:
            print(tally, flush=True)
            said = tally
        if not any(found.open for found in counts) and not _plan_more(arguments, jobs):
            return 0
        empty = empty + 1 if queued() is False else 0
        if empty >= EMPTY_LOOKS:
            left = sum(found.open for found in counts)
            command.note(f"no job is left in Slurm's queue, but {left} cells are: run the same command again")
            return 1
        time.sleep(LOOK_SECONDS)


def _plan_more(arguments: argparse.Namespace, jobs: Sequence[Job]) -> bool:
    added = [
        plan_study(job.study, job.spec, max_retries=job.study.terms.max_retries, cells=job.cells)
        for job in jobs
        if not arguments.join_only
    ]
    return any(added)


def _queued(array: str) -> bool | None:
    """Whether Slurm still has a job of ours; None where it does not say."""
    answer = subprocess.run(["squeue", "-h", "-j", array], capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        # A job that ended some time ago is an "invalid job id"; anything else is trouble of Slurm's own.
        return False if "Invalid job id" in answer.stderr else None
    return bool(answer.stdout.strip())
