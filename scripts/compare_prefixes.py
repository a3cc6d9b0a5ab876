"""Does caching the frozen layers cost quality? Demo tasks, both ways, paired by seed, with an interval.

Cached layers run without dropout, live ones with it; everything else is the same. DEMO model and data; the
model itself has no dropout, so it is given BERT's usual one here, without which both ways are the same.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from objectives import demo
from objectives.contract import Cell, Recipe
from study.command import integers, seeds


def with_dropout(rate: float, folder: Path) -> str:
    """The demo model with this dropout wherever BERT has one."""
    shutil.copytree(demo.MODEL_PATH, folder)
    path = folder / "config.json"
    names = ("hidden_dropout_prob", "attention_probs_dropout_prob")
    path.write_text(json.dumps({**json.loads(path.read_text()), **dict.fromkeys(names, rate)}))
    return str(folder)


def scores(task: str, model: str, prefix: str, cells: list[Cell], cache: Path) -> dict[Cell, float]:
    from objectives.data import DEMO, load_data
    from objectives.finetune import FineTuning
    from objectives.models import identify
    from objectives.prefix import PrefixCache
    from objectives.tasks import get_task

    identity = identify(model)
    objective = FineTuning(
        data=load_data(get_task(task), DEMO),
        model_path=identity.path,
        model_fingerprint=identity.fingerprint,
        recipe=Recipe(**{**demo.RECIPE, "prefix": prefix}),
        cache=PrefixCache(cache),
    )
    return {cell: objective(cell, lambda point: None).score for cell in cells}


def interval(values: list[float]) -> float:
    """Half of the 95 % interval of a mean, by Student's t."""
    from scipy import stats

    spread = statistics.stdev(values) / math.sqrt(len(values))
    return float(stats.t.ppf(0.975, len(values) - 1)) * spread


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", default="mrpc,sst2,stsb")
    parser.add_argument("--frozen-layers", default="6,9,12")
    parser.add_argument("--seeds", default="5")
    parser.add_argument("--dropout", type=float, default=0.1, help="of the model (0.1)")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    depths = integers(arguments.frozen_layers, "--frozen-layers")
    chosen = seeds(arguments.seeds, "--seeds")
    rate = sorted(demo.GRID["learning_rates"])[len(demo.GRID["learning_rates"]) // 2]
    rows = []
    print("DEMO  | task | frozen | cached | live | cached - live, 95 % interval | within |")
    with tempfile.TemporaryDirectory() as temporary:
        model = with_dropout(arguments.dropout, Path(temporary) / "model")
        cache = Path(temporary) / "cache"
        for task in arguments.tasks.split(","):
            cells = [Cell(depth, rate, seed) for depth in depths for seed in chosen]
            cached, live = (scores(task, model, prefix, cells, cache) for prefix in ("cached", "live"))
            for depth in depths:
                here = [cell for cell in cells if cell.frozen_layers == depth]
                pairs = [(cached[cell], live[cell]) for cell in here]
                difference = [ours - theirs for ours, theirs in pairs]
                half, mean = interval(difference), statistics.mean(difference)
                row = {
                    "task": task,
                    "frozen_layers": depth,
                    "cached": statistics.mean(ours for ours, _ in pairs),
                    "live": statistics.mean(theirs for _, theirs in pairs),
                    "difference": mean,
                    "interval": half,
                    "within": abs(mean) <= half,
                }
                rows.append(row)
                print(
                    f"DEMO  | {task} | {depth} | {row['cached']:.4f} | {row['live']:.4f} | "
                    f"{mean:+.4f} ± {half:.4f} | {'yes' if row['within'] else 'no'} |",
                    flush=True,
                )
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
