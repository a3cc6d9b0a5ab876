"""Trials on a pretend GPU whose memory runs out, or nearly; what each gave goes to FOLDER/found.json."""

from __future__ import annotations

import gc
import json
import os
from pathlib import Path
from typing import Any

import accelerate
import pretend_gpu
import pretend_trials

from objectives.capabilities import Capabilities
from objectives.fitting import DEVICE_WORKERS
from objectives.training.finetune import FineTuning

LAYERS = 8
WIDE = {"num_hidden_layers": LAYERS, "hidden_size": 128, "intermediate_size": 512}
"""So that the frozen layers weigh more than what a step holds."""
TRAINED = 6
"""The depth of most trials here."""
counted = pretend_gpu.counted


def make(folder: Path, name: str, way: str = "cached", train: int = 32) -> tuple[FineTuning, list[str]]:
    """With a cache of its own, and what it has to say."""
    gc.unfreeze()
    gc.collect()
    place = folder / name
    place.mkdir()
    objective = pretend_trials.make(
        place, "bert", pretend_gpu.NAME, way, dropout=True, train=train, batch=16, **WIDE
    )
    said: list[str] = []
    objective.cache.warn = said.append
    return objective, said


def run(objective: FineTuning, depth: int, limit: float | None = None) -> dict[str, Any]:
    counted.limit_bytes = None if limit is None else int(limit)
    try:
        return pretend_trials.attempt(objective, depth)
    finally:
        counted.limit_bytes = None


def weight_bytes(objective: FineTuning) -> int:
    return sum(p.numel() * p.element_size() for p in objective.model.parameters())


def peaks(folder: Path) -> dict[str, Any]:
    objective, _ = make(folder, "peaks")
    weights = weight_bytes(objective)
    return {"weights": weights, **{str(depth): run(objective, depth) for depth in (4, TRAINED, LAYERS)}}


def put_back(folder: Path) -> dict[str, Any]:
    """Room for the whole model, or for a trial, but not for both; then a trial that does not fit at all."""
    objective, said = make(folder, "put-back")
    plain = run(objective, TRAINED)
    whole = run(objective, 0)
    objective.pretrained.put_back()
    weights = counted.used_bytes
    tight = run(objective, TRAINED, limit=1.03 * max(plain["peak"], weights))
    objective._micro_batches._most[2] = 1
    failed = run(objective, 2, limit=1.03 * weights)
    objective._micro_batches._most.clear()
    after = run(objective, TRAINED)
    return {
        "plain": plain,
        "tight": tight,
        "failed": failed,
        "after": after,
        "whole": whole,
        "whole after": run(objective, 0),
        "said": said,
    }


def building(folder: Path) -> dict[str, Any]:
    expected, _ = make(folder, "built")
    plain = run(expected, LAYERS - 1)
    del expected
    objective, said = make(folder, "building")
    used = counted.used_bytes
    # Room for some of the examples at a time.
    halved = run(objective, LAYERS - 1, limit=used + 500_000)
    tokens = objective._splits.builder._tokens
    other, _ = make(folder, "not-built")
    failed = run(other, LAYERS - 1, limit=counted.used_bytes + 20_000)
    sizes = dict(other._micro_batches._most)
    return {
        "plain": plain,
        "halved": halved,
        "tokens": tokens,
        "failed": failed,
        "sizes": sizes,
        "after": run(other, LAYERS - 1),
        "said": said,
    }


def resident(folder: Path) -> dict[str, Any]:
    first, _ = make(folder, "copied", train=400)
    plain = run(first, TRAINED)
    del first
    objective, said = make(folder, "resident", "resident", train=400)
    states = run(objective, TRAINED)
    size = objective._frozen.device_bytes
    del objective
    again, said = make(folder, "crowded", "resident", train=400)
    # The limit comes only when the states are there: other processes take memory meanwhile.
    begin = again._frozen._placed

    def placed(found: Any) -> Any:
        stored = begin(found)
        counted.limit_bytes = plain["peak"] + size // 2
        return stored

    again._frozen._placed = placed  # type: ignore[method-assign]
    crowded = run(again, TRAINED)
    Capabilities.free_bytes = lambda self: 8 * size  # type: ignore[method-assign]
    shared = {}
    for workers in ("1", "4"):
        os.environ[DEVICE_WORKERS] = workers
        again._frozen.release()
        again._frozen._may_place, again._frozen._placed = True, begin  # type: ignore[method-assign]
        shared[workers] = run(again, TRAINED)["resident"]
    del os.environ[DEVICE_WORKERS]
    return {"plain": plain, "states": states, "crowded": crowded, "said": said, "shared": shared}


def refused(folder: Path) -> dict[str, Any]:
    """Of a device without bf16, as Accelerate sees it too."""
    for module in (accelerate.utils, accelerate.accelerator):
        module.is_bf16_available = lambda *_: False  # type: ignore[attr-defined]
    try:
        pretend_trials.make(folder, "bert", pretend_gpu.NAME, "cached", dropout=True, precision="bf16")
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {}


def main(folder: Path) -> None:
    scenes = (peaks, put_back, building, resident, refused)
    found = {scene.__name__: scene(folder) for scene in scenes}
    (folder / "found.json").write_text(json.dumps(found))
