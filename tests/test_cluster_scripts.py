"""The Kubernetes manifest names a command that exists, and the ssh recipe starts and stops workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from launches import wait_until, write_table

from objectives.contract import StorageError
from storage.database import Database
from study import launch
from study.work import make_parser

SCRIPTS = Path(__file__).parent.parent / "scripts"


def test_the_kubernetes_job_runs_a_command_that_work_accepts() -> None:
    job = yaml.safe_load((SCRIPTS / "kubernetes.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    assert "completions" not in job["spec"]
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["command"] == ["elsa", "work"]
    arguments = make_parser().parse_args(container["args"])
    assert arguments.study == ["mrpc-roberta-base-grid"]
    assert container["env"][0]["name"] == "ELSA_STORAGE"
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}
    rules = job["spec"]["podFailurePolicy"]["rules"]
    assert rules[0]["onExitCodes"]["containerName"] == container["name"]
    assert pod["restartPolicy"] == "Never", "what a pod failure policy needs"


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """An environment in which every host is this one, reached through a stand-in for ssh."""
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\necho "$1" >> "$0.hosts"\nexec bash -c "$2"\n')
    ssh.chmod(0o755)
    folder = tmp_path / "a folder"
    (folder / ".venv" / "bin").mkdir(parents=True)
    python = folder / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    for name in ("study", "storage", "objectives"):
        (folder / name).symlink_to(SCRIPTS.parent / name)
    return {**os.environ, "ELSA_SSH": str(ssh), "ELSA_FOLDER": str(folder)}


def run(machine: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(SCRIPTS / "workers_over_ssh.sh"), *arguments],
        env=machine,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_the_ssh_recipe_starts_a_worker_and_stops_it(
    machine: dict[str, str], tmp_path: Path, sqlite_url: str
) -> None:
    table = write_table(tmp_path / "a table.csv", depths=2, seeds=2)
    machine["ELSA_STORAGE"] = sqlite_url
    assert launch.main(["--recorded", str(table), "--storage", sqlite_url, "--workers", "0"]) == 0
    started = run(machine, "one", "--", "mrpc-bert-base-grid", "--recorded-delay", "60")
    assert started.returncode == 0, started.stderr
    assert started.stdout.startswith("one: process ")

    def states() -> list[str]:
        try:
            database = Database.open(sqlite_url)
        except StorageError:
            return []
        try:
            return [t.state for name in database.study_names() for t in database.study(name).trials()]
        finally:
            database.close()

    wait_until(lambda: "RUNNING" in states(), "a running trial")
    stopped = run(machine, "--stop", "one")
    assert stopped.returncode == 0, stopped.stderr
    wait_until(lambda: states() == ["WAITING"] * 4, "a released trial")
    assert (tmp_path / "ssh.hosts").read_text().split() == ["one", "one"]


def test_the_ssh_recipe_says_what_is_missing(machine: dict[str, str]) -> None:
    machine.pop("ELSA_STORAGE", None)
    assert (run(machine).returncode, run(machine, "one", "--", "a-study").returncode) == (2, 2)
    assert "ELSA_STORAGE" in run(machine, "one").stderr
    machine["ELSA_STORAGE"] = "sqlite:///nowhere/at/all.db"
    assert "elsa: error:" in run(machine, "one", "--", "a-study", "--workers", "-1").stdout
