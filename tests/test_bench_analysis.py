"""The large-input benchmark: 100,000 trials and 10,000 draws by default, fewer here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "bench_analysis.py"


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_many_trials_are_analysed_within_a_gigabyte() -> None:
    shapes = ["--shape", "grid", "--shape", "grid, seeds contradicted"]
    done = bench(*shapes, "--trials", "20000", "--limit-seconds", "100")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("  2000") == 2


@pytest.mark.slow
def test_a_limit_that_is_missed_is_an_error() -> None:
    done = bench("--shape", "grid", "--trials", "3000", "--draws", "10", "--limit-mb", "1")
    assert done.returncode == 1
    assert "OVER" in done.stdout
