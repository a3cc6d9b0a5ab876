"""How long the analysis of a large trial table takes, and how much memory, on one core.

    python scripts/bench_analysis.py [--trials 100000] [--draws 10000] [--shape grid]

Each shape of table is measured in a process of its own, from reading the CSV to the JSON text; the exit
code is 1 where one of them is over a limit.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

if TYPE_CHECKING:
    import pandas as pd

SHAPES: dict[str, dict[str, int | bool]] = {
    "grid": {"depths": 14, "rates": 5, "seeds": 40},
    "grid, seeds contradicted": {"depths": 14, "rates": 5, "seeds": 40, "contradicted": True},
    "grid, selection scores": {"depths": 14, "rates": 5, "seeds": 40, "selection": True},
    "many groups, 5 seeds": {"depths": 14, "rates": 5, "seeds": 5},
    "many groups, 2 seeds": {"depths": 14, "rates": 5, "seeds": 2},
    "one group, many seeds": {"depths": 14, "rates": 1, "seeds": 7_143},
    "one group, many seeds, contradicted": {"depths": 14, "rates": 1, "seeds": 7_143, "contradicted": True},
    "every rate its own": {"depths": 14, "rates": 7_143, "seeds": 1},
    "grid, 1,000 test examples": {"depths": 14, "rates": 5, "seeds": 40, "examples": 1_000},
    "grid, MNLI's 9,815 test examples": {"depths": 14, "rates": 5, "seeds": 40, "examples": 9_815},
}
"""Those with examples have every trial's predictions, so that intervals are over seeds and examples."""


def make_table(path: Path, trials: int, shape: dict[str, int | bool]) -> None:
    import numpy as np
    import pandas as pd

    depths, rates, seeds = int(shape["depths"]), int(shape["rates"]), int(shape["seeds"])
    row = np.arange(trials)
    seed, rest = row % seeds, row // seeds
    rate, rest = rest % rates, rest // rates
    depth, group = rest % depths, rest // depths
    generator = np.random.default_rng(0)
    frozen = np.where(depth == 0, 0, depth + 24 - depths + 1)
    # Half of the noise belongs to the seed, so that pairing has something to pair.
    shared = generator.normal(0, 0.01, (int(group.max()) + 1, seeds))[group, seed]
    score = 0.9 - 0.0004 * frozen**1.7 + shared + generator.normal(0, 0.01, trials)
    table = pd.DataFrame(
        {
            "task": np.char.add("task", (group % 9).astype(str)),
            "model": np.char.add("model", (group // 9).astype(str)),
            "total_layers": 24,
            "frozen_layers": frozen,
            "learning_rate": 1e-5 * (1 + rate),
            "seed": seed + 1,
            "train_size": "",
            "state": "COMPLETE",
            "metric": "accuracy",
            "score": score,
        }
    )
    if shape.get("examples"):
        table = table.assign(study="s", trial=row)
    if shape.get("selection"):
        table["selection_score"] = score + generator.normal(0, 0.01, trials)
    if shape.get("contradicted"):
        again = table.iloc[[0]].assign(score=0.5)
        table = pd.concat([table, again])
    table.to_csv(path, index=False)


def stored_predictions(table: pd.DataFrame, examples: int) -> dict[tuple[str, int], str]:
    """As a database would hand them out: a text of its own for each trial."""
    import numpy as np

    from objectives.tasks.metrics import describe
    from objectives.tasks.predictions import pack

    generator = np.random.default_rng(1)
    labels = np.ones(examples, dtype=np.int64)
    kinds = []
    for score in np.linspace(0.4, 0.95, 50):
        right = generator.random(examples) < score
        kinds.append(pack(labels, np.where(right[:, None], [0.0, 1.0], [1.0, 0.0]), describe("accuracy")))
    return {("s", trial): kinds[trial % 50].encode().decode() for trial in table["trial"].tolist()}


def measure(path: Path, draws: int, examples: int) -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    started = time.perf_counter()
    from study.analysis.analyse import analyse, to_json
    from study.trials import trial_table

    table = trial_table.load([str(path)])
    predictions = stored_predictions(table, examples) if examples else None
    loaded = time.perf_counter()
    analysis = analyse(table, draws=draws, predictions=predictions)
    text = json.dumps(to_json(analysis))
    ended = time.perf_counter()
    assert "torch" not in sys.modules
    figures = {
        "trials": len(table),
        "groups": len(analysis.curves),
        "paired": analysis.curves[0].paired,
        "examples": analysis.curves[0].test_examples or 0,
        "load_seconds": loaded - started,
        "analysis_seconds": ended - loaded,
        "seconds": ended - started,
        "cpu_seconds": time.process_time(),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "json_bytes": len(text),
    }
    print(json.dumps(figures))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--limit-seconds", type=float, default=10.0, help="processor time, one core")
    parser.add_argument("--limit-mb", type=float, default=1000.0)
    parser.add_argument("--shape", choices=SHAPES, action="append", help="only this shape of table")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--examples", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure, arguments.draws, arguments.examples)
        return 0
    over = 0
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    heads = ("trials", "groups", "paired", "examples", "load s", "total s", "cpu s", "MB")
    print(f"{'shape':<38}" + "".join(f"{head:>9}" for head in heads))
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.shape or SHAPES:
            shape = SHAPES[name]
            path = Path(folder) / "trials.csv"
            make_table(path, arguments.trials, shape)
            command = [sys.executable, __file__, "--measure", str(path), "--draws", str(arguments.draws)]
            command += ["--examples", str(int(shape.get("examples", 0)))]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                print(done.stderr, file=sys.stderr)
                return 1
            figures = json.loads(done.stdout)
            fits = (
                figures["cpu_seconds"] <= arguments.limit_seconds and figures["peak_mb"] <= arguments.limit_mb
            )
            over += not fits
            row = [figures["trials"], figures["groups"], figures["paired"], figures["examples"]]
            row += [f"{figures[key]:.2f}" for key in ("load_seconds", "seconds", "cpu_seconds")]
            row.append(f"{figures['peak_mb']:.0f}")
            print(f"{name:<38}" + "".join(f"{value!s:>9}" for value in row) + ("" if fits else "  OVER"))
    return 1 if over else 0


if __name__ == "__main__":
    raise SystemExit(main())
