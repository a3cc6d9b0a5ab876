"""A real Slurm cluster of one node for tests: munged, slurmctld and slurmd in a private folder, own ports."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from servers import Absent, free_port

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue")

CONFIGURATION = """
ClusterName=elsa
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=5
SlurmctldPort={controller_port}
SlurmdPort={node_port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
KillWait=2
JobRequeue=1
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1,sched_min_interval=0
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


@dataclass
class Slurm:
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def run(self, *command: str) -> str:
        answer = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=600, check=False
        )
        assert answer.returncode == 0, f"{command}: {answer.stderr}"
        return answer.stdout


def _program(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if found is None:
        raise Absent(f"Slurm is not installed: no {name} (apt install slurm-wlm munge)")
    return found


@contextlib.contextmanager
def running_slurm() -> Iterator[Slurm]:
    """Ready to take jobs; everything it started is ended with the block."""
    programs = {name: _program(name) for name in PROGRAMS}
    folder = Path(tempfile.mkdtemp(prefix="elsa-slurm-"))
    slurm = Slurm(folder)
    for name in ("state", "spool"):
        (folder / name).mkdir()
    host = socket.gethostname().split(".")[0]
    (folder / "slurm.conf").write_text(
        CONFIGURATION.format(
            host=host,
            user=pwd.getpwuid(os.geteuid()).pw_name,
            folder=folder,
            controller_port=free_port(),
            node_port=free_port(),
            cores=os.cpu_count() or 1,
        )
    )
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    started: list[subprocess.Popen[bytes]] = []

    def start(*command: str) -> None:
        with (folder / "daemons.log").open("ab") as log:
            started.append(
                subprocess.Popen(
                    command, env=slurm.environment, stdout=log, stderr=log, start_new_session=True
                )
            )

    try:
        names = {"key-file": key, "socket": folder / "munge.sock", "pid-file": folder / "munged.pid"}
        names |= {"seed-file": folder / "munged.seed", "log-file": folder / "munged.log"}
        start(programs["munged"], "-F", "-f", *(f"--{name}={path}" for name, path in names.items()))
        _wait(lambda: (folder / "munge.sock").exists(), folder, "munged")
        start(programs["slurmctld"], "-D", "-c")
        start(programs["slurmd"], "-D", "-N", host)
        _wait(lambda: "idle" in _nodes(slurm), folder, "an idle node")
        yield slurm
    finally:
        with contextlib.suppress(Exception):
            slurm.run("scancel", f"--user={os.geteuid()}")
            _wait(lambda: not slurm.run("squeue", "-h").strip(), folder, "an empty queue", seconds=15)
        for process in reversed(started):
            process.terminate()
            try:
                process.wait(600)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _nodes(slurm: Slurm) -> str:
    with contextlib.suppress(AssertionError):
        return slurm.run("sinfo", "-h", "-o", "%t")
    return ""


def _wait(true: object, folder: Path, what: str, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not true():  # type: ignore[operator]
        if time.monotonic() > deadline:
            logs = "\n".join(path.read_text()[-2000:] for path in folder.glob("*.log"))
            raise RuntimeError(f"Slurm: not within {seconds:g} s: {what}\n{logs}")
        time.sleep(0.1)
