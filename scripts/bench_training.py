"""Times one study run five ways, side by side: ours cached and live, Trainer twice, the authors' way.

The ways take turns cell by cell, each in a process of its own, so that a machine whose speed drifts slows
all of them alike. Without --model and --data it makes a random BERT and texts of MRPC-like or CoLA-like
lengths: seconds do not depend on what the words mean, scores do.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from bench_ways import USUAL, WAYS  # noqa: E402

from study.cli.lists import integers, rates  # noqa: E402

EXAMPLES = """examples:
  python scripts/bench_training.py
  python scripts/bench_training.py --lengths cola --ways cached,trainer,authors
  python scripts/bench_training.py --ways cached,compiled --frozen-layers 0,6
  python scripts/bench_training.py --model ./my-bert --data ./mrpc --task mrpc --json bench.json"""
SHARED = ("cached", "compiled")
"""Ways in which the rates of a depth share work; the cells of the others cost the same at every rate."""


class Way:
    """A process that runs cells one way when asked to."""

    def __init__(self, name: str, settings: dict[str, Any]):
        self.name = name
        script = str(ROOT / "scripts" / "bench_ways.py")
        self._process = subprocess.Popen(
            [sys.executable, script, name, json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        self.mean_length: float = self._answer()["mean_length"]

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name}: its process ended with {self._process.wait()}")
        return json.loads(line)

    def run(self, cell: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(cell) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def matmul_peak(threads: int, seconds: float = 2.0) -> float:
    """The best rate of large float32 matrix products here, in FLOP/s."""
    import torch

    torch.set_num_threads(threads)
    size, best = 2048, 0.0
    left, right = torch.randn(size, size), torch.randn(size, size)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        started = time.perf_counter()
        left @ right
        best = max(best, 2 * size**3 / (time.perf_counter() - started))
    return best


def product_rate(threads: int, width: int, tokens: int, seconds: float = 2.0) -> float:
    """The usual rate of a layer's own products of such a batch, one after the other, in FLOP/s.

    Forward and backward of six linear maps, twelve layers of them: what a step of nothing else would reach.
    """
    import torch

    torch.set_num_threads(threads)
    shapes = [(width, width)] * 4 + [(width, 4 * width), (4 * width, width)]
    work = [
        (torch.randn(tokens, source), torch.randn(target, source), torch.randn(tokens, target))
        for _ in range(12)
        for source, target in shapes
    ]
    flops = sum(6 * tokens * weight.numel() for _, weight, _ in work)
    rates_seen = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        started = time.perf_counter()
        for states, weight, gradient in work:
            torch.nn.functional.linear(states, weight)
            gradient @ weight
            gradient.t() @ states
        rates_seen.append(flops / (time.perf_counter() - started))
    return statistics.median(rates_seen)


def make_model(folder: Path, layers: int, width: int) -> str:
    """A random BERT of the usual vocabulary size with the demo's tokenizer."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertModel

    from objectives.demo import examples as demo

    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=max(1, width // 32),
        intermediate_size=4 * width,
    )
    BertModel(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(demo.MODEL_PATH).save_pretrained(folder)
    return str(folder)


def make_data(folder: Path, kind: str, train: int, validation: int) -> tuple[str, str]:
    """Texts of one-token words whose lengths are spread like MRPC's (mean 54, at most 128) or CoLA's (11)."""
    import random

    from transformers import AutoTokenizer

    from objectives.demo import examples as demo

    tokenizer = AutoTokenizer.from_pretrained(demo.MODEL_PATH)
    words = sorted(word for word in tokenizer.get_vocab() if word.isalpha())
    draw = random.Random(0)

    def text(tokens: int) -> str:
        return " ".join(draw.choices(words, k=max(1, tokens)))

    def row() -> dict[str, Any]:
        label = draw.randint(0, 1)
        if kind == "cola":
            length = min(40, max(4, round(draw.lognormvariate(2.3, 0.4))))
            return {"sentence": text(length - 2), "label": label}
        length = min(128, max(16, round(draw.lognormvariate(3.95, 0.3))))
        half = (length - 3) // 2
        return {"sentence1": text(half), "sentence2": text(length - 3 - half), "label": label}

    folder.mkdir()
    for name, count in (("train", train), ("validation", validation)):
        lines = [json.dumps(row()) for _ in range(count)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return ("cola" if kind == "cola" else "mrpc"), str(folder)


def training_flops(model: str, tokens: float, lengths_squared: float) -> float:
    """Matrix-product FLOPs of training on so many tokens, nothing frozen: forward 1, backward 2.

    Padding does not count, and all tokens of the last layer do, whether they were worth computing or not.
    """
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(model)
    width, inner = config.hidden_size, config.intermediate_size
    layer = 2 * tokens * (4 * width * width + 2 * width * inner) + 4 * width * lengths_squared
    return 3 * config.num_hidden_layers * layer


@dataclass
class Measured:
    rows: list[dict[str, Any]] = field(default_factory=list)
    """One per cell that ran."""
    mean_length: float = 0.0
    """Tokens of a training example, without padding."""
    step_seconds: list[float] = field(default_factory=list)
    """Of a training step with nothing frozen, once per repeat."""
    step_parts: dict[str, float] = field(default_factory=dict)


def measure(arguments: argparse.Namespace, settings: dict[str, Any]) -> Measured:
    names = arguments.ways.split(",")
    depths = integers(arguments.frozen_layers)
    grid_rates = rates(arguments.learning_rates)
    found = Measured()
    for repeat in range(arguments.repeats):
        # A cache of its own for each repeat: building it is part of what is timed.
        settings = {**settings, "cache": f"{settings['folder']}/cache-{repeat}"}
        ways = [Way(name, settings) for name in names]
        found.mean_length = max(way.mean_length for way in ways)
        for way in ways:  # the first steps of a process are not its usual ones, least where it compiles
            for depth in depths if way.name == "compiled" else [max(depths)]:
                way.run({"frozen_layers": depth, "learning_rate": 1e-9, "seed": 99})
        clear(Path(settings["cache"]))
        for depth, (place, rate) in product(depths, enumerate(grid_rates)):
            for way in ways:
                if place and way.name not in SHARED and not arguments.all_cells:
                    continue
                cell = {"frozen_layers": depth, "learning_rate": rate, "seed": 1}
                found.rows.append({"way": way.name, "repeat": repeat, **cell, **way.run(cell)})
                note = f"repeat {repeat + 1} {way.name:<8} frozen {depth:>2} rate {rate:g}"
                print(f"{note}: {found.rows[-1]['seconds']:.2f} s", file=sys.stderr, flush=True)
        for way in ways:
            if way.name == "cached" and 0 in depths:
                cell = {"frozen_layers": 0, "learning_rate": grid_rates[0], "seed": 1}
                found.step_seconds.append(way.run({**cell, "look": "step"})["seconds"])
                found.step_parts = way.run({**cell, "look": "profile"})
            way.close()
    return found


def clear(folder: Path) -> None:
    for entry in [*folder.glob("*.states"), *folder.glob("*.json")]:
        entry.unlink()


def summarise(rows: list[dict[str, Any]], rate_count: int) -> dict[str, Any]:
    """Per way: mean seconds per cell at each depth, and of the whole grid."""
    summary: dict[str, Any] = {}
    for way in dict.fromkeys(row["way"] for row in rows):
        mine = [row for row in rows if row["way"] == way]
        depths: dict[int, dict[str, float]] = {}
        for depth in sorted({row["frozen_layers"] for row in mine}):
            cells = [row for row in mine if row["frozen_layers"] == depth]
            depths[depth] = {
                "seconds_per_cell": statistics.mean(row["seconds"] for row in cells),
                "score": statistics.mean(row["score"] for row in cells),
                "peak_memory_bytes": max(row["peak"] for row in cells),
            }
        repeats = sorted({row["repeat"] for row in mine})
        totals = []
        for repeat in repeats:
            total = 0.0
            for depth in depths:
                cells = [r for r in mine if r["repeat"] == repeat and r["frozen_layers"] == depth]
                total += statistics.mean(row["seconds"] for row in cells) * rate_count
            totals.append(total)
        summary[way] = {
            "grid_seconds": statistics.mean(totals),
            "grid_seconds_each": totals,
            "depths": depths,
        }
    return summary


def render(result: dict[str, Any]) -> str:
    summary, base = result["ways"], result["ways"].get("cached")
    depths = list(next(iter(summary.values()))["depths"])
    head = ["way", *(f"frozen {depth}" for depth in depths), "whole grid", "cached is faster by"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for way, figures in summary.items():
        cells = [f"{figures['depths'][depth]['seconds_per_cell']:.2f}" for depth in depths]
        ratio = ""
        if base:
            each = [
                a / b for a, b in zip(figures["grid_seconds_each"], base["grid_seconds_each"], strict=True)
            ]
            ratio = f"{statistics.mean(each):.2f}x ({min(each):.2f}-{max(each):.2f})"
        lines.append("| " + " | ".join([WAYS[way], *cells, f"{figures['grid_seconds']:.1f}", ratio]) + " |")
    if base:
        lines.append("")
        for way, figures in summary.items():
            seconds = {depth: figures["depths"][depth]["seconds_per_cell"] for depth in depths}
            ours = {depth: base["depths"][depth]["seconds_per_cell"] for depth in depths}
            ratios = ", ".join(f"{depth}: {seconds[depth] / ours[depth]:.2f}x" for depth in depths)
            lines.append(f"{way} / cached per depth: {ratios}")
    lines.append("")
    for way, figures in summary.items():
        peaks = ", ".join(f"{d}: {figures['depths'][d]['peak_memory_bytes'] / 2**20:.0f}" for d in depths)
        scores = ", ".join(f"{d}: {figures['depths'][d]['score']:.3f}" for d in depths)
        lines.append(f"{way}: peak MiB {peaks}; score {scores}")
    if "step_share_of_peak" in result:
        lines.append(
            f"training step with nothing frozen: {result['step_flops_per_second'] / 1e9:.1f} GFLOP/s of a "
            f"matrix-multiply peak of {result['matmul_peak'] / 1e9:.1f}: {result['step_share_of_peak']:.0%} "
            f"({result['machine']}); "
            f"a layer's own products and nothing else: {result['product_rate'] / result['matmul_peak']:.0%}"
        )
        total = sum(result["step_parts"].values())
        parts = sorted(result["step_parts"].items(), key=lambda item: -item[1])
        lines.append("where the step goes: " + ", ".join(f"{name} {s / total:.0%}" for name, s in parts))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="a folder (default: a random BERT of --layers and --width)")
    parser.add_argument("--data", help="a folder of train and validation files (default: made up)")
    parser.add_argument("--task", default="mrpc", help="of --data (mrpc)")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--lengths", choices=("mrpc", "cola"), default="mrpc", help="of made-up data")
    parser.add_argument("--train-examples", type=int, default=96, help="of made-up data (96)")
    parser.add_argument("--validation-examples", type=int, default=48, help="of made-up data (48)")
    parser.add_argument("--frozen-layers", default="0,6-12")
    parser.add_argument("--learning-rates", default="1e-5,3e-5,5e-5")
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--ways", default=",".join(USUAL), help=f"of {', '.join(WAYS)} ({','.join(USUAL)})")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--all-cells", action="store_true", help="time every rate also where rates share nothing"
    )
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.ways.split(",") if name not in WAYS]
    if unknown:
        parser.error(f"unknown way {unknown[0]!r}: choose from {', '.join(WAYS)}")
    with tempfile.TemporaryDirectory(prefix="elsa-bench-") as temporary:
        folder = Path(temporary)
        model = arguments.model or make_model(folder / "model", arguments.layers, arguments.width)
        if arguments.data:
            task, data = arguments.task, arguments.data
        else:
            sizes = arguments.train_examples, arguments.validation_examples
            task, data = make_data(folder / "data", arguments.lengths, *sizes)
        settings = {
            "task": task,
            "data": data,
            "model": model,
            "folder": str(folder),
            "epochs": arguments.epochs,
            "batch_size": arguments.batch_size,
            "max_length": arguments.max_length,
            "threads": arguments.threads,
        }
        before = matmul_peak(arguments.threads)
        found = measure(arguments, settings)
        result: dict[str, Any] = {
            "machine": f"{platform.processor() or platform.machine()}, {instructions()}, "
            f"{arguments.threads} threads",
            "settings": {name: value for name, value in vars(arguments).items() if name != "json"},
            "ways": summarise(found.rows, len(rates(arguments.learning_rates))),
            "matmul_peak": max(before, matmul_peak(arguments.threads)),
        }
        if found.step_seconds:
            tokens = found.mean_length * arguments.batch_size
            flops = training_flops(model, tokens, tokens * found.mean_length)
            result["step_seconds"] = statistics.median(found.step_seconds)
            result["step_flops_per_second"] = flops / result["step_seconds"]
            result["step_share_of_peak"] = result["step_flops_per_second"] / result["matmul_peak"]
            result["product_rate"] = product_rate(arguments.threads, width(model), round(tokens))
            result["step_parts"] = found.step_parts
    print(render(result))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps({**result, "rows": found.rows}, indent=1))


def instructions() -> str:
    """The vector instructions in use, which set the peak: AVX512 has twice AVX2's."""
    import torch

    return torch.backends.cpu.get_cpu_capability()


def width(model: str) -> int:
    from transformers import AutoConfig

    return int(AutoConfig.from_pretrained(model).hidden_size)


if __name__ == "__main__":
    main()
