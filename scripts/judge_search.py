"""How often the adaptive search is right about made-up studies whose truth is known, and what it costs.

    python scripts/judge_search.py [--repeats 40] [--layers 6,12,24,32] [--seed 1911] [--json OUT]

For each shape of curve: the share of searches with the true answer, of whole grids with it (5 rates x 5
seeds, the same analysis), the search's work as a share of the grid's and of the paper's protocol, how often a
stated probability of 0.9 or more is right, and how often the search is wrong and sure of it. In the last rows
runs of the full model collapse at the higher learning rates, as published runs of large models do.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import worlds

from objectives.contract import Cell, Recipe
from study.protocols.units import study_units
from study.simulation.repeats import Replay, run
from study.specs.study_spec import StudySpec

THRESHOLD, CONFIDENCE, GRID_SEEDS, MOST_SEEDS = 0.9, 0.9, 5, 10


def spec_of(world: worlds.World, protocol: str, seeds: int, select: str) -> StudySpec:
    unnamed: dict[str, Any] = dict.fromkeys(("task", "metric", "model", "data"), "made up")
    own = {"threshold": THRESHOLD, "confidence": CONFIDENCE, "select": select}
    return StudySpec(
        **unnamed,
        model_fingerprint="-",
        data_fingerprint="-",
        total_layers=world.total_layers,
        protocol=protocol,
        frozen_layers=world.depths,
        learning_rates=world.rates,
        seeds=tuple(range(1, seeds + 1)),
        recipe=Recipe(),
        chance=world.chance,
        protocol_settings=tuple(sorted(own.items())),
    )


def replay(world: worlds.World, scores: Any, protocol: str, seeds: int, select: Any) -> Replay:
    depth = {n: i for i, n in enumerate(world.depths)}
    rate = {r: i for i, r in enumerate(world.rates)}

    def score(cell: Cell) -> float:
        return float(scores[depth[cell.frozen_layers], rate[cell.learning_rate], cell.seed - 1])

    return run(spec_of(world, protocol, seeds, select), score)


def paper_units(world: worlds.World, recipe: Recipe) -> float:
    """The paper's protocol: every rate at 0 frozen and every depth at one rate, five seeds each."""
    cells = [Cell(0, rate, seed) for rate in world.rates for seed in range(GRID_SEEDS)]
    cells += [Cell(n, world.rates[0], seed) for n in world.depths for seed in range(GRID_SEEDS)]
    return study_units(cells, world.total_layers, recipe.prefix, recipe.epochs)


def judge(shape: str, layers: int, repeats: int, select: Any, seed: int) -> dict[str, Any]:
    generator = np.random.default_rng([seed, layers, *shape.encode()])
    found: dict[str, list[float]] = {
        name: [] for name in ("right", "grid", "grid_share", "paper_share", "near")
    }
    stated: list[tuple[float, bool]] = []
    for _ in range(repeats):
        collapsing = shape == "collapsing"
        kind: Any = worlds.SHAPES[int(generator.integers(len(worlds.SHAPES)))] if collapsing else shape
        world = worlds.world(
            generator,
            kind,
            layers=layers,
            noise=float(generator.choice([0.004, 0.01, 0.02])),
            uneven=float(generator.choice([1.0, 3.0])),
            shared=float(generator.choice([0.0, 0.5])),
        )
        world = worlds.with_collapses_at_high_rates(world) if collapsing else world
        scores, truth = world.draw(generator, MOST_SEEDS), world.answer(THRESHOLD)
        search = replay(world, scores, "adaptive", MOST_SEEDS, select)
        grid = replay(world, scores, "grid", GRID_SEEDS, select)
        right = search.frozen_layers == truth
        found["right"].append(right)
        found["near"].append(search.frozen_layers is not None and abs(search.frozen_layers - truth) <= 1)
        found["grid"].append(grid.frozen_layers == truth)
        found["grid_share"].append(search.units / grid.units)
        found["paper_share"].append(search.units / paper_units(world, Recipe()))
        if search.probability is not None and search.probability >= CONFIDENCE:
            stated.append((search.probability, right))
    row = {name: float(np.mean(values)) for name, values in found.items()}
    sure = [right for _, right in stated]
    return {
        "shape": shape,
        "layers": layers,
        "repeats": repeats,
        **row,
        "sure": len(sure) / repeats,
        "sure_and_right": float(np.mean(sure)) if sure else None,
        "sure_and_wrong": (len(sure) - sum(sure)) / repeats,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=40, help="made-up studies per row (40)")
    parser.add_argument("--layers", default="6,12,24,32", help="sizes of models (6,12,24,32)")
    parser.add_argument("--shapes", default=",".join((*worlds.SHAPES, "collapsing")), help="shapes of curves")
    parser.add_argument("--select", default="per-depth", choices=("per-depth", "full-model"))
    parser.add_argument("--seed", type=int, default=1911, help="other made-up studies (1911)")
    parser.add_argument("--json", type=Path, help="write the results as JSON")
    arguments = parser.parse_args()
    print(
        "| curve | layers | search right | within one layer | grid right | of the grid's work "
        "| of the paper's work | p ≥ 0.9 | of these right | sure and wrong |"
    )
    print("|---|" + "---:|" * 9)
    rows = []
    for shape in arguments.shapes.split(","):
        for layers in arguments.layers.split(","):
            rows.append(judge(shape, int(layers), arguments.repeats, arguments.select, arguments.seed))
            print(_line(rows[-1]), flush=True)
    whole: dict[str, Any] = {
        name: float(np.mean([row[name] or 0.0 for row in rows])) for name in rows[0] if name != "shape"
    }
    sure = sum(row["sure"] for row in rows)
    whole |= {"shape": "all", "layers": 0}
    whole["sure_and_right"] = 1 - sum(row["sure_and_wrong"] for row in rows) / sure if sure else None
    print(_line(whole))
    if arguments.json:
        arguments.json.write_text(json.dumps([*rows, whole], indent=2) + "\n")
    return 0


def _line(row: dict[str, Any]) -> str:
    right = "–" if row["sure_and_right"] is None else f"{row['sure_and_right']:.1%}"
    return (
        f"| {row['shape']} | {row['layers'] or '–'} | {row['right']:.1%} | {row['near']:.1%} | "
        f"{row['grid']:.1%} | "
        f"{row['grid_share']:.1%} | {row['paper_share']:.1%} | {row['sure']:.1%} | {right} | "
        f"{row['sure_and_wrong']:.1%} |"
    )


if __name__ == "__main__":
    raise SystemExit(main())
