"""Workers on Slurm, through submitit: submits them and lets them be requeued.

The database says which cells are left; the state of jobs is not trusted. Without Slurm's accounting it stays
unknown, and a job that was killed looks alive.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from objectives.contract import UsageError
from objectives.private_files import own_folder
from study.cli.command import note
from study.cli.wording import counted
from study.protocols.plan import plan_study
from study.workers.devices import VISIBLE
from study.workers.interrupts import STOPPED
from study.workers.jobs import Job, stored_spec
from study.workers.slurm_settings import Asked, check_value
from study.workers.supervise import worker_command

if TYPE_CHECKING:
    from submitit.helpers import DelayedSubmission

MOST_TIMEOUTS = 10_000
"""A worker that runs into its time limit is requeued for as long as there are cells."""
RELEASE_SECONDS = 30.0
SBATCH_SECONDS = 10.0
LOOK_SECONDS = 2.0
EMPTY_LOOKS = 5
"""How often in a row no job is seen before they are believed to be gone."""


def check(asked: Asked, cache_dir: str) -> None:
    """Refuse what Slurm would refuse only after the study is planned."""
    asked.check()
    # The logs' folder is named in the batch script.
    check_value("--cache-dir", cache_dir)
    if shutil.which("sbatch") is None:
        raise UsageError("--slurm: there is no sbatch here; run this on a login node of the cluster")
    try:
        subprocess.run(["sbatch", "--version"], capture_output=True, check=True, timeout=SBATCH_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        told = (getattr(error, "stderr", None) or str(error).encode()).decode(errors="replace")
        raise UsageError(f"--slurm: sbatch --version fails here: {told.strip()}") from None
    try:
        import submitit  # noqa: F401
    except ImportError:
        raise UsageError("--slurm needs submitit: pip install 'elsa-study[slurm]'") from None


@dataclass
class SlurmWorker:
    """What submitit pickles and calls in each job: `elsa work`, ended before the job is requeued."""

    arguments: list[str]
    environment: dict[str, str]
    """Variables to set, the database's URL among them: it may hold a password."""
    _pid: int | None = field(default=None, init=False)

    def __call__(self) -> int:
        process = subprocess.Popen(
            worker_command(self.arguments),
            env=os.environ | self.environment,
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
        """Preempted or out of time: release the trial, then begin again when Slurm starts the job again."""
        from submitit.helpers import DelayedSubmission

        if self._pid is not None:
            os.kill(self._pid, signal.SIGTERM)
            deadline = time.monotonic() + RELEASE_SECONDS
            exited = os.WEXITED | os.WNOWAIT | os.WNOHANG
            while time.monotonic() < deadline and os.waitid(os.P_PID, self._pid, exited) is None:
                time.sleep(0.05)
        return DelayedSubmission(SlurmWorker(self.arguments, self.environment))


def submit(
    asked: Asked, arguments: Sequence[str], environment: Mapping[str, str], cache_dir: str
) -> tuple[list[str], Path]:
    """Submit the workers as one job array; their job ids, and the folder of their logs."""
    import submitit

    # What submitit hands over holds the database's URL, and with it perhaps a password.
    folder = own_folder(own_folder(cache_dir) / "slurm").resolve()
    folder.chmod(0o700)
    executor = submitit.SlurmExecutor(folder=folder / "%j", max_num_timeout=MOST_TIMEOUTS)
    executor.update_parameters(**asked.parameters())
    # Without a GPU of its own a worker keeps off those of the node, which may be others'.
    hidden = {VISIBLE: ""} if asked.gpus == 0 else {}
    worker = SlurmWorker(list(arguments), {**environment, **hidden})
    try:
        with executor.batch():
            jobs = [executor.submit(worker) for _ in range(asked.slurm.slurm_workers)]
    except submitit.core.utils.FailedJobError as error:
        said = " ".join(str(error).split())[:500]
        hint = " (without GPUs: --slurm-gpus 0)" if asked.gpus and asked.slurm.slurm_gpus is None else ""
        raise UsageError(f"sbatch refused the workers{hint}: {said}") from error
    return [job.job_id for job in jobs], jobs[0].paths.folder


def announce(asked: Asked, ids: Sequence[str], folder: Path, storage: str) -> str:
    """Prints how to watch and stop the jobs; the id of their array."""
    array = ids[0].partition("_")[0]
    numbers = {"GPUs": asked.gpus, "cores": asked.cores}
    each = "; ".join(f"{what} of each: {number}" for what, number in numbers.items() if number is not None)
    print(f"submitted {counted(len(ids), 'worker')} as Slurm job {array} ({', '.join(ids)}); {each}")
    print(f"their logs: {folder}")
    print(f"watch: elsa status --watch --storage '{storage}'    stop: scancel {array}")
    return array


def wait(jobs: Sequence[Job], array: str, *, plans: bool) -> int:
    """Until nothing waits or runs and no protocol wants more, by the database."""
    return wait_while(jobs, lambda: _queued(array), plans=plans)


def wait_while(jobs: Sequence[Job], queued: Callable[[], bool | None], *, plans: bool) -> int:
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
        if not any(found.open for found in counts) and not (plans and _plan_more(jobs)):
            return 0
        empty = empty + 1 if queued() is False else 0
        if empty >= EMPTY_LOOKS:
            left = sum(found.open for found in counts)
            note(f"no job is left in Slurm's queue, but {left} cells are: run the same command again")
            return 1
        time.sleep(LOOK_SECONDS)


def _plan_more(jobs: Sequence[Job]) -> bool:
    return sum(plan_study(job.study, stored_spec(job.study), cells=job.cells) for job in jobs) > 0


def _queued(array: str) -> bool | None:
    """Whether Slurm still has a job of ours; None where it does not say."""
    answer = subprocess.run(["squeue", "-h", "-j", array], capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        # A job that ended some time ago is an "invalid job id"; anything else is trouble of Slurm's own.
        return False if "Invalid job id" in answer.stderr else None
    return bool(answer.stdout.strip())
