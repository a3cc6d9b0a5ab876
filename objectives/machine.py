"""The machine around the device: versions, the process's memory, and how both are made ready for trials."""

from __future__ import annotations

import ctypes
import gc
import platform
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from objectives.capabilities import Capabilities

_PACKAGES = ("torch", "transformers", "accelerate", "datasets", "optuna")
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


@cache
def versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in _PACKAGES}}


def prepare() -> None:
    """No page faults for memory that the next step needs again."""
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        libc.mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)


def settle() -> None:
    """What is alive now stays until the end: the collections between trials need not look at it again."""
    gc.collect()
    gc.freeze()


def give_back_memory(can: Capabilities | None = None) -> None:
    """Return freed memory to the device and the system, so that the next trial's peak is its own."""
    gc.collect()
    if can is not None:
        can.release_memory()
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL("libc.so.6").malloc_trim(0)


class PeakMemory:
    """The most memory a trial held: the device's own counter, or the process's private memory.

    Without such a counter it is looked at where a step holds most: after the forward and after the backward
    pass. Pages of the prefix cache, which the system may drop at any time, do not count.
    """

    def __init__(self, can: Capabilities):
        self._can = can
        self._peak = 0
        can.start_peak()

    def look(self) -> None:
        if not self._can.counts_peak:
            used = self._can.used_bytes()
            self._peak = max(self._peak, private_memory_bytes() if used is None else used)

    def bytes(self) -> int:
        return self._can.peak_bytes() if self._can.counts_peak else self._peak


def private_memory_bytes() -> int:
    try:
        with open("/proc/self/status") as status:
            for line in status:
                if line.startswith("RssAnon:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    import psutil

    return psutil.Process().memory_info().rss
