"""The rooms import one way, and what must stay light stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("study", "storage", "objectives")
COMMANDS = ("launch", "status", "table", "operating_points", "report", "dashboard", "layers", "simulate")


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def all_imports(room: str) -> dict[Path, set[str]]:
    found = {path: imports(path) for path in (ROOT / room).rglob("*.py")}
    assert found
    return found


def roots(names: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


def test_storage_shares_only_the_plain_dataclasses_and_never_imports_torch() -> None:
    for path, names in all_imports("storage").items():
        ours = {name for name in names if roots({name}) <= {"study", "objectives"}}
        assert all(name.startswith("objectives.contract") for name in ours), path
        assert not roots(names) & {"torch", "transformers", "datasets", "accelerate"}, path


def test_objectives_know_nothing_of_optuna_and_databases() -> None:
    for path, names in all_imports("objectives").items():
        assert not roots(names) & {"study", "storage", "optuna", "sqlalchemy"}, path


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_instant_and_ends_in_examples(command: str) -> None:
    best = float("inf")
    for _ in range(3):
        started = time.perf_counter()
        answer = subprocess.run(
            [sys.executable, "-m", f"study.{command}", "--help"],
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        )
        best = min(best, time.perf_counter() - started)
    assert best < 1
    assert "examples:" in answer.stdout
    assert answer.stdout.strip().splitlines()[-1].lstrip().startswith(("elsa", "python"))


@pytest.mark.parametrize(
    "module", ["operating_points", "report", "table", "status", "simulate", "workers.worker"]
)
def test_analysis_and_workers_load_without_torch(module: str) -> None:
    code = f"import sys, study.{module}; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
