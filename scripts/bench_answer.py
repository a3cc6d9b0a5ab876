"""Times the answer: a loop of Trainer over the grid, our grid, and our adaptive search.

One after the other, each from nothing to the operating point: a database, a cache, tokens and processes of
its own, start and report included. The data are a seeded subset of a task's, so that a run ends within
minutes.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from bench_training import Way  # noqa: E402

from study.cli.lists import integers, rates  # noqa: E402

EXAMPLES = """examples:
  python scripts/bench_answer.py --model ./minilm --data ./glue/sst2 --task sst2
  python scripts/bench_answer.py --model ./minilm --data ./glue/sst2 --task sst2 --ways grid,adaptive"""
FIXED = ("task", "model", "total_layers", "metric")
WAYS = {
    "loop": "Trainer at its best, in a loop over the grid",
    "grid": "elsa launch --protocol grid",
    "adaptive": "elsa launch --protocol adaptive",
}
SURE = 0.9


@dataclass(frozen=True, kw_only=True)
class Result:
    way: str
    seconds: float
    cpu_seconds: float
    """Of all its processes: what is left of a comparison on a machine that others use."""
    cells: int
    frozen_layers: int | None
    """The operating point."""
    relative: float | None
    """Its quality against the full model's."""
    likely: list[int]
    """The likeliest answers that together have 90 % of the probability."""


def subset(arguments: argparse.Namespace, folder: Path) -> None:
    """A seeded part of the task's data, as JSON Lines."""
    from objectives.data.task_data import load_data
    from objectives.tasks.definition import get_task

    task = get_task(arguments.task)
    data = load_data(task, arguments.data)
    folder.mkdir()
    name = task.validation[0]
    wanted = {"train": arguments.train_examples, name: arguments.validation_examples}
    for split, count in wanted.items():
        rows = data.train if split == "train" else data.validation[name]
        chosen = random.Random(1).sample(range(len(rows)), min(count, len(rows)))
        lines = [json.dumps({column: rows[i][column] for column in (*task.text, "label")}) for i in chosen]
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")


def grid(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    places = product(arguments.frozen_layers, arguments.learning_rates, range(1, arguments.seeds + 1))
    return [{"frozen_layers": depth, "learning_rate": rate, "seed": seed} for depth, rate, seed in places]


def run_loop(arguments: argparse.Namespace, data: Path, folder: Path) -> str:
    """Every cell with Trainer, in one process with all threads; the source of its trial table."""
    from objectives.pretrained.models import identify
    from objectives.tasks.definition import get_task

    model = str(Path(arguments.model).resolve())
    settings = {
        "task": arguments.task,
        "data": str(data),
        "model": model,
        "epochs": arguments.epochs,
        "batch_size": arguments.batch_size,
        "max_length": arguments.max_length,
        "cache": str(folder / "trainer"),
        "threads": arguments.threads,
    }
    layers, metric = identify(model).total_layers, get_task(arguments.task).metric
    way = Way("trainer", settings)
    table = folder / "loop.csv"
    with table.open("w", newline="") as file:
        out = csv.DictWriter(file, [*FIXED, "frozen_layers", "learning_rate", "seed", "score"])
        out.writeheader()
        for cell in grid(arguments):
            score = way.run(cell)["score"]
            fixed = dict(zip(FIXED, (arguments.task, "loop", layers, metric), strict=True))
            out.writerow({**fixed, **cell, "score": score})
    way.close()
    return str(table)


def run_study(protocol: str, arguments: argparse.Namespace, data: Path, folder: Path) -> str:
    """`elsa launch`, as a user starts it; the source of its trial table."""
    storage = f"sqlite:///{folder}/{protocol}.db"
    command = [sys.executable, "-m", "study.launch", "--task", arguments.task, "--protocol", protocol]
    command += ["--model", str(Path(arguments.model).resolve()), "--data", str(data), "--storage", storage]
    command += [f"--frozen-layers={','.join(map(str, arguments.frozen_layers))},"]
    command += [f"--learning-rates={','.join(map(str, arguments.learning_rates))},"]
    command += [f"--seeds={','.join(map(str, range(1, arguments.seeds + 1)))},"]
    command += ["--epochs", str(arguments.epochs), "--batch-size", str(arguments.batch_size)]
    command += ["--max-length", str(arguments.max_length), "--workers", str(arguments.workers)]
    command += ["--cache-dir", str(folder / f"cache-{protocol}"), "--out", str(folder / f"report-{protocol}")]
    threads = max(1, arguments.threads // arguments.workers)
    with (folder / f"{protocol}.log").open("w") as log:
        ended = subprocess.run(command, stdout=log, stderr=log, env=_environment(threads), check=False)
    if ended.returncode:
        raise SystemExit(f"{protocol} ended with {ended.returncode}: {_tail(folder / f'{protocol}.log')}")
    return storage


def _environment(threads: int) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(threads)}


def _tail(path: Path) -> str:
    return path.read_text().strip()[-1000:]


def cpu_seconds() -> float:
    """Of all processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def judge(way: str, seconds: float, cpu: float, source: str, threshold: float, folder: Path) -> Result:
    """The operating point, by the same analysis for all."""
    from study.trials.sources import read

    out = folder / f"{way}.json"
    command = [sys.executable, "-m", "study.operating_points", source, "--json", str(out)]
    subprocess.run(command, stdout=subprocess.DEVNULL, env=_environment(1), check=True)
    points = json.loads(out.read_text())["points"]
    point = next(one for one in points if abs(one["threshold"] - threshold) < 1e-9)
    table = read([source]).table
    return Result(
        way=way,
        seconds=round(seconds, 1),
        cpu_seconds=round(cpu, 1),
        cells=int((table["state"] == "COMPLETE").sum()),
        frozen_layers=point["frozen_layers"],
        relative=point["relative"],
        likely=likely({int(depth): share for depth, share in point["probability"].items()}),
    )


def likely(probability: dict[int, float]) -> list[int]:
    found: list[int] = []
    for depth in sorted(probability, key=lambda depth: -probability[depth]):
        if sum(probability[one] for one in found) >= SURE - 1e-9:
            break
        found.append(depth)
    return sorted(found)


def render(results: Sequence[Result]) -> str:
    lines = [f"{'':<46}{'seconds':>9}{'of CPUs':>9}{'cells':>7}  operating point"]
    slowest, busiest = (max(getattr(one, name) for one in results) for name in ("seconds", "cpu_seconds"))
    for one in results:
        answer = "none" if one.frozen_layers is None else f"{one.frozen_layers} frozen"
        kept = "" if one.relative is None else f", {one.relative:.1%} of the full model"
        lines.append(
            f"{WAYS[one.way]:<46}{one.seconds:>9.1f}{one.cpu_seconds:>9.1f}{one.cells:>7}  {answer}{kept}; "
            f"likely {one.likely}; {slowest / one.seconds:.1f}x, {busiest / one.cpu_seconds:.1f}x of CPUs"
        )
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True, help="a folder")
    parser.add_argument("--data", required=True, help="a folder or file of the task's data")
    parser.add_argument("--task", required=True)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--frozen-layers", type=integers, default=integers("0-6"))
    parser.add_argument("--learning-rates", type=rates, default=rates("2e-5,5e-5,1e-4"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--threshold", type=float, default=0.9)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--train-examples", type=int, default=200)
    parser.add_argument("--validation-examples", type=int, default=200)
    parser.add_argument("--workers", type=int, default=1, help="of our ways; the loop has one process")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of each way in all")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args(argv)
    os.environ["HF_HUB_OFFLINE"] = "1"
    results = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        subset(arguments, folder / arguments.task)
        ways: dict[str, Callable[[], str]] = {
            "loop": lambda: run_loop(arguments, folder / arguments.task, folder),
            "grid": lambda: run_study("grid", arguments, folder / arguments.task, folder),
            "adaptive": lambda: run_study("adaptive", arguments, folder / arguments.task, folder),
        }
        for name in arguments.ways.split(","):
            began, used = time.perf_counter(), cpu_seconds()
            source = ways[name]()
            seconds, cpu = time.perf_counter() - began, cpu_seconds() - used
            results.append(judge(name, seconds, cpu, source, arguments.threshold, folder))
            print(render(results[-1:]), flush=True)
    print(render(results))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps([asdict(one) for one in results], indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
