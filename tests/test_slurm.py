"""Workers on a real Slurm: they finish a study, and neither a requeue nor a preemption loses anything."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from launches import start, wait_until, write_table
from servers import Absent, Server
from slurm import Slurm, running_slurm

from objectives.contract import UsageError
from storage.database import Database
from storage.reading import StoredTrial
from study.arguments import make_parser
from study.workers.slurm import SlurmWorker, check, submit, task_arguments
from study.workers.slurm_settings import minutes, options, settings

CELLS = 24


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    try:
        with running_slurm() as slurm:
            yield slurm
    except Absent as absent:
        pytest.skip(str(absent))


def launch(
    url: str, slurm: Slurm, folder: Path, *more: object, monkeypatch: pytest.MonkeyPatch
) -> subprocess.Popen[str]:
    monkeypatch.setenv("SLURM_CONF", slurm.environment["SLURM_CONF"])
    table = write_table(folder / "table.csv", depths=4, seeds=CELLS // 4)
    recorded = ["--recorded", table, "--recorded-delay", 0.5, "--heartbeat", 1, "--grace", 4]
    asked = ["--slurm", "--slurm-workers", 2, "--slurm-time", 30, "--slurm-partition", "main"]
    return start([*recorded, *asked, "--slurm-option", "comment=a test", "--storage", url, *more], folder)


def trials(url: str) -> list[StoredTrial]:
    database = Database.open(url, create=True)
    try:
        return [trial for name in database.study_names() for trial in database.study(name).trials()]
    finally:
        database.close()


def done(url: str) -> int:
    return sum(trial.state == "COMPLETE" for trial in trials(url))


def array_of(slurm: Slurm) -> str:
    """The newest job array."""
    return max(slurm.run("squeue", "-h", "-o", "%F").split(), key=int)


def check_complete(url: str) -> None:
    found = trials(url)
    assert not [trial for trial in found if trial.state in ("WAITING", "RUNNING")]
    complete = Counter(trial.cell for trial in found if trial.state == "COMPLETE")
    assert len(complete) == CELLS
    assert set(complete.values()) == {1}


def test_two_workers_finish_a_study_although_one_is_requeued(
    cluster: Slurm, postgresql: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgresql.new_url()
    launcher = launch(url, cluster, tmp_path, "--wait", monkeypatch=monkeypatch)
    wait_until(lambda: done(url) >= 4, "four results")
    array = array_of(cluster)
    cluster.run("scontrol", "requeue", f"{array}_0")
    output, _ = launcher.communicate(timeout=120)
    assert launcher.returncode == 0, output
    check_complete(url)
    assert "Restarts=1" in cluster.run("scontrol", "show", "job", f"{array}_0")
    shown = cluster.run("scontrol", "show", "job", f"{array}_1")
    assert "Comment=a test" in shown
    assert "CPUs/Task=1" in shown
    assert (tmp_path / "cache" / "slurm").stat().st_mode & 0o077 == 0, "the database's password may be in it"
    # What it was busy with when Slurm stopped it was given back, not given up.
    assert [trial.reason for trial in trials(url) if trial.state == "FAIL"] == []
    assert f"submitted 2 workers as Slurm job {array}" in output
    assert "tune " in output
    assert (tmp_path / "report").is_dir()


def test_the_launcher_may_leave_and_a_preempted_worker_comes_back(
    cluster: Slurm, postgresql: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgresql.new_url()
    launcher = launch(url, cluster, tmp_path, monkeypatch=monkeypatch)
    output, _ = launcher.communicate(timeout=60)
    assert launcher.returncode == 0, output
    assert "elsa status --watch --storage" in output
    assert "scancel" in output
    wait_until(lambda: done(url) >= 2, "two results")
    array = array_of(cluster)
    cluster.run("scancel", "--signal=USR2", f"{array}_1")
    wait_until(
        lambda: "Restarts=1" in cluster.run("scontrol", "show", "job", f"{array}_1"), "a requeued worker"
    )
    wait_until(lambda: done(url) == CELLS, "all results", seconds=120)
    check_complete(url)
    assert [trial.reason for trial in trials(url) if trial.state == "FAIL"] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, 1440),
        ("90", 90),
        ("10:30", 11),
        ("12:00:00", 720),
        ("2-00", 2880),
        ("1-12:30", 2190),
        ("0-0:0:1", 1),
    ],
)
def test_times_as_slurm_writes_them(text: str | None, expected: int) -> None:
    assert minutes(text) == expected


@pytest.mark.parametrize("text", ["", "0", "a day", "1:2:3:4", "-5"])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--slurm-time"):
        minutes(text)


def test_options_for_sbatch() -> None:
    given = ["account=nlp", "--mem=8G", "exclusive", "comment=a=b"]
    assert options(given) == {"account": "nlp", "mem": "8G", "exclusive": True, "comment": "a=b"}
    with pytest.raises(UsageError, match="KEY=VALUE"):
        options(["=x"])


@pytest.mark.parametrize(
    ("given", "asked_gpus", "asked_cores"),
    [
        ("", 1, 4),
        ("--processes-per-trial 2", 2, 8),
        ("--slurm-gpus 0", None, 4),
        ("--slurm-gpus 0 --processes-per-trial 2", None, 8),
        ("--slurm-gpus 4 --slurm-cpus 6", 4, 6),
        ("--slurm-option gres=gpu:a100:1", None, 4),
        ("--slurm-option cpus-per-task=7", 1, 7),
        ("--recorded table.csv", None, 1),
    ],
)
def test_workers_get_gpus_and_cores(given: str, asked_gpus: int | None, asked_cores: int) -> None:
    found = settings(make_parser().parse_args(["--task", "rte", "--slurm", *given.split()]))
    assert found.get("gpus_per_node") == asked_gpus
    assert found["srun_args"] == [f"--cpus-per-task={asked_cores}"]
    by_hand = "cpus-per-task" in given
    assert found.get("cpus_per_task") == (None if by_hand else asked_cores)


def test_a_worker_without_a_gpu_keeps_off_the_nodes_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    seen = []

    def popen(*_: object, env: dict[str, str], **__: object) -> subprocess.Popen[bytes]:
        seen.append(env.get("CUDA_VISIBLE_DEVICES"))
        return real(["true"])

    real = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", popen)
    for on_cpu in (True, False):
        assert SlurmWorker([], on_cpu)() == 0
    assert seen == ["", None]


def test_a_cluster_without_gpus_says_how_to_go_without(
    cluster: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", cluster.environment["SLURM_CONF"])
    given = ["--task", "rte", "--slurm", "--slurm-cpus", "1", "--cache-dir", str(tmp_path)]
    with pytest.raises(UsageError, match=r"sbatch refused the workers \(without GPUs: --slurm-gpus 0\)"):
        submit(make_parser().parse_args(given), given)


def test_a_task_runs_the_same_command_without_slurm() -> None:
    given = "--task rte --slurm --slurm-gpus 2 --slurm-option mem=8G --slurm-time=90 --wait --seeds 3"
    assert task_arguments(given.split()) == ["--task", "rte", "--seeds", "3", "--joined"]
    ours = {text for action in make_parser()._actions for text in action.option_strings if "slurm" in text}
    every = [part for name in sorted(ours - {"--slurm"}) for part in (name, "1")]
    assert task_arguments([*every, "--slurm", "--retry-failed"]) == ["--joined"]


def test_what_cannot_work_is_refused_before_anything_is_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*given: str) -> str:
        with pytest.raises(UsageError) as error:
            check(make_parser().parse_args(["--slurm", *given]))
        return str(error.value)

    assert "--slurm-workers 0" in refused("--slurm-workers", "0")
    assert "--slurm-gpus -1: at least 0" in refused("--slurm-gpus", "-1")
    assert "needs a GPU for each process" in refused("--slurm-gpus", "1", "--processes-per-trial", "2")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no sbatch here" in refused()
