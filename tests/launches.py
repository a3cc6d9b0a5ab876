"""Launches as a person would start them, on a small recorded trial table, for tests of many processes."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

COLUMNS = "task,model,total_layers,frozen_layers,learning_rate,seed,train_size,state,metric,score"


def write_table(path: Path, *, depths: int = 4, seeds: int = 5) -> Path:
    """A recorded table of depths x seeds cells, each with a score of its own."""
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(COLUMNS.split(","))
        for depth in range(depths):
            for seed in range(1, seeds + 1):
                score = 0.9 - depth / 100 + seed / 1000
                out.writerow(["mrpc", "bert-base", 12, depth, 3e-5, seed, "", "COMPLETE", "f1", score])
    return path


def start(
    arguments: Sequence[object], folder: Path, command: str = "launch", **options: object
) -> subprocess.Popen[str]:
    """`launch` or `work` in a process of its own, with its caches and report under `folder`."""
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, **options}
    places = ["--cache-dir", str(folder / "cache")]
    places += ["--out", str(folder / "report")] if command == "launch" else []
    return subprocess.Popen(
        [sys.executable, "-m", f"study.{command}", *map(str, arguments), *places],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        **settings,  # type: ignore[call-overload]
    )


def wait_until(true: Callable[[], bool], what: str, seconds: float = 600) -> None:
    """Looks less and less often: what it asks for has to be computed by the same machine."""
    deadline, pause = time.monotonic() + seconds, 0.05
    while not true():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(pause)
        pause = min(0.25, 1.1 * pause)


def environment(pid: int) -> list[str]:
    """The variables of a process, as NAME=VALUE."""
    try:
        return Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0")
    except OSError:
        return []


def processes(*words: str) -> dict[int, list[str]]:
    """Processes by id whose arguments hold these words in this order, one after the other."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            parts = (entry / "cmdline").read_text().split("\0") if entry.name.isdigit() else []
        except OSError:
            continue
        width = len(words)
        if any(parts[at : at + width] == list(words) for at in range(len(parts))):
            found[int(entry.name)] = parts
    return found
