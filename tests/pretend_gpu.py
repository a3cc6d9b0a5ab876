"""A GPU that is none: a device of torch whose tensors hold real values and behave as a GPU's must.

It refuses operations that mix host and device, refuses a device without an index where CUDA does, and counts
read-backs (where the host would wait for the GPU), copies, and the bytes that are held. Importing this module
registers it, for good: use it in a process of its own.
"""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "pretend"
DEVICE = torch.device("cpu")
"""Set below, once the name is known to torch."""
aten = torch.ops.aten
COPIES = (aten.copy_.default, aten._to_copy.default)
READERS = {
    aten._local_scalar_dense.default,
    aten.equal.default,
    aten.nonzero.default,
    aten.masked_select.default,
    aten._unique2.default,
    aten.unique_consecutive.default,
    aten.repeat_interleave.Tensor,
}
"""Operations that cannot answer before the device has computed."""
INDEXING = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default}
"""Those that cannot where an index is a mask: they count what it lets through."""
AUTOCAST = {
    torch.bfloat16: ("linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "scaled_dot_product_attention"),
    torch.float32: ("layer_norm", "softmax.int", "log_softmax.int", "nll_loss", "cross_entropy_loss"),
}
"""What CUDA's autocast computes in which precision, as far as models here ask for it."""


@dataclass
class Counters:
    reads: Counter[str] = field(default_factory=Counter)
    """From device to host, by operation."""
    sent: int = 0
    """Tensors copied from host to device."""
    used_bytes: int = 0
    peak_bytes: int = 0
    limit_bytes: int | None = None
    """The memory that the device has; None is without end."""
    lacking: int = 0
    """Bytes that were asked for and not there."""


counted = Counters()


class _Allocation:
    """Memory of the device, alive as long as any tensor that uses it."""

    def __init__(self, size: int):
        self.size, self.counted = 0, counted
        if counted.limit_bytes is not None and counted.used_bytes + size > counted.limit_bytes:
            counted.lacking = size
        # An error of Python in a backward pass would end the process: there it is raised afterwards.
        if counted.lacking and torch._C._current_graph_task_id() == -1:  # type: ignore[attr-defined]
            lacking, counted.lacking = counted.lacking, 0
            raise torch.OutOfMemoryError(f"pretend out of memory. Tried to allocate {lacking} bytes")
        self.size = size
        counted.used_bytes += size
        counted.peak_bytes = max(counted.peak_bytes, counted.used_bytes)

    def __del__(self) -> None:
        self.counted.used_bytes -= self.size


_allocations: WeakValueDictionary[int, _Allocation] = WeakValueDictionary()


class _Module:
    """What `torch.pretend` offers: as torch.cuda, where it matters."""

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return True

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return 1

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        pass

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    def set_device(self, device: torch.device) -> None:
        if torch.device(device).index is None:
            raise ValueError(f"expected a torch.device with a specified index, but got: {device}")

    def get_device_name(self, device: torch.device) -> str:
        self.set_device(device)
        return "a pretend GPU"

    def reset_peak_memory_stats(self, device: torch.device) -> None:
        counted.peak_bytes = counted.used_bytes

    def device(self, index: int) -> nullcontext[None]:
        return nullcontext()

    def get_rng_state(self, device: torch.device | None = None) -> torch.Tensor:
        """It draws from the host's generator."""
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, device: torch.device | None = None) -> None:
        torch.set_rng_state(state)

    def max_memory_allocated(self, device: torch.device) -> int:
        return counted.peak_bytes


class Held(torch.Tensor):
    """A tensor on the device; `value` is what it holds."""

    value: torch.Tensor
    allocation: _Allocation

    @staticmethod
    def __new__(cls, value: torch.Tensor) -> Held:
        return torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined, no-any-return]
            cls,
            value.shape,
            strides=value.stride(),
            storage_offset=value.storage_offset(),
            dtype=value.dtype,
            device=DEVICE,
        )

    def __init__(self, value: torch.Tensor):
        self.value = value
        storage = value.untyped_storage()
        found = _allocations.get(storage._cdata)
        if found is None:
            found = _allocations[storage._cdata] = _Allocation(storage.nbytes())
        self.allocation = found

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Held({self.value})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.is_inference_mode_enabled():
            # Operations made of others arrive whole.
            parts = func.decompose(*args, **(kwargs or {}))
            if parts is not NotImplemented:
                return parts
        return _run(func, args, kwargs or {})


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    held: list[Held] = []
    host: list[torch.Tensor] = []
    plain = _inner(args, held, host)
    named = {name: _inner(value, held, host) for name, value in kwargs.items()}
    to_device = _goes_to_device(func, args, kwargs, held)
    _watch(func, args, kwargs, held, host, to_device)
    if to_device and "device" in named:
        named["device"] = torch.device("cpu")
    # What an evaluation makes is an ordinary tensor, so that it can be a view of one.
    with torch.inference_mode(False), torch.no_grad():
        answer = func(*plain, **named)
        returned = func._schema.returns
        if returned and returned[0].alias_info is not None and returned[0].alias_info.is_write:
            return kwargs.get("out", args[0])
        return _wrapped(answer) if to_device else answer


def _inner(value: Any, held: list[Held], host: list[torch.Tensor]) -> Any:
    """What the host computes with; tensors are listed by where they are."""
    if isinstance(value, Held):
        held.append(value)
        return value.value
    if isinstance(value, torch.Tensor):
        host.append(value)
    elif type(value) in (list, tuple):
        return type(value)(_inner(part, held, host) for part in value)
    return value


def _wrapped(answer: Any) -> Any:
    if isinstance(answer, torch.Tensor):
        return Held(answer)
    return type(answer)(map(_wrapped, answer)) if type(answer) in (list, tuple) else answer


def _goes_to_device(func: Any, args: Any, kwargs: dict[str, Any], held: list[Held]) -> bool:
    if func is aten.copy_.default:
        return isinstance(args[0], Held)
    if kwargs.get("device") is not None:
        return torch.device(kwargs["device"]).type == NAME
    return bool(held)


def _watch(
    func: Any,
    args: Any,
    kwargs: dict[str, Any],
    held: list[Held],
    host: list[torch.Tensor],
    to_device: bool,
) -> None:
    if func in COPIES:
        counted.sent += to_device and bool(host)
        if held and not to_device and kwargs.get("device") != torch.device("meta"):
            counted.reads[str(func)] += 1
        return
    # A number of the host is an argument like any other.
    if held and any(tensor.dim() for tensor in host):
        raise RuntimeError(f"{func}: expected all tensors to be on the same device, found {NAME} and cpu")
    by_mask = func in INDEXING and any(
        index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1]
    )
    if held and (func in READERS or by_mask):
        counted.reads[str(func)] += 1


def _fallback(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Operations that make tensors out of nothing reach the device by its name alone."""
    return _run(func, args, kwargs)


_setup_privateuseone_for_python_backend(rename=NAME, backend_module=_Module())
DEVICE = torch.device(NAME, 0)
_library = torch.library.Library("_", "IMPL")
_library.fallback(_fallback, "PrivateUse1")


def _autocast(name: str, dtype: torch.dtype) -> None:
    """As CUDA does, whatever 16-bit type the context asks for: it is bfloat16 here."""
    packet, _, overload = name.partition(".")
    operation = getattr(getattr(aten, packet), overload or "default")
    own = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)

    def cast(value: Any) -> Any:
        return value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    def computed(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(own):
            return operation(*map(cast, args), **{key: cast(value) for key, value in kwargs.items()})

    _operations.impl(name, computed, "AutocastPrivateUse1")


_library.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
_operations = torch.library.Library("aten", "IMPL")
for _dtype, _names in AUTOCAST.items():
    for _name in _names:
        _autocast(_name, _dtype)
