"""`elsa doctor`: on this machine, on the pretend GPU, and its text for machines that are only described."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import processes
import pytest

from study import doctor
from study.diagnosis import asking, checks, disk_speed
from study.diagnosis.described import Machine, this_machine
from study.diagnosis.disk_speed import DiskSpeed
from study.diagnosis.finding import Finding, exit_code, failed, summary, to_json
from study.diagnosis.round_trip import check_storage
from study.workers.gpus import Gpu, common_precision, describe, read_listing

ROOT = Path(__file__).parent.parent
LISTING = """0, GPU-aa, NVIDIA A100-SXM4-80GB, 81920, 8.0, 570.86.15
1, GPU-bb, NVIDIA A100-SXM4-80GB, 81920, 8.0, 570.86.15
"""
TWO = Machine(
    cores=32,
    memory_bytes=256 << 30,
    gpus=tuple(read_listing(LISTING)),
    system="Linux",
    versions={"python": "3.12.1", "torch": "2.13.0+cu126"},
)
DISK = DiskSpeed(write_bytes_per_second=1.8e9, read_bytes_per_second=3e9, free_bytes=500 << 30)
LOSSES = [0.705, 0.668]


def answer(device: str, **changes: Any) -> dict[str, Any]:
    trial = {
        "losses": LOSSES,
        "seconds": 0.8,
        "examples_per_second": 2100.0,
        "peak_memory_bytes": 60 << 20,
        "processes": 1,
        "device": device,
    }
    speeds = {"no": 110.0, "bf16": 240.0, "fp16": 240.0}
    return {
        "device": device,
        "trials": dict.fromkeys(speeds, trial),
        "live": {**trial, "losses": [0.705, 0.6681]},
        "products": {way: {"tflops": speed} for way, speed in speeds.items()},
        "layer": {"seconds_per_token": 4e-7},
        **changes,
    }


class Told:
    """Answers of probes on a machine that is not there; remembers who was asked."""

    def __init__(self, **changes: Any) -> None:
        self.asked: list[tuple[str, list[str]]] = []
        self.changes = changes

    def __call__(self, asked: Mapping[str, Any], environments: Sequence[Mapping[str, str]]) -> dict[str, Any]:
        given = [environment["CUDA_VISIBLE_DEVICES"] for environment in environments]
        self.asked.append((asked["task"], given))
        found = answer("NVIDIA A100-SXM4-80GB", **self.changes)
        return found if asked["task"] == "device" else {**found["live"], "processes": 2}


def lines(machine: Machine, ask: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(disk_speed, "measure", lambda folder: DISK)
    found = checks.run(machine, ask, Path("/scratch/elsa"), f"sqlite:///{tmp_path}/elsa.db")
    return [str(finding) for finding in found]


def test_the_text_for_a_machine_with_two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = Told()
    said = lines(TWO, ask, tmp_path, monkeypatch)
    gpu = "NVIDIA A100-SXM4-80GB"
    told = "{}, loss 0.705 to 0.668, 2100 examples/s, peak 60 MiB, products at {} TFLOP/s"
    described = f"{gpu}, 80 GiB, compute capability 8.0, driver 570.86.15; --mixed-precision auto is bf16"
    each = [
        f"ok     trial on GPU {{}} in {way}: {told.format(gpu, speed)}"
        for way, speed in (("float32", 110), ("bf16", 240), ("fp16", 240))
    ]
    assert said[:-1] == [
        "ok     versions: python 3.12.1, torch 2.13.0+cu126; Linux",
        "ok     host: 32 cores, 256 GiB of memory",
        f"ok     GPU 0: {described}",
        f"ok     GPU 1: {described}",
        *(line.format(0) for line in each),
        "ok     cached = live on GPU 0: losses within 0.0001 of the live one's",
        *(line.format(1) for line in each),
        "ok     cached = live on GPU 1: losses within 0.0001 of the live one's",
        "ok     two processes on GPU 0 and 1, over NCCL: the same losses as one process's, 2100 examples/s",
        "ok     cache folder: /scratch/elsa writes 1800 and reads 3000 MB/s, 500 GiB free; "
        "reading states beats computing them from 3 frozen layers of BERT-base on",
    ]
    assert said[-1].startswith(f"ok     database: SQLite in {tmp_path}: ")
    assert sorted(ask.asked) == [("device", ["0"]), ("device", ["1"]), ("group", ["0,1", "0,1"])]


def test_a_disk_that_loses_to_computing_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_speed, "measure", lambda folder: DISK)
    # 3,072 bytes at 3 GB/s take 1.02 microseconds.
    fast = checks.about_disk(Path("/c"), {"layer": {"seconds_per_token": 1.5e-7}})
    assert fast.verdict == "slow"
    assert "from 7 frozen layers of BERT-base on" in fast.found
    assert "--prefix live" in fast.next_step
    slow = checks.about_disk(Path("/c"), {"layer": {"seconds_per_token": 1e-4}})
    assert (slow.verdict, "from 1 frozen layer of" in slow.found) == ("ok", True)


def test_a_folder_that_cannot_be_written_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = checks.about_disk(tmp_path / "file", {})
    assert found.verdict == "failed"
    assert "--cache-dir" in found.next_step


@pytest.mark.parametrize(
    ("changes", "check", "words"),
    [
        ({"error": "exit codes [1]: no kernel image"}, "trials on GPU 0", "no kernel image"),
        ({"live": {"error": "RuntimeError: no"}}, "cached = live on GPU 0", "RuntimeError: no"),
        ({"live": {"losses": [0.705, 0.7]}}, "cached = live on GPU 0", "0.032 apart"),
        ({"live": {"losses": [0.705, float("nan")]}}, "cached = live on GPU 0", "nan apart"),
    ],
)
def test_what_is_wrong_fails_with_a_next_step(changes: dict[str, Any], check: str, words: str) -> None:
    found = list(checks.about_device("GPU 0", answer("A100", **changes), on_gpu=True))
    (bad,) = (finding for finding in found if finding.verdict == "failed")
    assert (bad.check, words in bad.found) == (check, True)
    assert bad.next_step


def test_a_gpu_that_torch_cannot_use_fails() -> None:
    found = list(checks.about_device("GPU 0", answer("cpu x8"), on_gpu=True))
    assert [finding.verdict for finding in found] == ["failed"] * 3 + ["ok"]
    assert "it ran on cpu x8" in found[0].found


def test_a_precision_slower_than_float32_is_slow() -> None:
    products = {"no": {"tflops": 10.0}, "bf16": {"tflops": 2.0}, "fp16": {"tflops": 20.0}}
    found = list(checks.about_device("GPU 0", answer("P100", products=products), on_gpu=True))
    assert [finding.verdict for finding in found] == ["ok", "slow", "ok", "ok"]
    assert "--mixed-precision no" in found[1].next_step


def test_one_gpu_is_no_group_and_mixed_kinds_have_no_common_precision() -> None:
    (one, _) = TWO.gpus
    assert checks.group_places(Machine(cores=4, memory_bytes=1, gpus=(one,))) == ()
    assert checks.group_places(TWO) == ("0", "1")
    slices = tuple(replace(one, index=f"MIG-{number}") for number in range(2))
    assert checks.group_places(Machine(cores=4, memory_bytes=1, gpus=slices)) == ()
    old = Gpu(index="1", name="Tesla T4", memory_bytes=15 << 30, capability=(7, 5))
    (*_, found) = checks.describe(Machine(cores=4, memory_bytes=1, gpus=(one, old)))
    assert (found.check, found.verdict) == ("GPUs", "slow")
    assert "CUDA_VISIBLE_DEVICES" in found.next_step
    assert (common_precision([one, old]), common_precision([one]), common_precision([])) == (
        "no",
        "bf16",
        "no",
    )


def test_the_summary_the_exit_code_and_json() -> None:
    fine, bad = Finding(check="a", found="x"), failed("b", "y", "do z", number=3)
    assert (exit_code([fine]), exit_code([fine, bad])) == (0, 1)
    assert summary([fine, Finding(check="c", verdict="slow", found="x")]).endswith("1 of them slowly")
    assert summary([fine, bad]).startswith("1 of 2 checks failed")
    found = json.loads(to_json([fine, bad]))
    assert found["failed"] is True
    assert found["findings"][1] == {
        "check": "b",
        "verdict": "failed",
        "found": "y",
        "next_step": "do z",
        "details": {"number": 3},
    }


def test_the_database_is_left_as_it_was(tmp_path: Path) -> None:
    from storage.database import Database

    url = f"sqlite:///{tmp_path}/elsa.db"
    assert check_storage(url).verdict == "ok"
    assert list(tmp_path.iterdir()) == []
    missing = check_storage(f"sqlite:///{tmp_path}/no/elsa.db")
    assert (missing.verdict, "no" in missing.found) == ("failed", True)
    refused = check_storage("postgresql://nobody@127.0.0.1:1/none")
    assert (refused.verdict, refused.check) == ("failed", "database")
    database = Database.open(url, create=True)
    database.create_study("kept", {})
    database.create_study("gone", {})
    database.delete_study("gone")
    assert database.study_names() == ["kept"]
    database.close()


@pytest.mark.slow
def test_the_doctor_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(asking, "LIMIT_SECONDS", dict.fromkeys(asking.LIMIT_SECONDS, 600.0))
    out = tmp_path / "doctor.json"
    code = doctor.main(
        [f"--cache-dir={tmp_path}/cache", f"--storage=sqlite:///{tmp_path}/elsa.db", f"--json={out}"]
    )
    said = capfd.readouterr().out
    found = json.loads(out.read_text())["findings"]
    assert code == 0, said
    assert [finding["check"] for finding in found] == [
        "versions",
        "host",
        "trial on CPU in float32",
        "trial on CPU in bf16",
        "cached = live on CPU",
        "two processes on the CPU, over gloo",
        "cache folder",
        "database",
    ]
    assert said.count("\n") == len(found) + 1


def probe_pretend_gpu(out: Path) -> None:
    import pretend_gpu  # noqa: F401 - makes the device

    from study.diagnosis.probe import about_device

    out.write_text(json.dumps(about_device(["no"], 64)))


@pytest.mark.slow
def test_the_probe_finds_on_a_device_what_it_finds_on_the_cpu(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    assert processes.run(probe_pretend_gpu, out, ACCELERATE_TORCH_DEVICE="pretend") == 0
    found = json.loads(out.read_text())
    said = list(checks.about_device("GPU 0", found, on_gpu=True))
    assert found["trials"]["no"]["device"] == "a pretend GPU"
    assert [finding.verdict for finding in said if "float32" in finding.check] == ["ok"], said
    assert said[-1].check == "cached = live on GPU 0"
    assert said[-1].verdict == "ok", said[-1]


def test_gpus_are_described_as_nvidia_smi_lists_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    names = "GPU 0: A100 (UUID: GPU-aa)\\nGPU 1: A100 (UUID: GPU-bb)\\n"
    program.write_text(f'#!/bin/sh\n[ "$1" = -L ] && printf "{names}" || printf "{LISTING}"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = {"PATH": os.environ["PATH"]}
    assert describe(found) == list(TWO.gpus)
    assert describe({**found, "CUDA_VISIBLE_DEVICES": "1"}) == [TWO.gpus[1]]
    assert describe({**found, "CUDA_VISIBLE_DEVICES": "GPU-aa"}) == [TWO.gpus[0]]
    assert describe({**found, "ACCELERATE_USE_CPU": "true"}) == []


def test_probes_that_hang_take_no_longer_than_all_checks_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert max(asking.LIMIT_SECONDS.values()) < 110, "a disk and a database come after them"
    hangs = tmp_path / "hangs"
    hangs.write_text("#!/bin/sh\nexec sleep 60\n")
    hangs.chmod(0o755)
    monkeypatch.setattr(asking.sys, "executable", str(hangs))
    monkeypatch.setattr(asking, "LIMIT_SECONDS", {"device": 0.5, "group": 0.8})
    began, ask = time.monotonic(), asking.asker()
    assert ask({"task": "device"}, [os.environ])["error"].startswith("no answer after")
    assert ask({"task": "group"}, [os.environ, os.environ])["error"].startswith("no answer after")
    assert time.monotonic() - began < 3


SAID = """#!/bin/sh
echo "$CUDA_VISIBLE_DEVICES|$HIP_VISIBLE_DEVICES|$CUDA_DEVICE_ORDER" >> {asked}
echo '[{found}]'
"""
ONE = '{"index": "0", "name": "MI250", "memory_bytes": 68719476736, "capability": [9, 0], "rocm": true}'


def torch_that_says(found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In place of Python; what it was asked with is a line of the file."""
    python, asked = tmp_path / "python", tmp_path / "asked"
    python.write_text(SAID.format(asked=asked, found=found))
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    for name in ("HIP_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)
    return asked


@pytest.mark.parametrize("variable", ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"])
def test_without_nvidia_smi_gpus_keep_the_names_that_they_were_chosen_by(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch_that_says(f"{ONE}, {ONE}", tmp_path, monkeypatch)
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv(variable, "2,3")
    assert this_machine().places == ("2", "3"), "not 0 and 1, which are somebody else's"
    assert [gpu.precision for gpu in this_machine().gpus] == ["bf16", "bf16"]


def test_slices_are_described_by_torch_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    smi = tmp_path / "nvidia-smi"
    listed = (
        "GPU 0: A100 (UUID: GPU-aa)\\n  MIG 1g.5gb Device 0: (UUID: MIG-1)\\n"
        "  MIG 1g.5gb Device 1: (UUID: MIG-2)\\nGPU 1: A100 (UUID: GPU-bb)\\n"
    )
    smi.write_text(f'#!/bin/sh\n[ "$1" = -L ] && printf "{listed}" || printf "{LISTING}"\n')
    smi.chmod(0o755)
    slice_ = ONE.replace("MI250", "A100 MIG 1g.5gb").replace("68719476736", "5368709120")
    asked = torch_that_says(slice_.replace("true", "false"), tmp_path, monkeypatch)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    path = {"PATH": os.environ["PATH"]}
    found = describe(path)
    assert [(gpu.index, gpu.memory_bytes >> 30, gpu.precision) for gpu in found] == [
        ("MIG-1", 5, "bf16"),
        ("MIG-2", 5, "bf16"),
        ("1", 80, "bf16"),
    ]
    assert asked.read_text().splitlines() == ["MIG-1||PCI_BUS_ID", "MIG-2||PCI_BUS_ID"]
    assert capsys.readouterr().err == ""
    (tmp_path / "python").write_text("#!/bin/sh\nexit 1\n")
    assert len(describe({**path, "CUDA_VISIBLE_DEVICES": "MIG-1,1"})) == 1
    said = capsys.readouterr().err
    assert "1 of 2 GPUs here do not say what they are" in said
    assert "--memory-limit" in said
