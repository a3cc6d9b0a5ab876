"""Which GPUs each worker gets, tried without any GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from objectives.contract import UsageError
from study.workers import devices
from study.workers.devices import Share, plan, visible

EIGHT = [str(number) for number in range(8)]
SLICES = ["MIG-aaa", "MIG-bbb", "MIG-ccc"]

WHOLE_GPUS = """GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5e4e6a2d-0000-1111-2222-333344445555)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-6f4e6a2d-0000-1111-2222-333344445555)
"""
SLICED = """GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5e4e6a2d-0000-1111-2222-333344445555)
  MIG 3g.20gb     Device  0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)
  MIG 3g.20gb     Device  1: (UUID: MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-6f4e6a2d-0000-1111-2222-333344445555)
"""


def given(shares: list[Share]) -> list[str]:
    return [",".join(share.devices) for share in shares]


@pytest.mark.parametrize(
    ("devices", "options", "expected"),
    [
        ([], {}, [""]),
        ([], {"workers": 3}, ["", "", ""]),
        ([], {"workers": 0}, []),
        ([], {"workers_per_gpu": 4}, [""]),
        ([], {"processes_per_trial": 4}, [""]),
        (["0"], {}, ["0"]),
        (["0"], {"workers": 3}, ["0", "0", "0"]),
        (["0"], {"workers_per_gpu": 2}, ["0", "0"]),
        (["0", "1"], {}, ["0", "1"]),
        (["0", "1"], {"workers": 1}, ["0"]),
        (["0", "1"], {"workers": 5}, ["0", "1", "0", "1", "0"]),
        (["0", "1"], {"workers_per_gpu": 2}, ["0", "1", "0", "1"]),
        (["0", "1"], {"processes_per_trial": 2}, ["0,1"]),
        (["0", "1"], {"processes_per_trial": 2, "workers": 2}, ["0,1", "0,1"]),
        (EIGHT, {}, EIGHT),
        (EIGHT, {"processes_per_trial": 2}, ["0,1", "2,3", "4,5", "6,7"]),
        (EIGHT, {"processes_per_trial": 3}, ["0,1,2", "3,4,5"]),
        (EIGHT, {"processes_per_trial": 4, "workers_per_gpu": 2}, ["0,1,2,3", "4,5,6,7"] * 2),
        (["3", "5"], {}, ["3", "5"]),
        (SLICES, {}, SLICES),
        (SLICES, {"workers": 4}, [*SLICES, "MIG-aaa"]),
    ],
)
def test_workers_get_their_gpus(devices: list[str], options: dict[str, int], expected: list[str]) -> None:
    assert given(plan(devices, **options)) == expected


def test_workers_know_how_many_share_their_gpu() -> None:
    assert [share.workers for share in plan(["0", "1"], workers=5)] == [3, 2, 3, 2, 3]
    assert [share.workers for share in plan([], workers=2)] == [1, 1]


@pytest.mark.parametrize("kind", ["mps", "xpu"])
def test_several_processes_are_refused_where_they_would_leave_the_device(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python, node = tmp_path / "python", tmp_path / "renderD128"
    python.write_text(f"#!/bin/sh\necho {kind}\n")
    python.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    monkeypatch.setattr(devices.sys, "executable", str(python))
    monkeypatch.setattr(devices, "DEVICE_NODES", ())
    monkeypatch.setattr(devices, "INTEL_NODES", (str(node),))
    devices.check_group(2, {})
    node.touch()
    with pytest.raises(UsageError, match=f"--processes-per-trial 2: on {kind} a trial runs in one process"):
        devices.check_group(2, {})
    devices.check_group(1, {})
    for chosen in (
        {"ACCELERATE_USE_CPU": "true"},
        {"CUDA_VISIBLE_DEVICES": ""},
        {"CUDA_VISIBLE_DEVICES": "0,1"},
    ):
        devices.check_group(2, chosen)


def test_a_group_needs_a_gpu_per_process() -> None:
    with pytest.raises(UsageError, match=r"--processes-per-trial 4.*shows 2 \(CUDA_VISIBLE_DEVICES=0,1\)"):
        plan(["0", "1"], processes_per_trial=4)
    with pytest.raises(UsageError, match="MIG"):
        plan(SLICES, processes_per_trial=2)


@pytest.mark.parametrize(
    ("cores", "workers", "processes", "threads"), [(2, 1, 1, 2), (8, 2, 2, 2), (8, 3, 1, 2), (2, 4, 2, 1)]
)
def test_cpu_threads_are_divided_among_all_processes(
    cores: int, workers: int, processes: int, threads: int
) -> None:
    shares = plan([], workers=workers, processes_per_trial=processes, cores=cores)
    assert [share.threads for share in shares] == [threads] * workers


def test_environment_of_a_worker() -> None:
    share = Share(devices=("2", "3"), threads=4)
    order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "GOMP_SPINCOUNT": "10000"}
    chosen = {"CUDA_VISIBLE_DEVICES": "2,3"}
    assert share.environment({}) == chosen | order | {"OMP_NUM_THREADS": "4"}
    assert share.environment({"OMP_NUM_THREADS": "7"}) == chosen | order
    kept = {"OMP_NUM_THREADS": "7", "GOMP_SPINCOUNT": "7", "CUDA_DEVICE_ORDER": "FASTEST_FIRST"}
    assert share.environment(kept) == chosen
    hip = {"HIP_VISIBLE_DEVICES": "0,1,2,3"}
    assert share.environment({**kept, **hip}) == chosen | {"HIP_VISIBLE_DEVICES": "2,3"}
    crowded = Share(devices=("0",), workers=3).environment(kept)
    assert crowded == {"CUDA_VISIBLE_DEVICES": "0", "ELSA_DEVICE_WORKERS": "3"}
    threads = {"OMP_NUM_THREADS": "2", "GOMP_SPINCOUNT": "10000"}
    assert Share(threads=2).environment({"CUDA_VISIBLE_DEVICES": ""}) == threads


@pytest.mark.parametrize(
    ("environment", "listing", "expected"),
    [
        ({}, None, []),
        ({}, "", []),
        ({}, WHOLE_GPUS, ["0", "1"]),
        (
            {},
            SLICED,
            ["MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f", "MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb", "1"],
        ),
        ({"CUDA_VISIBLE_DEVICES": ""}, WHOLE_GPUS, []),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, WHOLE_GPUS, []),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, None, []),
        ({"CUDA_VISIBLE_DEVICES": "1"}, WHOLE_GPUS, ["1"]),
        ({"CUDA_VISIBLE_DEVICES": "3, 1"}, None, ["3", "1"]),
        ({"CUDA_VISIBLE_DEVICES": "0,-1,1"}, None, ["0"]),
        ({"CUDA_VISIBLE_DEVICES": "0,0,1"}, None, ["0"]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-5e4e6a2d,MIG-bbb"}, None, ["GPU-5e4e6a2d", "MIG-bbb"]),
        ({"HIP_VISIBLE_DEVICES": "2,3"}, None, ["2", "3"]),
        ({"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "2,3"}, None, []),
        ({"CUDA_VISIBLE_DEVICES": "0", "ACCELERATE_USE_CPU": "true"}, WHOLE_GPUS, []),
    ],
)
def test_gpus_that_a_process_may_use(
    environment: dict[str, str], listing: str | None, expected: list[str]
) -> None:
    assert visible(environment, listing) == expected


def test_without_nvidia_smi_torch_is_asked_where_there_is_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    node, asked = tmp_path / "kfd", tmp_path / "asked"
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\ntouch {asked}\necho 2\n")
    python.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    monkeypatch.setattr(devices.sys, "executable", str(python))
    monkeypatch.setattr(devices, "DEVICE_NODES", (str(node),))
    assert devices.find({}) == []
    node.touch()
    assert devices.find({"CUDA_VISIBLE_DEVICES": "1"}) == ["1"]
    assert not asked.exists(), "a machine without GPUs, or a person's choice, must not wait for torch"
    assert devices.find({}) == ["0", "1"]
    assert devices.find({"ACCELERATE_USE_CPU": "true"}) == []
    python.write_text("#!/bin/sh\nexit 1\n")
    assert devices.find({"ACCELERATE_USE_CPU": "true"}) == []
    assert capsys.readouterr().err == ""
    assert devices.find({}) == []
    assert "has a GPU, but neither nvidia-smi nor torch can use it" in capsys.readouterr().err


def test_cores_of_a_container_and_of_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quota = tmp_path / "cpu.max"
    assert devices._quota(quota) is None
    for text, expected in (("max 100000\n", None), ("250000 100000\n", 2), ("50000 100000\n", 1)):
        quota.write_text(text)
        assert devices._quota(quota) == expected
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "1")
    assert devices.cores() == 1


def test_looking_for_gpus_imports_no_torch() -> None:
    program = (
        "import sys; from study.workers import devices; devices.find(); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
