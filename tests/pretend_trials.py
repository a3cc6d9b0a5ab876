"""Tiny trials on the pretend GPU and on the CPU; what each gave is a JSON line of FOLDER/found.jsonl.

Every way and depth of these families, one trial of more than a hundred steps, and at last one on the device
as Accelerate names it, without an index.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pretend_gpu
import tiny
from accelerate.state import PartialState

from objectives import capabilities
from objectives.capabilities import Capabilities
from objectives.contract import Cell, Recipe
from objectives.data.task_data import load_data
from objectives.fitting import Fitting
from objectives.prefix.prefix_cache import PrefixCache
from objectives.prefix.states import DeviceStates
from objectives.tasks.definition import get_task
from objectives.training import finetune
from objectives.training.finetune import FineTuning

LAYERS = 2
DEPTHS = (0, 1, LAYERS)
LAYER_NAMES = {"distilbert": "n_layers", "xlnet": "n_layer", "gpt2": "n_layer"}
WAYS = {"cached": DEPTHS, "live": DEPTHS[1:], "uncached": DEPTHS[1:], "resident": DEPTHS[1:]}
"""Resident is cached, with the states in the device's memory."""
CHECK_STEPS = 100
BF16_FAMILIES = ("bert", "xlnet", "deberta-v2", "modernbert", "gpt2")


def make(
    folder: Path,
    family: str,
    device: str,
    way: str,
    *,
    dropout: bool,
    train: int = 8,
    batch: int = 4,
    fitting: Fitting | None = None,
    precision: Literal["no", "bf16"] = "no",
    **shape: int,
) -> FineTuning:
    changes = {LAYER_NAMES.get(family, "num_hidden_layers"): LAYERS, **shape}
    model = folder / f"{family}-{dropout}-{'-'.join(map(str, shape.values()))}"
    if not model.exists():
        tiny.save_model(family, model, dropout=dropout, **changes)
    os.environ["ACCELERATE_TORCH_DEVICE"] = device
    PartialState._reset_state()
    free = 10**9 if way == "resident" else None
    Capabilities.free_bytes = lambda self: free  # type: ignore[method-assign]
    return FineTuning(
        data=load_data(get_task("sst2"), tiny.save_data(folder / f"data-{train}", train, 8)),
        model_path=str(model),
        model_fingerprint="tiny",
        recipe=Recipe(
            epochs=1,
            batch_size=batch,
            max_length=16,
            prefix="live" if way == "live" else "cached",
            mixed_precision=precision,
        ),
        cache=PrefixCache(
            folder / f"cache-{device}-{dropout}", 0 if way == "uncached" else None, lambda _: None
        ),
        fitting=fitting,
    )


def trial(objective: FineTuning, depth: int) -> dict[str, Any]:
    """What a trial gave, and the read-backs of each of its steps; evaluations are part of theirs."""
    counts: list[int] = []
    objective._training.begin = objective._training.after_step = lambda run: counts.append(
        pretend_gpu.counted.reads.total()
    )
    record = objective(Cell(depth, 1e-3, 1), lambda point: None)
    return {
        "losses": [point.train_loss for point in record.curve],
        "score": record.score,
        "prefix": record.prefix,
        "resident": isinstance(objective._splits.states, DeviceStates),
        "ran_on": record.device,
        "reads": [after - before for before, after in pairwise(counts)],
        "devices": sorted({parameter.device.type for parameter in objective.model.parameters()}),
        "peak": record.peak_memory_bytes,
        "micro_batch": record.micro_batch,
    }


def attempt(objective: FineTuning, depth: int) -> dict[str, Any]:
    try:
        return trial(objective, depth)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


Tell = Callable[..., None]


def every_way(folder: Path, family: str, tell: Tell) -> None:
    plain = [("cpu", "cached", False), *((pretend_gpu.NAME, way, False) for way in WAYS)]
    dropped = [(pretend_gpu.NAME, way, True) for way in ("cached", "uncached")]
    for device, way, dropout in plain + dropped:
        objective = make(folder, family, device, way, dropout=dropout)
        for depth in DEPTHS[1:] if dropout else WAYS[way]:
            which = {"family": family, "device": device, "way": way, "dropout": dropout, "depth": depth}
            tell(attempt(objective, depth), **which)


def in_bf16(folder: Path, family: str, tell: Tell) -> None:
    for device, way in [("cpu", "cached"), *((pretend_gpu.NAME, way) for way in WAYS if way != "live")]:
        objective = make(folder, family, device, way, dropout=False, precision="bf16")
        for depth in WAYS[way]:
            which = {"family": f"{family} in bf16", "device": device, "way": way, "dropout": False}
            tell(attempt(objective, depth), **which, depth=depth)


def memory(folder: Path) -> dict[str, dict[str, Any]]:
    """One trial in several ways that differ in the memory that they hold."""
    saving = Fitting(gradient_checkpointing=True)

    def run(depth: int, way: str = "cached", fitting: Fitting | None = None) -> dict[str, Any]:
        gc.unfreeze()
        gc.collect()
        objective = make(
            folder, "bert", pretend_gpu.NAME, way, dropout=True, train=32, batch=16, fitting=fitting
        )
        first = objective.stack.layers[0]
        where: list[str] = []
        objective._steps.loss = looked(objective, lambda: where.append(next(first.parameters()).device.type))
        found = attempt(objective, depth)
        objective.pretrained.put_back()
        last = next(first.parameters())
        kept = objective.pretrained.pretrained(f"{objective.stack.layer_names[0]}.output.dense.weight")
        whole = last.device.type == pretend_gpu.NAME and (
            depth == 0 or bool((first.output.dense.weight.cpu() == kept).all())
        )
        return {**found, "first_layer_on": sorted(set(where)), "put_back": whole}

    found = {
        "cached at 1": run(1),
        "live at 1": run(1, "live"),
        "uncached at 1": run(1, "uncached"),
        "whole": run(0),
        "checkpointed": run(0, fitting=saving),
    }
    pretend_gpu.counted.limit_bytes = int(found["whole"]["peak"] * 0.75)
    try:
        return {**found, "limited": run(0)}
    finally:
        pretend_gpu.counted.limit_bytes = None


def looked(objective: FineTuning, look: Callable[[], None]) -> Callable[..., Any]:
    loss = objective._steps.loss

    def wrapped(*arguments: Any) -> Any:
        look()
        return loss(*arguments)

    return wrapped


def main(folder: Path, families: Sequence[str]) -> None:
    with (folder / "found.jsonl").open("w") as out:
        run(folder, families, lambda found, **which: print(json.dumps({**which, **found}), file=out))


def run(folder: Path, families: Sequence[str], tell: Tell) -> None:
    for family in families:
        every_way(folder, family, tell)
    for family in BF16_FAMILIES:
        in_bf16(folder, family, tell)
    for name, found in memory(folder).items():
        tell(found, family=name)
    long = make(folder, "bert", pretend_gpu.NAME, "cached", dropout=True, train=CHECK_STEPS + 5, batch=1)
    tell(attempt(long, LAYERS), family="long")
    for module in (capabilities, finetune):
        module.normalised = lambda device: device  # type: ignore[attr-defined]
    tell(attempt(make(folder, "bert", pretend_gpu.NAME, "live", dropout=True), 1), family="index-less")
