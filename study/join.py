"""The command that joins a study from elsewhere: its spec, spelled out as flags of `launch`."""

from __future__ import annotations

import shlex
from dataclasses import asdict

from study.spec import StudySpec


def join_command(name: str, spec: StudySpec, storage: str) -> str:
    """Every setting of the spec is named, so that no default of another version can change it.

    Heartbeat, grace period and retries are not: the study keeps them, and whoever joins takes them over.
    """
    flags: list[tuple[str, object]] = [("study", name), ("storage", storage), ("protocol", spec.protocol)]
    flags += [("task", spec.task)]
    if not spec.demo:
        flags.append(("model", spec.model))
    if spec.recorded:
        flags.append(("recorded", spec.data))
    flags += [
        ("frozen-layers", ",".join(map(str, spec.frozen_layers))),
        ("learning-rates", ",".join(map(repr, spec.learning_rates))),
        ("seeds", _seeds(spec.seeds)),
    ]
    sizes = [size for size in spec.train_sizes if size is not None]
    if sizes:
        flags.append(("train-sizes", ",".join(map(str, sizes))))
    if spec.protocol == "adaptive":
        flags += [("threshold", spec.threshold), ("confidence", spec.confidence)]
        if spec.budget is not None:
            unit = "units" if spec.budget_unit == "units" else ""
            flags.append(("budget", f"{spec.budget:g}{unit}"))
    if not spec.recorded:
        recipe = asdict(spec.recipe)
        grouped = recipe.pop("group_by_length")
        del recipe["accuracy"]  # The protocol decides it, not a flag.
        flags += [(name.replace("_", "-"), value) for name, value in recipe.items() if value is not False]
        flags += [] if grouped else [("no-group-by-length", True)]
    words = ["elsa", "launch", *(["--demo"] if spec.demo else [])]
    for flag, value in flags:
        words.append(f"--{flag}" if value is True else f"--{flag}={value}")
    return shlex.join(words)


def _seeds(seeds: tuple[int, ...]) -> str:
    """A number alone would mean that many seeds."""
    return f"{seeds[0]}," if len(seeds) == 1 else ",".join(map(str, seeds))
