"""Starts probes, one process or several that train together, and takes their answer or why there is none."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from study.diagnosis.probe import MARK

LIMIT_SECONDS = {"device": 75.0, "group": 105.0}
"""By task, since the beginning: with the checks that follow, all of them take less than two minutes."""
Ask = Callable[[Mapping[str, Any], Sequence[Mapping[str, str]]], dict[str, Any]]
"""What is asked, and the environment of each process that takes part; the answer, or {"error": why}."""


def asker() -> Ask:
    began = time.monotonic()

    def ask(asked: Mapping[str, Any], environments: Sequence[Mapping[str, str]]) -> dict[str, Any]:
        return _ask(asked, environments, began + LIMIT_SECONDS[asked["task"]])

    return ask


def _ask(asked: Mapping[str, Any], environments: Sequence[Mapping[str, str]], until: float) -> dict[str, Any]:
    """What the first of the processes answers; all of them must end well."""
    began = time.monotonic()
    command = [sys.executable, "-m", "study.diagnosis.probe", json.dumps(dict(asked))]
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as complained:
        running = [
            subprocess.Popen(
                command,
                stdout=said if number == 0 else subprocess.DEVNULL,
                stderr=complained,
                env=dict(environment),
            )
            for number, environment in enumerate(environments)
        ]
        try:
            codes = [process.wait(max(0.0, until - time.monotonic())) for process in running]
        except subprocess.TimeoutExpired:
            return {"error": f"no answer after {time.monotonic() - began:.0f} s"}
        finally:
            for process in running:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        said.seek(0), complained.seek(0)
        answers = [line for line in said if line.startswith(MARK)]
        if any(codes) or not answers:
            return {"error": f"exit codes {codes}: {_last(complained.read())}"}
    found: dict[str, Any] = json.loads(answers[-1].removeprefix(MARK))
    return found


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:400] if lines else "it said nothing"
