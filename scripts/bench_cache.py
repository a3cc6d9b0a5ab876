"""Counts what the prefix cache costs a grid: builds, layer passes over the data, and bytes held, by budget.

Real workers claim the cells of a study in a real database and open the states of each in a real cache; with
--train they train it too, and the seconds are counted. Everything is counted from outside: layers by hooks,
bytes by the blocks of the files that have a name and of those that are only mapped.
"""

from __future__ import annotations

import argparse
import inspect
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if "--part" not in sys.argv:  # A part runs whatever version PYTHONPATH names.
    sys.path.insert(0, str(ROOT))

EXAMPLES = """examples:
  python scripts/bench_cache.py
  python scripts/bench_cache.py --checkout ../before    another version beside this one
  python scripts/bench_cache.py --train --workers 1,2 --budgets 1.2,8 --cells 3"""
LOOK_SECONDS = 0.02


@dataclass
class Counted:
    version: str
    budget: float
    """In depths; infinite where there is room for all."""
    workers: int
    cells: int
    builds: int
    layer_passes: float
    uncached: int
    held: float
    """The most that was on the disk at any moment, in depths."""
    seconds: float


# --- a worker ----------------------------------------------------------------------------------------------


def _import(path: str, earlier: str) -> Any:
    """A module of objectives; earlier versions (`--checkout`) had it under another name."""
    from importlib import import_module

    try:
        return import_module(f"objectives.{path}")
    except ModuleNotFoundError:
        return import_module(f"objectives.{earlier}")


def make_objective(settings: dict[str, Any]) -> Any:
    from objectives.contract import Recipe

    FineTuning = _import("training.finetune", "finetune").FineTuning
    PrefixCache = _import("prefix.prefix_cache", "prefix").PrefixCache
    load_data = _import("data.task_data", "data").load_data
    get_task = _import("tasks.definition", "tasks").get_task
    return FineTuning(
        data=load_data(get_task("sst2"), settings["data"]),
        model_path=settings["model"],
        model_fingerprint="bench",
        recipe=Recipe(epochs=settings["epochs"], batch_size=16, max_length=64),
        cache=PrefixCache(Path(settings["cache"]), settings["bytes"], lambda message: None),
    )


class Passes:
    """Passes of all examples through a layer, summed over the layers, while states are made ready."""

    def __init__(self, objective: Any):
        self.total, self.uncached = 0.0, 0
        names = [*objective.task.validation, "train"]
        self._tokens = sum(int(objective._splits[name].encoded.offsets[-1]) for name in names)
        self._seen, self._load, self._within = 0, objective._frozen.load, False
        objective._frozen.load = self.load
        for layer in objective.stack.layers:
            layer.register_forward_pre_hook(self._see, with_kwargs=True)
        capture = objective._replay.capturing
        objective._replay.capturing = lambda *given: self._real_tokens(capture(*given))

    def _real_tokens(self, forward: Any) -> Any:
        """Padding is no pass of the data."""
        from contextlib import contextmanager

        @contextmanager
        def entered() -> Any:
            with forward as run:

                def counting(model: Any, inputs: Any) -> None:
                    self._seen = int(inputs["attention_mask"].sum())
                    run(model, inputs)

                yield counting

        return entered()

    def _see(self, layer: Any, _args: Any, _kwargs: Any) -> None:
        if self._within and "forward" not in vars(layer):
            self.total += self._seen / self._tokens

    def load(self, depth: int) -> Any:
        self._within = True
        try:
            how = self._load(depth)
        finally:
            self._within = False
        self.uncached += how == "uncached"
        return how


class Worker:
    """Does what it is asked to, line by line, so that Python and torch are loaded once per version."""

    def __init__(self) -> None:
        import torch
        import transformers

        transformers.utils.logging.set_verbosity_error()
        torch.set_num_threads(1)
        self.objective: Any = None

    def plan(self, settings: dict[str, Any]) -> dict[str, Any]:
        cells = plan(settings["storage"], settings["depths"], settings["cells"])
        return {"cells": cells, "bytes": depth_bytes({**settings, "bytes": None})}

    def prepare(self, settings: dict[str, Any]) -> dict[str, Any]:
        self.objective = make_objective(settings)
        self.passes = Passes(self.objective)
        return {}

    def work(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Until no cell waits."""
        from objectives.contract import TrialRecord
        from storage.database import Database

        study, objective = Database.open(settings["storage"]).study("bench"), self.objective
        near = getattr(objective, "nearest", None)
        wanted = getattr(study, "waiting_depths", None)
        options: dict[str, Any] = {}
        if wanted is not None:
            from objectives.contract import Attempt

            objective._frozen.wanted = wanted
            options["attempt"] = Attempt(wanted=wanted)
        while (claim := study.claim("bench", near()) if near else study.claim("bench")) is not None:
            if settings["train"]:
                claim.finish(objective(claim.cell, lambda point: None, **options))
            else:
                objective._frozen.load(claim.cell.frozen_layers)
                claim.finish(TrialRecord(metric="accuracy", score=0.5))
        return {"passes": self.passes.total, "uncached": self.passes.uncached}


def serve() -> None:
    worker = Worker()
    for line in sys.stdin:
        name, settings = json.loads(line)
        print("answer", json.dumps(getattr(worker, name)(settings)), flush=True)


# --- the bench ---------------------------------------------------------------------------------------------


def plan(url: str, depths: list[int], cells: int) -> int:
    from objectives.contract import Cell
    from storage.database import Database

    rates, seeds = [1e-5, 2e-5, 3e-5], list(range(1, cells // 3 + 1))
    space: dict[str, Any] = {"frozen_layers": depths, "learning_rate": rates, "seed": seeds}
    study = Database.open(url, create=True).create_study("bench", {"spec": "{}"})
    wanted = [Cell(*place) for place in product(depths, rates, seeds)]
    more: dict[str, Any] = (
        {"max_retries": 1} if "max_retries" in inspect.signature(study.plan).parameters else {}
    )
    return study.plan(lambda outcomes: wanted, space=space, **more)


def depth_bytes(settings: dict[str, Any]) -> int:
    objective = make_objective(settings)
    names = [*objective.task.validation, "train"]
    tokens = sum(int(objective._splits[name].encoded.offsets[-1]) for name in names)
    return tokens * int(objective.model.config.hidden_size) * 4


def really_held(folder: Path, pids: list[int]) -> int:
    """Bytes on the disk of the files of states that have a name, and of removed ones that a worker maps."""
    total = 0
    for ending in ("states", "partial", "part"):
        for path in folder.glob(f"*.{ending}"):
            try:
                total += path.stat().st_blocks * 512
            except FileNotFoundError:
                continue
    gone: dict[str, int] = {}
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            if str(folder) in line and line.endswith("(deleted)"):
                first, _, last = line.split()[0].partition("-")
                gone[line.split()[4]] = int(last, 16) - int(first, 16)
    return total + sum(gone.values())


class Process:
    """A worker of one version."""

    def __init__(self, checkout: Path):
        environment = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
        command, pipe = [sys.executable, str(Path(__file__).resolve()), "--part"], subprocess.PIPE
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, env=environment, cwd=checkout
        )
        self.pid = self._process.pid

    def ask(self, name: str, settings: dict[str, Any]) -> Future[dict[str, Any]]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, settings]) + "\n")
        self._process.stdin.flush()
        return _READERS.submit(self._answer)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("answer "):
                found: dict[str, Any] = json.loads(line.removeprefix("answer "))
                return found
        raise SystemExit(f"a worker ended with exit code {self._process.wait()}")

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


_READERS = ThreadPoolExecutor()


def measure(checkout: Path, running: Sequence[Process], settings: dict[str, Any], budget: float) -> Counted:
    folder = Path(settings["folder"]) / f"{checkout.name}-{budget:g}-{len(running)}"
    folder.mkdir()
    settings = {**settings, "cache": str(folder / "cache"), "storage": f"sqlite:///{folder}/study.db"}
    planned = running[0].ask("plan", settings).result()
    settings["bytes"] = None if math.isinf(budget) else int(budget * planned["bytes"])
    for ready in [process.ask("prepare", settings) for process in running]:
        ready.result()
    most, began = 0, time.perf_counter()
    asked = [process.ask("work", settings) for process in running]
    while not all(answer.done() for answer in asked):
        most = max(most, really_held(folder / "cache", [process.pid for process in running]))
        time.sleep(LOOK_SECONDS)
    seconds = time.perf_counter() - began
    answers = [answer.result() for answer in asked]
    log = folder / "cache" / "builds.log"
    lines = log.read_text().splitlines() if log.exists() else []
    return Counted(
        version="now" if checkout == ROOT else checkout.name,
        budget=budget,
        workers=len(running),
        cells=planned["cells"],
        # Versions that keep splits apart build each of the two by itself.
        builds=len(lines) // (1 if any((checkout / "objectives").rglob("build_pass.py")) else 2),
        layer_passes=round(sum(answer["passes"] for answer in answers), 1),
        uncached=sum(answer["uncached"] for answer in answers),
        held=round(most / planned["bytes"], 2),
        seconds=round(seconds, 1),
    )


HEAD = (
    "| version | budget (depths) | workers | builds | layer passes | cells without cache "
    "| most held (depths) |"
)


def render(found: list[Counted], train: bool) -> str:
    lines = [HEAD + (" seconds |" if train else ""), "|---" * (8 if train else 7) + "|"]
    for one in found:
        budget = "unlimited" if math.isinf(one.budget) else f"{one.budget:g}"
        cells = [one.version, budget, one.workers, one.builds, f"{one.layer_passes:.1f}"]
        cells += [f"{one.uncached} of {one.cells}", f"{one.held:.2f}"]
        lines.append("| " + " | ".join(map(str, cells + ([one.seconds] if train else []))) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--frozen-layers", default="6-12")
    parser.add_argument("--cells", type=int, default=15, help="of each depth: three rates and seeds (15)")
    parser.add_argument("--budgets", default="1.2,2,8,inf", help="in depths (1.2,2,8,inf)")
    parser.add_argument("--workers", default="1", help="that share the cache (1)")
    parser.add_argument("--checkout", action="append", default=[], help="another version's folder")
    parser.add_argument("--train", action="store_true", help="train the cells, which takes its time")
    parser.add_argument("--epochs", type=float, default=2, help="of --train (2)")
    parser.add_argument("--width", type=int, default=128, help="of the random 12-layer BERT (128)")
    parser.add_argument("--train-examples", type=int, default=400, help="of the made-up data (400)")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--part", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        serve()
        return
    from bench_training import make_data, make_model

    from study.cli.lists import integers

    found: list[Counted] = []
    with tempfile.TemporaryDirectory(prefix="elsa-bench-") as temporary:
        folder = Path(temporary)
        settings = {
            "folder": temporary,
            "model": make_model(folder / "model", 12, arguments.width),
            "data": make_data(
                folder / "data", "cola", arguments.train_examples, arguments.train_examples // 4
            )[1],
            "depths": list(integers(arguments.frozen_layers)),
            "cells": arguments.cells,
            "train": arguments.train,
            "epochs": arguments.epochs,
        }
        budgets = [float(budget) for budget in arguments.budgets.split(",")]
        for checkout in [*(Path(one).resolve() for one in arguments.checkout), ROOT]:
            counts = integers(arguments.workers)
            workers = [Process(checkout) for _ in range(max(counts))]
            for budget, count in product(budgets, counts):
                found.append(measure(checkout, workers[:count], settings, budget))
                print(found[-1], file=sys.stderr, flush=True)
            for worker in workers:
                worker.end()
    print(render(found, arguments.train))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps([asdict(one) for one in found], indent=1))


if __name__ == "__main__":
    main()
