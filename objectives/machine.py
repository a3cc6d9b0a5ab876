"""What a trial can tell of the machine it ran on, and how the machine is made ready for trials."""

from __future__ import annotations

import ctypes
import gc
import os
import platform
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_PACKAGES = ("torch", "transformers", "accelerate", "datasets", "optuna")
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


@cache
def versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in _PACKAGES}}


def device_name(device: torch.device) -> str:
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type} x{torch.get_num_threads()}"


def prepare(device: torch.device) -> None:
    """Same seed, same numbers; and on a CPU, no page faults for memory that the next step needs again."""
    import torch

    if device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        # Attention's backward kernels add in a fixed order only if nothing else is allowed.
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    elif platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        libc.mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)


def relax(device: torch.device, error: RuntimeError) -> bool:
    """Whether it failed for an operation without a fixed order; such ones are allowed from now on."""
    import torch

    strict = torch.get_deterministic_debug_mode() == 2
    if device.type != "cuda" or not strict or "deterministic" not in str(error):
        return False
    torch.use_deterministic_algorithms(True, warn_only=True)
    return True


def forward_tokens(device: torch.device) -> int:
    """Padded tokens per forward pass without gradient: enough to fill a GPU; a CPU is full with few, and few
    sentences of a sorted set are more alike in length."""
    return 8192 if device.type == "cuda" else 1024


def settle() -> None:
    """What is alive now stays until the end: the collections between trials need not look at it again."""
    gc.collect()
    gc.freeze()


def give_back_memory() -> None:
    """Return freed memory to the system, so that the next trial's peak is its own."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL("libc.so.6").malloc_trim(0)


class PeakMemory:
    """The most memory a trial held: the GPU's own counter, or the process's private memory.

    On a CPU it is looked at where a step holds most: after the forward and after the backward pass.
    Pages of the prefix cache, which the system may drop at any time, do not count.
    """

    def __init__(self, device: torch.device):
        import torch

        self._device = device
        self._peak = 0
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)

    def look(self) -> None:
        if self._device.type != "cuda":
            self._peak = max(self._peak, private_memory_bytes())

    def bytes(self) -> int:
        import torch

        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device)
        return self._peak


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
