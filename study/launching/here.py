"""Runs workers on this machine, each a supervised `elsa work` process, and shows what they do."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from study.cli import flags
from study.cli.command import note
from study.progress.board import Board
from study.progress.live_table import display
from study.workers import devices
from study.workers.interrupts import STOPPED
from study.workers.options import Places, Working
from study.workers.supervise import log_folder, supervise, worker_command

if TYPE_CHECKING:
    from storage.studies import StoredStudy
    from study.workers.devices import Share


def shares(working: Working) -> list[Share]:
    """What each worker gets of this machine."""
    devices.check_group(working.processes_per_trial)
    return devices.plan(
        devices.find(),
        workers=working.workers,
        workers_per_gpu=working.workers_per_gpu or 1,
        processes_per_trial=working.processes_per_trial,
        cores=devices.cores(),
    )


def work_arguments(studies: Sequence[str], working: Working, places: Places) -> list[str]:
    """The arguments of `elsa work` for one worker of these studies; the storage is in the environment."""
    one = replace(working, workers=None, workers_per_gpu=1)
    return [
        *studies,
        *(f"--model={path}" for path in places.models),
        *(f"--data={path}" for path in places.data),
        *flags.to_arguments(one),
        *(word for name in places.GROUPS for word in flags.to_arguments(getattr(places, name))),
    ]


def environment(storage: str) -> dict[str, str]:
    """What a worker finds the database by: a password is never on a command line."""
    return {"ELSA_STORAGE": storage}


def run_workers(
    studies: Sequence[StoredStudy], given: Sequence[Share], working: Working, places: Places, storage: str
) -> int:
    """Until every worker has left; 0 when all cells are finished."""
    logs = log_folder(places.caching.cache_dir)
    count = f"{len(given)} worker{'s' if len(given) > 1 else ''}"
    print(f"{count}: {'; '.join(map(str, dict.fromkeys(given)))}; logs in {logs}", flush=True)
    command = worker_command(work_arguments([study.name for study in studies], working, places))
    with display(Board(studies, len(given))) as shown:
        code = supervise(command, given, shown, logs, {**os.environ, **environment(storage)})
    if code in STOPPED:
        note("stopped; run the same command again to resume")
    return code
