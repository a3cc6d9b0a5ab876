"""Ties a process to the one that started it: when that one dies, however it dies, this one is told to end."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping

VARIABLE = "ELSA_PARENT_PID"
_PR_SET_PDEATHSIG = 1


def bind_to_parent(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a child that is to call `follow_parent`."""
    return {**environment, VARIABLE: str(os.getpid())}


def follow_parent(signum: int = signal.SIGTERM) -> None:
    """Have this process signalled when its parent is gone; nothing where nobody bound it."""
    named = os.environ.pop(VARIABLE, None)
    if named is None:
        return
    parent = int(named)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signum, 0, 0, 0)
    else:
        threading.Thread(target=_watch, args=(parent, signum), daemon=True).start()
    if os.getppid() != parent:
        # It died before it could be followed.
        os.kill(os.getpid(), signum)


def _watch(parent: int, signum: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os.kill(os.getpid(), signum)
