"""Protocols in phases: killed between and inside them, resumed, and the cells are the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import optuna
import pytest

ROOT = Path(__file__).parent.parent
RECORDED = ["--recorded", "../table.csv", "--recorded-delay", "0.1"]
LEASES = ["--heartbeat", "0.5", "--grace", "2"]
DEPTHS, RATES = (0, 6, 12), (1e-3, 2e-3)
STUDIES = {
    "paper": [],
    "low-resource": ["--train-sizes", "32,64", "--learning-rates", "1e-3"],
}
KILLS = {"paper": (2, 4, 6), "low-resource": (3, 8)}
"""Finished trials at which the launcher is killed: in phase one, between the phases, in phase two."""


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


def start(folder: Path, protocol: str) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "ELSA_CACHE": str(folder.parent / "cache"),
        "HF_HUB_OFFLINE": "1",
    }
    folder.mkdir(exist_ok=True)
    launch = [sys.executable, "-m", "study.launch", "--protocol", protocol]
    return subprocess.Popen(
        [*launch, *RECORDED, *LEASES, *STUDIES[protocol]],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
    )


def complete(folder: Path) -> list[optuna.trial.FrozenTrial]:
    if not (folder / "elsa.db").exists():
        return []
    try:
        (summary,) = optuna.get_all_study_summaries(f"sqlite:///{folder}/elsa.db")
        study = optuna.load_study(study_name=summary.study_name, storage=f"sqlite:///{folder}/elsa.db")
        return [trial for trial in study.trials if trial.state.name == "COMPLETE"]
    except Exception:  # the first moments of a database: no schema, no study
        return []


def cells(folder: Path) -> list[tuple[tuple[str, float], ...]]:
    return sorted(tuple(sorted(trial.params.items())) for trial in complete(folder))


@pytest.mark.parametrize("protocol", STUDIES)
def test_killed_and_resumed_it_runs_the_cells_of_an_undisturbed_run(tmp_path: Path, protocol: str) -> None:
    write_table(tmp_path / "table.csv", ("",) if protocol == "paper" else ("32", "64"))
    assert start(tmp_path / "calm", protocol).wait(240) == 0
    wanted = cells(tmp_path / "calm")
    assert len(wanted) == {"paper": 2 * 2 + 2 * 2, "low-resource": 2 * 3 * 2}[protocol]

    shaken = tmp_path / "shaken"
    for finished in KILLS[protocol]:
        process = start(shaken, protocol)
        deadline = time.monotonic() + 120
        while len(complete(shaken)) < finished and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert start(shaken, protocol).wait(240) == 0
    assert cells(shaken) == wanted
    scores = [sorted(t.value for t in complete(folder)) for folder in (tmp_path / "calm", shaken)]
    assert scores[0] == scores[1], "and the same seeds gave the same scores"
