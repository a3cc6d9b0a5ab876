"""Makes a worker's objective; refuses to run cells with one that cannot be made, or not on its device."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from objectives.contract import ElsaError, Objective
from objectives.errors import NotReady
from study.workers import devices


def ready(make_objective: Callable[[], Objective]) -> Objective:
    """An objective that can run cells on the device that was meant for it."""
    try:
        with _uncollected():
            objective = make_objective()
    except ElsaError:
        raise
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise NotReady(f"this worker cannot make its objective: {reason}") from error
    devices.check_used(getattr(objective, "device", None), os.environ)
    return objective


@contextmanager
def _uncollected() -> Iterator[None]:
    """Imports make no garbage; looking for it takes a seventh of a worker's start."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def forget_models() -> None:
    """Two models at once may not fit; what was frozen for speed is out of the collector's sight."""
    gc.unfreeze()
    gc.collect()
