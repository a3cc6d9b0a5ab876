"""The checks of a machine, in order, and what their answers mean.

Which ones there are follows from the machine's description; what runs in processes of its own is asked for
through `Ask`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from math import isnan
from pathlib import Path
from typing import Any

from study.diagnosis import disk_speed
from study.diagnosis.asking import Ask
from study.diagnosis.described import Machine, describe
from study.diagnosis.finding import Finding, failed
from study.diagnosis.probe import STATE_BYTES
from study.diagnosis.round_trip import check_storage
from study.workers.devices import VISIBLE, Share
from study.workers.process_group import group_environments

TOLERANCE = 1e-3
"""Between losses of ways that compute the same in another order, TF32 included."""
_BASE_LAYERS = 12
_REINSTALL = "install a torch build that fits the driver, or set CUDA_VISIBLE_DEVICES= (empty) to use the CPU"
_PRECISIONS = {"no": "float32", "bf16": "bf16", "fp16": "fp16"}


def run(machine: Machine, ask: Ask, cache: Path, storage: str) -> Iterator[Finding]:
    yield from describe(machine)
    answers: dict[str, dict[str, Any]] = {}
    with ThreadPoolExecutor(min(len(machine.places), max(1, machine.cores))) as threads:
        found = threads.map(
            lambda place: ask({"task": "device"}, [_environment(machine, (place,) if place else ())]),
            machine.places,
        )
        for place, answer in zip(machine.places, found, strict=True):
            answers[place] = answer
            yield from about_device(machine.name(place), answer, on_gpu=bool(place))
    first = answers[machine.places[0]]
    yield about_group(machine, ask, first)
    yield about_disk(cache, first)
    yield check_storage(storage)


def _environment(machine: Machine, places: tuple[str, ...], processes: int = 1) -> dict[str, str]:
    share = Share(devices=places, threads=max(1, machine.cores // processes))
    return {**os.environ, **share.environment(os.environ)}


def about_device(name: str, answer: Mapping[str, Any], *, on_gpu: bool) -> Iterator[Finding]:
    if "error" in answer:
        yield failed(f"trials on {name}", answer["error"], _REINSTALL if on_gpu else "report it as a bug")
        return
    for precision, trial in answer["trials"].items():
        yield _trial(f"trial on {name} in {_PRECISIONS[precision]}", precision, trial, answer, on_gpu)
    yield _cached_is_live(name, answer)


def _trial(
    check: str, precision: str, trial: Mapping[str, Any], answer: Mapping[str, Any], on_gpu: bool
) -> Finding:
    if "error" in trial:
        if precision == "no":
            return failed(check, trial["error"], _REINSTALL if on_gpu else "report it as a bug")
        return failed(check, trial["error"], "use another --mixed-precision on this device")
    details = {**trial, "products": answer["products"]}
    if on_gpu and str(trial["device"]).startswith("cpu"):
        return failed(check, f"it ran on {trial['device']}", _REINSTALL, **details)
    losses = trial["losses"]
    if not losses[-1] < losses[0]:
        return failed(check, f"the loss does not fall ({_arrow(losses)})", "report it as a bug", **details)
    speeds = {way: found.get("tflops") for way, found in answer["products"].items()}
    speed = speeds[precision]
    words = (
        f"{trial['device']}, loss {_arrow(losses)}, {trial['examples_per_second']:.0f} examples/s, "
        f"peak {trial['peak_memory_bytes'] / 2**20:.0f} MiB"
    )
    words += "" if speed is None else f", products at {speed:.3g} TFLOP/s"
    if speed is not None and speeds["no"] is not None and speed < 0.9 * speeds["no"]:
        step = f"prefer --mixed-precision no here, whose products reach {speeds['no']:.3g} TFLOP/s"
        return Finding(check=check, verdict="slow", found=words, next_step=step, details=details)
    return Finding(check=check, found=words, details=details)


def _cached_is_live(name: str, answer: Mapping[str, Any]) -> Finding:
    check = f"cached = live on {name}"
    cached, live = answer["trials"]["no"], answer["live"]
    for way in (cached, live):
        if "error" in way:
            return failed(check, way["error"], "see the trial above, or report it as a bug")
    return _compared(
        check, cached["losses"], live["losses"], "use --prefix live, and report it as a bug", "the live one's"
    )


def _compared(check: str, ours: list[float], theirs: list[float], step: str, words: str) -> Finding:
    # What is not a number is the worst of them, and would not be the greatest.
    apart = max((abs(a - b) for a, b in zip(ours, theirs, strict=True)), key=lambda d: (isnan(d), d))
    details = {"losses": ours, "other_losses": theirs}
    if not apart <= TOLERANCE:
        return failed(check, f"the losses are {apart:.2g} apart", step, **details)
    same = f"losses within {apart:.1g} of" if apart else "the same losses as"
    return Finding(check=check, found=f"{same} {words}", details=details)


def group_places(machine: Machine) -> tuple[str, ...]:
    """Two GPUs, where there are two that can train together; else none, and the CPU is used."""
    found = tuple(gpu.index for gpu in machine.gpus if not gpu.index.startswith("MIG-"))[:2]
    return found if len(found) == 2 else ()


def about_group(machine: Machine, ask: Ask, alone: Mapping[str, Any]) -> Finding:
    places = group_places(machine)
    where = f"GPU {' and '.join(places)}, over NCCL" if places else "the CPU, over gloo"
    check = f"two processes on {where}"
    current = _environment(machine, places, 2) | ({} if places else {VISIBLE: ""})
    answer = ask({"task": "group"}, group_environments(current, 2))
    step = (
        "run once with NCCL_DEBUG=INFO and look for the first error, or keep --processes-per-trial 1"
        if places
        else "check that 127.0.0.1 takes connections, or keep --processes-per-trial 1"
    )
    if "error" in answer:
        return failed(check, answer["error"], step)
    if answer["processes"] != 2:
        return failed(check, f"{answer['processes']} process took part", step, **answer)
    words = f"one process's, {answer['examples_per_second']:.0f} examples/s"
    live = alone.get("live", {})
    # Where the GPU is alone, the two ran on the CPU, whose numbers are as near.
    if "losses" not in live:
        return Finding(check=check, found=f"trained, loss {_arrow(answer['losses'])}", details=answer)
    return _compared(check, answer["losses"], live["losses"], step, words)


def about_disk(cache: Path, answer: Mapping[str, Any]) -> Finding:
    """From how many frozen layers of BERT-base on reading states is faster than computing them."""
    check = "cache folder"
    try:
        speed = disk_speed.measure(cache)
    except OSError as error:
        return failed(check, f"{cache}: {error.strerror}", "name a writable folder with --cache-dir")
    words = (
        f"{cache} writes {speed.write_bytes_per_second / 1e6:.0f} and reads "
        f"{speed.read_bytes_per_second / 1e6:.0f} MB/s, {speed.free_bytes / 2**30:.0f} GiB free"
    )
    layer = answer.get("layer", {}).get("seconds_per_token")
    details = {**asdict(speed), "layer_seconds_per_token": layer}
    if layer is None:
        return Finding(check=check, found=words, details=details)
    layers = max(1, -int(-STATE_BYTES / speed.read_bytes_per_second // layer))
    counted = f"{layers} frozen layer{'s' if layers > 1 else ''}"
    words += f"; reading states beats computing them from {counted} of BERT-base on"
    if layers > _BASE_LAYERS // 2:
        step = "use a faster disk with --cache-dir, or --prefix live"
        return Finding(check=check, verdict="slow", found=words, next_step=step, details=details)
    return Finding(check=check, found=words, details=details)


def _arrow(losses: list[float]) -> str:
    return f"{losses[0]:.3f} to {losses[-1]:.3f}"
