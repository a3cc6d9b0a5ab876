"""Devices differ in one place: CUDA's own calls, with the C functions below them replaced, and the host."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from objectives import machine
from objectives.capabilities import Capabilities, capabilities, normalised, out_of_memory
from objectives.data.encoding import Encoded
from objectives.training.batches import Batch, Loader, Split

ROOT = Path(__file__).parent.parent
HOST = Capabilities(torch.device("cpu"))


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """Two GPUs, the second of them current, as far as torch's Python asks; what C would be told is listed."""
    told: list[tuple[str, Any]] = []

    def replace(name: str, answer: Any = None) -> None:
        def called(*arguments: Any) -> Any:
            told.append((name, arguments))
            return answer

        monkeypatch.setattr(torch._C, f"_cuda_{name}", called, raising=False)

    monkeypatch.setattr(torch.cuda, "_lazy_init", lambda: None)
    replace("getDevice", 1)
    for name in ("setDevice", "resetPeakMemoryStats", "emptyCache"):
        replace(name)
    replace("memoryStats", {"allocated_bytes": {"all": {"peak": 7_000}}})
    monkeypatch.setattr(torch.cuda, "_initialized", True)
    return told


def test_a_device_without_an_index_gets_the_current_one(cuda: list[Any]) -> None:
    assert normalised(torch.device("cuda")) == torch.device("cuda", 1)
    assert normalised(torch.device("cuda", 0)) == torch.device("cuda", 0)
    assert normalised(torch.device("cpu")) == torch.device("cpu")
    assert normalised(torch.device("mps")) == torch.device("mps", 0)


def test_the_thread_that_loads_batches_pins_them_for_its_own_gpu(
    cuda: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    where: list[str] = []

    def pin(block: torch.Tensor) -> torch.Tensor:
        assert ("setDevice", (1,)) in cuda, "else the first GPU is pinned for"
        where.append(threading.current_thread().name)
        return block

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    monkeypatch.setattr(Loader, "_on_device", lambda self, split, batch: batch)
    encoded = Encoded(
        {"input_ids": np.arange(5, dtype=np.int32)},
        np.array([0, 2, 5]),
        np.array([0, 1]),
        {"input_ids": 0},
        False,
    )
    # As Accelerate names it in a single process.
    loader = Loader(torch.device("cuda"))
    batches: list[Batch] = list(loader.training(Split(encoded), [np.array([0, 1])]))
    assert batches[0].labels.tolist() == [0, 1]
    assert len(where) == 3, "tokens, mask and labels"
    assert all(name.startswith("batches") for name in where)


def test_peaks_are_the_gpus_own_and_memory_goes_back_to_it(cuda: list[Any]) -> None:
    can = capabilities(torch.device("cuda"))
    peak = machine.PeakMemory(can)
    peak.look()
    assert peak.bytes() == 7_000
    assert ("resetPeakMemoryStats", (1,)) in cuda
    machine.give_back_memory(can)
    assert ("emptyCache", ()) in cuda


def test_on_a_gpu_orders_are_fixed_and_products_may_use_tf32(cuda: list[Any]) -> None:
    before = torch.get_float32_matmul_precision()
    try:
        capabilities(torch.device("cuda")).prepare()
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(
    ("capability", "multiples"),
    [((9, 0), (8, 8, 8)), ((8, 0), (8, 8, 8)), ((7, 5), (1, 8, 8)), ((6, 1), (1, 1, 1))],
)
def test_batches_are_padded_for_tensor_cores_alone(
    capability: tuple[int, int], multiples: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    can = Capabilities(torch.device("cuda", 0))
    assert tuple(can.padding_multiple(precision) for precision in ("no", "bf16", "fp16")) == multiples
    assert {HOST.padding_multiple(precision) for precision in ("no", "bf16")} == {1}


@pytest.mark.parametrize(("major", "precisions"), [(7, ("no", "fp16")), (8, ("no", "bf16", "fp16"))])
def test_bf16_that_a_gpu_only_imitates_is_not_one_of_its_precisions(
    major: int, precisions: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    class About:
        def __init__(self, index: int):
            asked.append(index)
            self.major = major

    class Current:
        def __init__(self, device: torch.device):
            monkeypatch.setattr(torch.cuda, "current_device", lambda: device.index)

        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device", Current)
    monkeypatch.setattr(torch.cuda, "get_device_properties", About)
    monkeypatch.setattr(torch.cuda, "_check_bf16_tensor_supported", lambda device: True)
    assert Capabilities(torch.device("cuda", 1)).precisions == precisions
    assert asked == [1], "of this device, not of the current one"


@pytest.mark.parametrize(
    ("error", "is_memory"),
    [
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 MiB"), True),
        (RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported later"), True),
        (torch.AcceleratorError("CUDA error: out of memory"), True),
        (RuntimeError("CUDA driver error: out of memory"), True),
        (RuntimeError("HIP out of memory. Tried to allocate 2.00 MiB"), True),
        (RuntimeError("HIP error: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 9.00 GB)"), True),
        (torch.AcceleratorError("CUDA error: an illegal memory access was encountered"), False),
        (RuntimeError("CUDA error: device-side assert triggered"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_memory_that_ran_out_is_told_from_other_errors(error: Exception, is_memory: bool) -> None:
    assert out_of_memory(error) == is_memory


def test_the_host_needs_none_of_it() -> None:
    HOST.prepare()
    HOST.enter_thread()
    HOST.release_memory()
    block = torch.ones(2)
    assert HOST.pin(block) is block
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.get_float32_matmul_precision() == "highest"
    assert (HOST.precisions, HOST.random_state(), HOST.total_bytes()) == (("no", "bf16"), None, None)
    peak = machine.PeakMemory(HOST)
    peak.look()
    assert peak.bytes() > 1_000_000


def test_no_other_module_asks_what_kind_of_device_it_has() -> None:
    asked = re.compile(r"torch\.(cuda|mps|xpu)\b|device\.type\b|is_cuda\b")
    allowed = {"capabilities.py", "devices.py", "gpus.py"}
    found = [
        f"{path}: {line.strip()}"
        for room in ("objectives", "study", "storage")
        for path in (ROOT / room).rglob("*.py")
        if path.name not in allowed
        for line in path.read_text().splitlines()
        if asked.search(line)
    ]
    assert not found
