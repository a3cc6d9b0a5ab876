"""The `layers` command: a model's parameters layer by layer, counted without its weights."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from objectives import settings
from objectives.settings import setting
from study.cli.command import new_parser, run
from study.cli.files import check_file, write_text
from study.cli.flags import add_settings, made
from study.cli.wording import columns
from study.launching.inputs import DEFAULT_MODEL

EXAMPLES = """  elsa layers --model bert-base
  elsa layers --demo
  elsa layers --model ./my-model --json layers.json"""


@dataclass(frozen=True, kw_only=True)
class Counting(settings.Checked):
    alone = (("model", "demo"),)

    model: str | None = setting(
        None, metavar="NAME", help="hub name, short name or folder", default_text=DEFAULT_MODEL
    )
    demo: bool = setting(False, help="the embedded demo model")
    labels: int = setting(2, help="classes of the task; 1 for a regression", least=1, most=100_000)
    json: str | None = setting(None, metavar="FILE", help="write the table there as JSON")


@dataclass(frozen=True)
class ParameterTable:
    """Parameter counts of one model; `trainable[n]` is the share that freezing n layers leaves."""

    model: str
    embeddings: int
    layers: tuple[int, ...]
    pooler: int
    """What runs between the last layer and the classifier."""
    classifier: int
    backbone: int
    """Everything but the classifier."""
    total: int
    trainable: dict[int, float]


def count_parameters(model: str, labels: int = 2) -> ParameterTable:
    from objectives.pretrained.models import PUBLISHED_CONFIGS, load_config, resolve_path

    # Before Torch and Transformers are imported, which takes seconds.
    resolve_path(model)
    import torch
    from transformers import AutoConfig, AutoModelForSequenceClassification

    from objectives.pretrained.stack import count_layers, find_layers

    if model in PUBLISHED_CONFIGS:
        kind, facts = PUBLISHED_CONFIGS[model]
        config = AutoConfig.for_model(kind, **facts)
    else:
        config = load_config(model)
    count_layers(config, model)
    config.num_labels = labels
    with torch.device("meta"):
        stack = find_layers(AutoModelForSequenceClassification.from_config(config))
    embeddings = sum(p.numel() for p in stack.embeddings.values())
    layers = tuple(sum(p.numel() for p in layer.parameters()) for layer in stack.layers)
    head = sum(p.numel() for p in stack.head.values())
    classifier = sum(p.numel() for p in stack.classifier.values())
    total = embeddings + sum(layers) + head
    trainable = {0: 1.0, -1: (total - embeddings) / total}
    trainable |= {n: (sum(layers[n:]) + head) / total for n in range(1, len(layers) + 1)}
    return ParameterTable(
        model, embeddings, layers, head - classifier, classifier, total - classifier, total, trainable
    )


def render(table: ParameterTable) -> str:
    parts: list[tuple[str, int, int | None]] = [("embeddings", table.embeddings, -1)]
    parts += [(f"layer {n}", count, n) for n, count in enumerate(table.layers, 1)]
    parts += [
        ("pooler", table.pooler, None),
        ("classifier", table.classifier, None),
        ("total", table.total, 0),
    ]
    rows = [["part", "parameters", "share", "frozen_layers", "trainable if frozen"]]
    for name, count, frozen in parts:
        then = ["", ""] if frozen is None else [str(frozen), f"{table.trainable[frozen]:.2%}"]
        rows.append([name, f"{count:,}", f"{count / table.total:.2%}", *then])
    return "\n".join(
        [
            f"{table.model}: {len(table.layers)} layers, {table.total:,} parameters, "
            f"{table.backbone:,} without the classifier",
            "",
            *columns(rows, right=range(1, 5)),
        ]
    )


def make_parser() -> argparse.ArgumentParser:
    parser = new_parser(
        "layers", "Count a model's parameters layer by layer; no weights are needed.", EXAMPLES
    )
    add_settings(parser, "the model", Counting)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    asked = made(Counting, make_parser().parse_args(argv))
    if asked.json:
        check_file(asked.json, "--json")
    table = count_parameters("demo" if asked.demo else asked.model or DEFAULT_MODEL, asked.labels)
    print(render(table))
    if asked.json:
        write_text(asked.json, json.dumps(asdict(table), indent=2))
    return 0


if __name__ == "__main__":
    run(main)
