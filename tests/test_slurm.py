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
from study.launching import here
from study.launching.arguments import parse
from study.launching.running import _asked as asked_of
from study.workers.options import Caching, Places, Working
from study.workers.slurm import SlurmWorker, check, submit
from study.workers.slurm_settings import Asked, minutes, options
from study.workers.slurm_settings import Slurm as Settings

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


@pytest.mark.slow
def test_two_workers_finish_a_study_although_one_is_requeued(
    cluster: Slurm, postgresql: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgresql.new_url()
    launcher = launch(url, cluster, tmp_path, "--wait", monkeypatch=monkeypatch)
    wait_until(lambda: done(url) >= 4, "four results")
    array = array_of(cluster)
    cluster.run("scontrol", "requeue", f"{array}_0")
    output, _ = launcher.communicate(timeout=600)
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


@pytest.mark.slow
def test_the_launcher_may_leave_and_a_preempted_worker_comes_back(
    cluster: Slurm, postgresql: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgresql.new_url()
    launcher = launch(url, cluster, tmp_path, monkeypatch=monkeypatch)
    output, _ = launcher.communicate(timeout=600)
    assert launcher.returncode == 0, output
    assert "elsa status --watch --storage" in output
    assert "scancel" in output
    wait_until(lambda: done(url) >= 2, "two results")
    array = array_of(cluster)
    cluster.run("scancel", "--signal=USR2", f"{array}_1")
    wait_until(
        lambda: "Restarts=1" in cluster.run("scontrol", "show", "job", f"{array}_1"), "a requeued worker"
    )
    wait_until(lambda: done(url) == CELLS, "all results")
    check_complete(url)
    assert [trial.reason for trial in trials(url) if trial.state == "FAIL"] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90", 90),
        ("10:30", 11),
        ("12:00:00", 720),
        ("2-00", 2880),
        ("1-12:30", 2190),
        ("0-0:0:1", 1),
    ],
)
def test_times_as_slurm_writes_them(text: str, expected: int) -> None:
    assert minutes(text) == expected


@pytest.mark.parametrize("text", ["0", "a day", "1:2:3:4", "-5"])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--slurm-time"):
        parse(["--task", "rte", "--slurm-time", text])


def test_options_for_sbatch() -> None:
    given = ["account=nlp", "--mem=8G", "exclusive", "comment=a=b"]
    assert options(given) == {"account": "nlp", "mem": "8G", "exclusive": True, "comment": "a=b"}
    with pytest.raises(UsageError, match="KEY=VALUE"):
        options(["=x"])
    assert options(["tres-per-task2=x"]) == {"tres-per-task2": "x"}


@pytest.mark.parametrize("bad", ["comment=x\ntouch owned #", "comment=\x1b[2J", "a\nb=c", "2x=1"])
def test_an_option_adds_no_line_to_the_batch_script(bad: str) -> None:
    with pytest.raises(UsageError, match="--slurm-option") as refused:
        options([bad])
    assert "\n" not in str(refused.value)


def test_no_value_for_slurm_may_break_a_line() -> None:
    with pytest.raises(UsageError, match="--slurm-partition"):
        Asked(slurm=Settings(slurm=True, slurm_partition="gpu\ntouch owned")).check()
    with pytest.raises(UsageError, match="--cache-dir"):
        check(Asked(slurm=Settings(slurm=True)), "cache\ntouch owned")


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
    request = parse(["--task", "rte", "--slurm", *given.split()])
    found = Asked(
        slurm=request.slurm,
        processes=request.working.processes_per_trial,
        trains=request.inputs.recorded is None,
    ).parameters()
    assert found.get("gpus_per_node") == asked_gpus
    assert found["srun_args"] == [f"--cpus-per-task={asked_cores}"]
    by_hand = "cpus-per-task" in given
    assert found.get("cpus_per_task") == (None if by_hand else asked_cores)


def test_a_job_is_the_work_command_with_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    seen = []

    def popen(words: list[str], *_: object, env: dict[str, str], **__: object) -> subprocess.Popen[bytes]:
        seen.append((words[1:], env.get("CUDA_VISIBLE_DEVICES"), env["ELSA_STORAGE"]))
        return real(["true"])

    real = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", popen)
    for hidden in ({"CUDA_VISIBLE_DEVICES": ""}, {}):
        assert SlurmWorker(["a-study"], {"ELSA_STORAGE": "url", **hidden})() == 0
    command = ["-m", "study.work", "a-study"]
    assert seen == [(command, "", "url"), (command, None, "url")]


def test_a_cluster_without_gpus_says_how_to_go_without(
    cluster: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", cluster.environment["SLURM_CONF"])
    with pytest.raises(UsageError, match=r"sbatch refused the workers \(without GPUs: --slurm-gpus 0\)"):
        submit(Asked(slurm=Settings(slurm=True, slurm_cpus=1)), ["a-study"], {}, str(tmp_path))


def test_a_job_gets_what_concerns_workers_and_nothing_of_the_launch() -> None:
    places = Places(data=("/data",), caching=Caching(cache_dir="/cache", cache_budget=5))
    words = here.work_arguments(["a", "b"], Working(workers=3, processes_per_trial=2), places)
    assert words == [
        "a",
        "b",
        "--data=/data",
        "--workers-per-gpu=1",
        "--processes-per-trial=2",
        "--cache-dir=/cache",
        "--cache-budget=5",
    ]


def test_what_cannot_work_is_refused_before_anything_is_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*given: str) -> str:
        with pytest.raises(UsageError) as error:
            asked_of(parse(["--task", "rte", "--slurm", *given]))
        return str(error.value)

    assert "--slurm-workers 0" in refused("--slurm-workers", "0")
    assert "--slurm-gpus -1: use a whole number at least 0" in refused("--slurm-gpus", "-1")
    assert "needs a GPU for each process" in refused("--slurm-gpus", "1", "--processes-per-trial", "2")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no sbatch here" in refused()
