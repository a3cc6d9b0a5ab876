"""Processes that run a function of a test.

They are forked by a server without threads that has the slow imports behind it. A fork of the test process
itself, whose threads come from many tests, may inherit a lock that nobody releases.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from typing import Any

from study.workers.process_group import group_environments

CLEAN = multiprocessing.get_context("forkserver")
CLEAN.set_forkserver_preload(
    [
        "storage.database",
        "study.workers.worker",
        "objectives.training.finetune",
        "objectives.data.task_data",
        "sklearn.metrics",
        "transformers.models.bert.modeling_bert",
        "transformers.models.bert.tokenization_bert",
    ]
)


def run(target: Callable[..., None], *arguments: Any, **environment: str) -> int | None:
    """Runs `target` in a process of its own, with these variables; its exit code."""
    process = CLEAN.Process(target=_run, args=(environment, target, arguments))
    process.start()
    process.join(600)
    return process.exitcode


class Group:
    """Two processes on the CPU that train together: each runs `target` as a rank of a worker does."""

    def __init__(self, target: Callable[..., None], *arguments: Any):
        alone = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
        self._ranks = [
            CLEAN.Process(target=_run, args=(environment, target, arguments))
            for environment in group_environments(alone, 2)
        ]
        for rank in self._ranks:
            rank.start()

    def wait(self) -> list[int | None]:
        """Their exit codes, once all have ended."""
        for rank in self._ranks:
            rank.join(600)
        return [rank.exitcode for rank in self._ranks]


def _run(environment: dict[str, str], target: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    os.environ.update(environment)
    target(*arguments)
