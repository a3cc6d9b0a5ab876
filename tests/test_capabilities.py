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
from objectives.capabilities import Capabilities, capabilities, normalised
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
