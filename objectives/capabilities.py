"""What a device can do, asked for here and nowhere else.

CUDA, ROCm (which answers as CUDA), XPU, MPS and whatever else torch has a module for differ only by what that
module offers; the CPU, called the host, offers none of it and needs none of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

_PINNING = ("cuda", "xpu")
"""Kinds that copy from pinned memory of the host while they compute."""
_TF32 = ("cuda", "xpu")
_TENSOR_CORES = {"no": 8, "bf16": 7, "fp16": 7}
"""By precision, the first major compute capability of CUDA whose products are faster where sizes are
multiples of eight: TF32 came after the 16-bit ones."""

_NO_MEMORY = (
    # oneDNN on a CPU
    "could not create a primitive",
    "could not create a memory",
    "std::bad_alloc",
    # CUDA and ROCm where not torch's allocator asked: a kernel's launch, the driver, cuBLAS and cuDNN
    "CUDA error: out of memory",
    "CUDA driver error: out of memory",
    "HIP error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)
"""What an error without a type of its own says."""


def normalised(device: torch.device) -> torch.device:
    """With an index wherever there is a choice: a single process of Accelerate has `cuda`, which some calls
    refuse and which equals no tensor's device."""
    if device.type == "cpu" or device.index is not None:
        return device
    current = getattr(torch.get_device_module(device), "current_device", lambda: 0)
    return torch.device(device.type, int(current()))


@dataclass(frozen=True)
class Capabilities:
    device: torch.device
    """Normalised."""

    @property
    def is_host(self) -> bool:
        """Whether nothing has to be copied there, and reading a value waits for nothing."""
        return self.device.type == "cpu"

    @property
    def kind(self) -> str:
        """`cpu`, `cuda`, `mps` and the like."""
        return self.device.type

    @cached_property
    def _module(self) -> Any:
        return None if self.is_host else torch.get_device_module(self.device)

    def _offers(self, name: str) -> Any:
        return getattr(self._module, name, None)

    @property
    def name(self) -> str:
        if named := self._offers("get_device_name"):
            return str(named(self.device))
        return f"cpu x{torch.get_num_threads()}" if self.is_host else self.device.type

    @property
    def precisions(self) -> tuple[str, ...]:
        """Of the matrix products, as `--mixed-precision` names them."""
        return ("no", *(["bf16"] if self._has_bf16() else []), *([] if self.is_host else ["fp16"]))

    def _has_bf16(self) -> bool:
        """In hardware: before Ampere, CUDA only imitates it, slower than float32."""
        from accelerate.utils import is_bf16_available

        if self.device.type != "cuda":
            return self.is_host or bool(is_bf16_available())
        with self._module.device(self.device):
            return bool(self._module.is_bf16_supported(including_emulation=False))

    @property
    def forward_tokens(self) -> int:
        """Padded tokens per forward pass without gradient: enough to fill a GPU; a CPU is full with few, and
        few sentences of a sorted set are more alike in length."""
        return 1024 if self.is_host else 8192

    def padding_multiple(self, precision: str) -> int:
        """Of tokens that the device's products in this precision are fastest with."""
        if self.device.type != "cuda":
            return 1
        return 8 if self._module.get_device_capability(self.device)[0] >= _TENSOR_CORES[precision] else 1

    # --- getting ready ---

    def prepare(self) -> None:
        """Same seed, same numbers; and float32 products at the speed of TF32, where the device has it."""
        if self.is_host:
            return
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        # Attention's backward kernels add in a fixed order only if nothing else is allowed.
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        if self.device.type in _TF32:
            torch.set_float32_matmul_precision("high")

    def relax(self, error: RuntimeError) -> bool:
        """Whether it failed for an operation without a fixed order; such ones are allowed from now on."""
        strict = torch.get_deterministic_debug_mode() == 2
        if self.is_host or not strict or "deterministic" not in str(error):
            return False
        torch.use_deterministic_algorithms(True, warn_only=True)
        return True

    def new_scaler(self) -> torch.amp.GradScaler:
        """For fp16, whose small gradients would else vanish."""
        return torch.amp.GradScaler(self.device.type)

    def enter_thread(self) -> None:
        """For a thread that pins memory, which would else take memory of the first device, whosever it is."""
        if set_device := self._offers("set_device"):
            set_device(self.device)

    def pin(self, block: torch.Tensor) -> torch.Tensor:
        """A tensor on the host, so that copying it to the device keeps nobody waiting."""
        return block.pin_memory() if self.device.type in _PINNING else block

    # --- memory ---

    def start_peak(self) -> None:
        if reset := self._offers("reset_peak_memory_stats"):
            reset(self.device)

    @property
    def counts_peak(self) -> bool:
        """Whether the device itself keeps the most memory that was held; else somebody has to look."""
        return self._offers("max_memory_allocated") is not None

    def peak_bytes(self) -> int:
        return int(self._module.max_memory_allocated(self.device))

    def used_bytes(self) -> int | None:
        """Of the device's own memory now; None where it has none or does not say."""
        used = self._offers("current_allocated_memory")  # MPS
        return None if used is None else int(used())

    def total_bytes(self) -> int | None:
        """The memory that the device has; None where it has none of its own or does not say."""
        if info := self._offers("mem_get_info"):
            return int(info(self.device)[1])
        most = self._offers("recommended_max_memory")  # MPS
        return None if most is None else int(most())

    def free_bytes(self) -> int | None:
        """The memory that the device has left for all its processes; None where it does not say."""
        info = self._offers("mem_get_info")
        return None if info is None else int(info(self.device)[0])

    def release_memory(self) -> None:
        """Give what is cached for later back to the device, for its other processes."""
        if empty := self._offers("empty_cache"):
            empty()

    # --- random numbers ---

    def random_state(self) -> torch.Tensor | None:
        """Of the device's own generator; None where it draws from the host's."""
        get = self._offers("get_rng_state")
        if get is None:
            return None
        return get() if self.device.type == "mps" else get(self.device)

    def set_random_state(self, state: torch.Tensor) -> None:
        put = self._offers("set_rng_state")
        put(state) if self.device.type == "mps" else put(state, self.device)


def out_of_memory(error: BaseException) -> bool:
    """Whether a smaller batch might not have raised it. Often torch says it in words alone."""
    from accelerate.utils.memory import should_reduce_batch_size

    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    if not isinstance(error, RuntimeError):
        return False
    return should_reduce_batch_size(error) or any(words in str(error) for words in _NO_MEMORY)


@contextmanager
def exact_products() -> Iterator[None]:
    """While it lasts, float32 products are whole: in TF32 numbers that should be equal are 1e-3 apart."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def capabilities(device: torch.device) -> Capabilities:
    return Capabilities(normalised(device))
