"""Trial tables of made-up runs with known shapes: models and tasks, costs, rates, failures, train sizes."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import pandas as pd

from study.trials.trial_table import normalise

MODELS = {"bert-base": 12, "roberta-base": 12, "bert-large": 24, "roberta-large": 24}
TASKS = {
    "cola": ("matthews_correlation", 0.60, 0.0),
    "sst2": ("accuracy", 0.93, 0.509),
    "mrpc": ("f1", 0.90, 0.812),
    "stsb": ("spearman", 0.89, 0.0),
    "qqp": ("f1", 0.88, 0.0),
    "mnli": ("accuracy", 0.85, 0.354),
    "qnli": ("accuracy", 0.92, 0.505),
    "rte": ("accuracy", 0.70, 0.527),
    "wnli": ("accuracy", 0.58, 0.563),
}
RATES = (1e-5, 2e-5, 3e-5, 4e-5, 5e-5)


def rows(
    models: Sequence[str] = tuple(MODELS),
    tasks: Sequence[str] = tuple(TASKS),
    *,
    rates: Sequence[float] = RATES,
    seeds: int = 5,
    train_sizes: Sequence[int | None] = (None,),
    depths: Sequence[int] | None = None,
    costs: bool = True,
    failures: bool = True,
    recorded: bool = True,
    seed: int = 7,
) -> pd.DataFrame:
    """Quality falls with depth, faster past two thirds; deeper freezes like higher rates; a few runs fail."""
    random = np.random.default_rng(seed)
    found = []
    for model in models:
        layers = MODELS[model]
        for task in tasks:
            metric, full, chance = TASKS[task]
            reach = full - chance
            for size in train_sizes:
                known = 1.0 if size is None else min(1.0, 0.25 + 0.12 * np.log2(size / 25))
                for depth in depths if depths is not None else range(layers + 1):
                    share = max(depth, 0) / layers
                    kept = (
                        1
                        - 0.06 * share
                        - 0.55 * max(0.0, share - 0.66) / 0.34 * (0.6 + 0.1 * (len(task) % 5))
                    )
                    best = 2e-5 * (1 + 1.5 * share)
                    for rate in rates:
                        loss = 0.06 * np.log(rate / best) ** 2
                        for s in range(1, seeds + 1):
                            score = (
                                chance
                                + reach * known * (kept - loss)
                                + random.normal(0, 0.012 + 0.02 * (1 - known))
                            )
                            failed = failures and random.random() < 0.004
                            found.append(
                                {
                                    "task": task,
                                    "model": model,
                                    "total_layers": layers,
                                    "frozen_layers": depth,
                                    "learning_rate": rate,
                                    "seed": s,
                                    "train_size": size,
                                    "state": "FAIL" if failed else "COMPLETE",
                                    "metric": metric,
                                    "score": None if failed else float(min(score, 0.999)),
                                    "reason": "CUDA out of memory" if failed else None,
                                    "recorded": recorded,
                                    "study": f"{task}-{model}",
                                    **(_costs(layers, depth, random) if costs and not failed else {}),
                                }
                            )
    return pd.DataFrame(found)


def table(**settings: object) -> pd.DataFrame:
    return normalise(rows(**settings), source="synthetic")  # type: ignore[arg-type]


def csv_text(**settings: object) -> str:
    out = io.StringIO()
    rows(**settings).to_csv(out, index=False)  # type: ignore[arg-type]
    return out.getvalue()


def _costs(layers: int, depth: int, random: np.random.Generator) -> dict[str, float]:
    layer, embeddings, head = 7_087_872, 23_837_184, 592_000
    total = embeddings + layers * layer + head
    trained = total if depth == 0 else total - embeddings - max(depth, 0) * layer
    share = trained / total
    return {
        "trainable_parameters": trained,
        "total_parameters": total,
        "train_seconds": float((20 + 100 * share) * layers / 12 * random.uniform(0.97, 1.03)),
        "prefix_seconds": 6.0 if depth == layers else 0.0,
        "peak_memory_bytes": float(int(2**30 * (0.8 + 5 * share))),
    }
