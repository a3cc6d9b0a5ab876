"""Does caching the frozen layers cost quality? Both ways, paired by seed, with an interval.

Cached layers run without dropout, live ones with it; everything else is the same. Without --model and --data
it is the DEMO, whose model has no dropout of its own: both ways then give the same numbers, unless --dropout
gives it some, which it was not pretrained with. `make_demo_model.py --start` goes on pretraining it with
dropout, as BERTs are; `--model FOLDER --data demo` then compares with that.
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

from objectives.contract import Cell, Recipe
from objectives.data.task_data import TaskData
from objectives.demo import examples as demo
from objectives.pretrained.models import resolve_path
from study.cli.lists import integers, seeds


def with_dropout(model: str, rate: float, folder: Path) -> str:
    """A copy of a model's folder with this dropout wherever BERT has one."""
    shutil.copytree(model, folder)
    path = folder / "config.json"
    names = ("hidden_dropout_prob", "attention_probs_dropout_prob")
    path.write_text(json.dumps({**json.loads(path.read_text()), **dict.fromkeys(names, rate)}))
    return str(folder)


def scores(data: TaskData, model: str, recipe: Recipe, cells: list[Cell], cache: Path) -> dict[Cell, float]:
    from objectives.prefix.prefix_cache import PrefixCache
    from objectives.pretrained.models import identify
    from objectives.training.finetune import FineTuning

    identity = identify(model)
    objective = FineTuning(
        data=data,
        model_path=identity.path,
        model_fingerprint=identity.fingerprint,
        recipe=recipe,
        cache=PrefixCache(cache),
        largest_train_size=cells[0].train_size,
    )
    return {cell: objective(cell, lambda point: None).score for cell in cells}


def interval(values: list[float]) -> float:
    """Half of the 95 % interval of a mean, by Student's t."""
    from scipy import stats

    spread = statistics.stdev(values) / math.sqrt(len(values))
    return float(stats.t.ppf(0.975, len(values) - 1)) * spread


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="a folder or hub name (default: the demo's)")
    parser.add_argument("--data", help="a folder of train and validation files (default: demo)")
    parser.add_argument("--tasks", default="mrpc,sst2,stsb")
    parser.add_argument("--frozen-layers", default="6,9,12")
    parser.add_argument("--learning-rate", type=float, help="(default: the middle one of the demo's)")
    parser.add_argument("--epochs", type=float, default=3, help="with data in a folder (3)")
    parser.add_argument("--train-size", type=int, help="training examples (default: all)")
    parser.add_argument("--seeds", default="5")
    parser.add_argument("--dropout", type=float, help="of a model in a folder (default: its own)")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    from objectives.data.task_data import DEMO, load_data
    from objectives.tasks.definition import get_task

    if bool(arguments.model) != bool(arguments.data):
        parser.error("--model and --data go together")
    middle = demo.LEARNING_RATES[len(demo.LEARNING_RATES) // 2]
    rate = arguments.learning_rate or middle
    depths = integers(arguments.frozen_layers)
    chosen = seeds(arguments.seeds)
    cells = [Cell(depth, rate, seed, arguments.train_size) for depth in depths for seed in chosen]
    source = arguments.data or DEMO
    settings = demo.RECIPE if source == DEMO else {"epochs": arguments.epochs}
    badge = "DEMO  " if source == DEMO else ""
    print(f"{badge}| task | frozen | cached | live | cached - live, 95 % interval | within |")
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        model = arguments.model or DEMO
        if arguments.dropout is not None:
            model = with_dropout(resolve_path(model), arguments.dropout, folder / "model")
        for task in arguments.tasks.split(","):
            data = load_data(get_task(task), source)
            recipes = [Recipe(**{**settings, "prefix": prefix}) for prefix in ("cached", "live")]
            cached, live = (scores(data, model, recipe, cells, folder / "cache") for recipe in recipes)
            for depth in depths:
                pairs = [(cached[cell], live[cell]) for cell in cells if cell.frozen_layers == depth]
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
                    f"{badge}| {task} | {depth} | {row['cached']:.4f} | {row['live']:.4f} | "
                    f"{mean:+.4f} ± {half:.4f} | {'yes' if row['within'] else 'no'} |",
                    flush=True,
                )
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
