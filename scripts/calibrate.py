"""How often the analysis is right about made-up studies whose truth is known.

    python scripts/calibrate.py [--repeats 400] [--seeds 2,3,5,10] [--rates 1,2,3,4,5] [--json OUT]

For each setting: how often 95 % intervals hold the true share of full quality, how many "confident" claims
are false, and how often answers with a stated probability are right. The curves are a mix of steep, gradual,
level, dipping and broken ones over 6, 12 and 24 layers, with even and uneven noise, seeds that share nothing
or half of it, and scores from 0.5 to 0.85 as accuracies have or from 0 to 0.6 as CoLA has; "level" rows have
a plateau just below the threshold, where every confident claim beyond the full model is false. A second table
sums up over the numbers of learning rates.
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

THRESHOLD = 0.9
SURE = 0.9
BINS = ((0.5, 0.7), (0.7, 0.9), (0.9, 0.97), (0.97, 1.01))


def mixed(generator: np.random.Generator, rates: int, collapse: float, level: bool) -> worlds.World:
    shape = "plateau" if level else worlds.SHAPES[int(generator.integers(len(worlds.SHAPES)))]
    middle = (5 - rates) // 2
    full, chance = ((0.85, 0.5), (0.6, 0.0))[int(generator.integers(2))]
    return worlds.world(
        generator,
        shape,
        layers=int(generator.choice([6, 12, 24])),
        rates=worlds.RATES[middle : middle + rates],
        noise=float(generator.choice([0.004, 0.01, 0.02])),
        uneven=float(generator.choice([1.0, 3.0])),
        shared=float(generator.choice([0.0, 0.5])),
        full=full,
        chance=chance,
        collapse=collapse,
    )


def below(found: worlds.World) -> worlds.World:
    """The same with its plateau just below the threshold."""
    kept = found.relative.copy()
    kept[1:] = np.minimum(kept[1:], THRESHOLD - 0.005)
    quality = found.quality / found.relative[:, None] * kept[:, None]
    return worlds.World(**{**vars(found), "quality": quality})


def measure(
    seeds: int, rates: int, collapse: float, level: bool, repeats: int, start_seed: int
) -> dict[str, Any]:
    from study.analysis.analyse import analyse

    generator = np.random.default_rng([start_seed, seeds, rates, round(100 * collapse), level])
    found = [mixed(generator, rates, collapse, level) for _ in range(repeats)]
    found = [below(one) for one in found] if level else found
    held: list[bool] = []
    false = claims = 0
    stated: list[tuple[float, bool]] = []
    right = []
    for start in range(0, repeats, 100):
        part = found[start : start + 100]
        analysis = analyse(
            worlds.table(part, [w.draw(generator, seeds) for w in part]), thresholds=[THRESHOLD]
        )
        for one, curve, point in zip(part, analysis.curves, analysis.points, strict=True):
            truth = dict(zip(one.depths, one.relative.tolist(), strict=True))
            held += [
                d.relative_low <= truth[d.frozen_layers] <= d.relative_high
                for d in curve.depths
                if d.frozen_layers != 0 and d.relative_low is not None and d.relative_high is not None
            ]
            claims += 1
            sure = point.confident_frozen_layers
            false += sure is not None and truth[sure] < THRESHOLD - 1e-12
            exact = point.frozen_layers == one.answer(THRESHOLD)
            right.append(exact)
            between = {b.first: b.probability for b in getattr(point, "probability_between", ())}
            if point.frozen_layers is not None and (point.probability or between):
                answer = point.frozen_layers
                stated.append((point.probability.get(answer, 0.0) + between.get(answer, 0.0), exact))
    return {
        "seeds": seeds,
        "rates": rates,
        "collapse": collapse,
        "level": level,
        "coverage": float(np.mean(held)) if held else None,
        "false_confident": false / claims,
        "right": float(np.mean(right)),
        "reliability": [_bin(stated, low, high) for low, high in BINS],
        "sure": _bin(stated, SURE, 1.01),
    }


def _bin(stated: list[tuple[float, bool]], low: float, high: float) -> dict[str, Any]:
    inside = [(p, exact) for p, exact in stated if low <= p < high]
    return {
        "from": low,
        "count": len(inside),
        "stated": float(np.mean([p for p, _ in inside])) if inside else None,
        "right": float(np.mean([exact for _, exact in inside])) if inside else None,
    }


def summary(rows: list[dict[str, Any]]) -> str:
    """By curves, collapses and seeds, over all numbers of learning rates."""
    lines = [
        f"| curves | collapsed | seeds | 95 % intervals cover | false “confident” | p ≥ {SURE:g}: right "
        "| stated |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    together: dict[tuple[bool, float, int], list[dict[str, Any]]] = {}
    for row in rows:
        together.setdefault((row["level"], row["collapse"], row["seeds"]), []).append(row)
    for (level, collapse, seeds), found in together.items():
        covered = [row["coverage"] for row in found if row["coverage"] is not None]
        sure = [row["sure"] for row in found if row["sure"]["count"]]
        count = sum(s["count"] for s in sure)
        right, stated = (
            sum(s[name] * s["count"] for s in sure) / count if count else float("nan")
            for name in ("right", "stated")
        )
        span = f"{min(covered):.1%}–{max(covered):.1%}" if len(covered) > 1 else f"{covered[0]:.1%}"
        false = float(np.mean([row["false_confident"] for row in found]))
        lines.append(
            f"| {_curves(level)} | {collapse:.0%} | {seeds} | {span} | {false:.1%} | "
            f"{right:.1%} of {count} | {stated:.1%} |"
        )
    return "\n".join(lines)


def _curves(level: bool) -> str:
    return "level, just below" if level else "mixed"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=400, help="made-up studies per row (400)")
    parser.add_argument("--seeds", default="2,3,5,10", help="runs per cell (2,3,5,10)")
    parser.add_argument("--rates", default="1,2,3,4,5", help="learning rates per depth (1,2,3,4,5)")
    parser.add_argument("--collapse", default="0,0.05", help="shares of runs that learn nothing (0,0.05)")
    parser.add_argument("--seed", type=int, default=1911, help="other made-up studies (1911)")
    parser.add_argument("--json", type=Path, help="write the results as JSON")
    arguments = parser.parse_args()
    settings = [
        (int(seeds), int(rates), float(collapse), False)
        for collapse in arguments.collapse.split(",")
        for rates in arguments.rates.split(",")
        for seeds in arguments.seeds.split(",")
    ]
    settings += [(int(seeds), 1, 0.0, True) for seeds in arguments.seeds.split(",")]
    head = "| curves | collapsed | rates | seeds | coverage | false confident | right | "
    print(head + " | ".join(f"p {low:g}–{min(high, 1):g}: right (stated, n)" for low, high in BINS) + " |")
    print("|---|" + "---:|" * (6 + len(BINS)))
    rows = []
    for setting in settings:
        row = measure(*setting, arguments.repeats, arguments.seed)
        rows.append(row)
        told = [
            "–" if b["right"] is None else f"{b['right']:.2f} ({b['stated']:.2f}, {b['count']})"
            for b in row["reliability"]
        ]
        coverage = "–" if row["coverage"] is None else f"{row['coverage']:.3f}"
        print(
            f"| {_curves(row['level'])} | {row['collapse']:.0%} | "
            f"{row['rates']} | "
            f"{row['seeds']} | {coverage} | {row['false_confident']:.3f} | {row['right']:.2f} | "
            f"{' | '.join(told)} |",
            flush=True,
        )
    print("\n" + summary(rows))
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
