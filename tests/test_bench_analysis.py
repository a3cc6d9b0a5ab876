"""The large-input promise, measured: 100,000 trials, 10,000 draws, one core."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent.parent / "scripts" / "bench_analysis.py"


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, check=False
    )


def test_a_hundred_thousand_trials_are_analysed_in_ten_seconds_and_a_gigabyte() -> None:
    done = bench("--shape", "grid", "--shape", "grid, seeds contradicted")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("10000") == 2


def test_a_limit_that_is_missed_is_an_error() -> None:
    done = bench("--shape", "grid", "--trials", "3000", "--draws", "10", "--limit-mb", "1")
    assert done.returncode == 1
    assert "OVER" in done.stdout
