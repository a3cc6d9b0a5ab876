"""Protocols in phases: killed between and inside them, resumed, and the cells are the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from storage.database import Database
from storage.reading import StoredTrial
from study import launch, work

LEASES = ["--heartbeat", "0.5", "--grace", "2"]
DEPTHS, RATES = (0, 6, 12), (1e-3, 2e-3)
STUDIES = {
    "paper": [],
    "low-resource": ["--train-sizes", "32,64", "--learning-rates", "1e-3"],
}
KILLS = {"paper": (2, 4, 6), "low-resource": (3, 8)}
"""Finished trials at which the worker is killed: in phase one, between the phases, in phase two."""


def write_table(path: Path, sizes: tuple[str, ...]) -> None:
    names = "task,model,total_layers,frozen_layers,learning_rate,seed,train_size,metric,score"
    rows = [
        f"rte,m,12,{depth},{rate},{seed},{size},accuracy,{0.6 - depth / 100 + seed / 1000 + rate}"
        for depth in DEPTHS
        for rate in RATES
        for seed in (1, 2)
        for size in sizes
    ]
    path.write_text("\n".join((names, *rows)) + "\n")


def plan(folder: Path, protocol: str, name: str) -> None:
    words = ["--recorded", str(folder / "table.csv"), "--protocol", protocol, "--study", name]
    words += ["--storage", url(folder), "--workers", "0", *LEASES, *STUDIES[protocol]]
    assert launch.main(words) == 0


def url(folder: Path) -> str:
    return f"sqlite:///{folder}/study.db"


def killed_worker(folder: Path, name: str, finished: int) -> int:
    """The exit code of a worker, started as launchers do, that is killed once so many trials are done."""
    words = [name, "--storage", url(folder), "--events", "w", "--recorded-delay", "0.3"]
    process = subprocess.Popen(
        [sys.executable, "-m", "study.work", *words], stdout=subprocess.PIPE, text=True, env=os.environ
    )
    assert process.stdout is not None
    done = len(complete(folder, name))
    for line in process.stdout:
        done += '"finished"' in line
        if done >= finished:
            process.send_signal(signal.SIGKILL)
    return process.wait()


def complete(folder: Path, name: str) -> list[StoredTrial]:
    with closing(Database.open(url(folder))) as database:
        return [trial for trial in database.study(name).trials() if trial.state == "COMPLETE"]


@pytest.mark.slow
@pytest.mark.parametrize("protocol", STUDIES)
def test_killed_and_resumed_it_runs_the_cells_of_an_undisturbed_run(tmp_path: Path, protocol: str) -> None:
    write_table(tmp_path / "table.csv", ("",) if protocol == "paper" else ("32", "64"))
    plan(tmp_path, protocol, "calm")
    assert work.main(["calm", "--storage", url(tmp_path), "--events", "here"]) == 0
    wanted = complete(tmp_path, "calm")
    assert len(wanted) == {"paper": 2 * 2 + 2 * 2, "low-resource": 2 * 3 * 2}[protocol]

    plan(tmp_path, protocol, "shaken")
    codes = [killed_worker(tmp_path, "shaken", finished) for finished in KILLS[protocol]]
    assert -signal.SIGKILL in codes
    assert work.main(["shaken", "--storage", url(tmp_path), "--events", "here"]) == 0
    found = complete(tmp_path, "shaken")
    assert sorted(trial.cell for trial in found) == sorted(trial.cell for trial in wanted)
    scores = [
        sorted((trial.cell, trial.record.score) for trial in done if trial.record) for done in (wanted, found)
    ]
    assert scores[0] == scores[1], "and the same seeds gave the same scores"
    assert len(scores[0]) == len(wanted)
