"""The trackers that trials can be sent to, through Accelerate. A new one is an entry of TRACKERS.

Standard library only: settings and help name them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from objectives.contract import UsageError
from objectives.errors import did_you_mean


@dataclass(frozen=True)
class TrackedRun:
    """One trial as trackers know it."""

    study: str
    name: str
    folder: str
    """For trackers that write files."""


@dataclass(frozen=True)
class Tracker:
    package: str
    """What has to be installed."""
    options: Callable[[TrackedRun], dict[str, Any]]
    """The arguments of Accelerate's class for it: runs are grouped by study."""


def _wandb(run: TrackedRun) -> dict[str, Any]:
    # Accelerate calls W&B's project the run's name.
    project = os.environ.get("WANDB_PROJECT", "elsa")
    # Standard output is the worker's own.
    quiet = {"console": "off", "silent": True}
    return {"run_name": project, "group": run.study, "name": run.name, "dir": run.folder, "settings": quiet}


def _mlflow(run: TrackedRun) -> dict[str, Any]:
    # MLflow's own default is a file in whatever folder a worker was started in.
    os.environ.setdefault("MLFLOW_TRACKING_URI", f"sqlite:///{run.folder}/mlflow.db")
    return {"experiment_name": run.study, "run_name": run.name, "logging_dir": f"{run.folder}/mlflow"}


TRACKERS: dict[str, Tracker] = {
    "tensorboard": Tracker(
        "tensorboard", lambda run: {"run_name": f"{run.study}/{run.name}", "logging_dir": run.folder}
    ),
    "wandb": Tracker("wandb", _wandb),
    "mlflow": Tracker("mlflow", _mlflow),
    "trackio": Tracker("trackio", lambda run: {"run_name": run.study, "name": run.name, "embed": False}),
}


def check_names(names: Sequence[str]) -> None:
    for name in names:
        if name not in TRACKERS:
            raise UsageError(f"--track {name}: unknown tracker: {did_you_mean(name, TRACKERS)}")


def check_installed(names: Sequence[str]) -> None:
    """For the launcher; a worker elsewhere without the package says so and goes on."""
    for name in names:
        if find_spec(TRACKERS[name].package) is None:
            package = TRACKERS[name].package
            raise UsageError(
                f"--track {name} needs the package {package}: pip install 'elsa-study[trackers]'"
            )
