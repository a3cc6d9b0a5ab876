"""How fast many tasks on one base answer a batch: together, and each by its own whole model.

    python scripts/bench_many.py [--tasks 1,3,9] [--frozen-layers 9] [--model FOLDER]

Without --model the base is a random BERT of 12 layers, 768 wide. The arithmetic beside the measurement is
(n + k(L - n)) / kL: of k tasks, n of L layers run once.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", default="1,3,9", help="how many tasks at once, a list")
    parser.add_argument("--frozen-layers", type=int, default=9)
    parser.add_argument("--layers", type=int, default=12, help="of the random base")
    parser.add_argument("--width", type=int, default=768, help="of the random base")
    parser.add_argument("--model", help="a base of your own")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=64, help="tokens of every example")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, help="of PyTorch")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args(argv)
    import torch

    from objectives.data.hub import quiet_libraries

    quiet_libraries()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    counts = [int(part) for part in arguments.tasks.split(",")]
    with tempfile.TemporaryDirectory() as place:
        base = arguments.model or random_base(Path(place) / "base", arguments.layers, arguments.width)
        folders = [
            random_task(Path(place) / f"task{number}", base, arguments.frozen_layers, number)
            for number in range(max(counts))
        ]
        rows = [measure(folders[:count], arguments) for count in counts]
    print(table(rows))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rows, indent=1) + "\n")
    return 0


def random_base(folder: Path, layers: int, width: int) -> str:
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=max(1, width // 64),
        intermediate_size=4 * width,
    )
    BertModel(config).save_pretrained(folder)
    _save_tokenizer(folder)
    return str(folder)


def _save_tokenizer(folder: Path) -> None:
    """Of one word: the benchmark brings its own tokens."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(WordLevel({"[PAD]": 0, "[UNK]": 1}, unk_token="[UNK]"))
    made = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]")
    made.save_pretrained(folder)


def random_task(
    folder: Path,
    base: str,
    frozen_layers: int,
    seed: int,
    *,
    labels: int = 3,
    problem_type: str = "single_label_classification",
    max_length: int = 512,
    noise: float = 0.01,
) -> str:
    """A tuned-only folder, as `elsa export` writes it, with tuned weights a little off the base's."""
    import torch
    from transformers import AutoModelForSequenceClassification

    from objectives.pretrained.stack import find_layers
    from study.models import tuned
    from study.models.exporting import plain_config

    torch.manual_seed(seed)
    model = AutoModelForSequenceClassification.from_pretrained(
        base, num_labels=labels, problem_type=problem_type, dtype=torch.float32
    )
    if model.config.pad_token_id is None:
        model.config.pad_token_id = 0
    stack = find_layers(model)
    stack.freeze(frozen_layers)
    own = {name: p for name, p in model.named_parameters() if p.requires_grad}
    with torch.no_grad():
        for parameter in own.values():
            parameter.add_(torch.randn_like(parameter), alpha=noise)
    about = tuned.Tuned(
        base=base,
        revision="random",
        frozen_sha256=tuned.frozen_digest(model, own),
        frozen_layers=frozen_layers,
        total_layers=stack.total_layers,
        task=f"task{seed}",
        text=("text",),
        max_length=max_length,
        config=plain_config(model.config),
    )
    tuned.save(model, about, folder, own)
    return str(folder)


def measure(folders: list[str], arguments: argparse.Namespace) -> dict[str, Any]:
    import torch

    from study.models import load, load_many

    many = load_many(folders)
    apart = {name: load(folder) for name, folder in zip(many.tasks, folders, strict=True)}
    config = next(iter(apart.values())).config
    ids = torch.randint(5, min(1000, config.vocab_size), (arguments.batch, arguments.length))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    def alone() -> dict[str, Any]:
        with torch.inference_mode():
            return {name: model(**inputs).logits for name, model in apart.items()}

    expected, found = alone(), many(inputs)
    assert all(torch.equal(expected[name], found[name]) for name in expected), "the logits differ"
    ways: dict[str, Callable[[], Any]] = {"together": lambda: many(inputs), "apart": alone}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(arguments.repeats):
        for name, run in ways.items():  # in turns, so that a busy moment hits both
            began = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - began)
    tasks, layers, frozen = len(folders), config.num_hidden_layers, arguments.frozen_layers
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return {
        "tasks": tasks,
        "frozen_layers": frozen,
        "total_layers": layers,
        "together_seconds": medians["together"],
        "apart_seconds": medians["apart"],
        "share": medians["together"] / medians["apart"],
        "arithmetic": (frozen + tasks * (layers - frozen)) / (tasks * layers),
        "together_bytes": _bytes(list(many.tasks.values())),
        "apart_bytes": _bytes(list(apart.values())),
    }


def _bytes(models: list[Any]) -> int:
    found = {p.data_ptr(): p.numel() * p.element_size() for model in models for p in model.parameters()}
    return sum(found.values())


def table(rows: list[dict[str, Any]]) -> str:
    titles = "tasks", "apart", "together", "share of the time", "arithmetic", "faster by", "weights in memory"
    return "\n".join([f"| {' | '.join(titles)} |", "|---:" * len(titles) + "|", *map(_line, rows)])


def _line(row: dict[str, Any]) -> str:
    cells = (
        row["tasks"],
        f"{1000 * row['apart_seconds']:.0f} ms",
        f"{1000 * row['together_seconds']:.0f} ms",
        f"{row['share']:.2f}",
        f"{row['arithmetic']:.2f}",
        f"{1 / row['share']:.2f}x",
        f"{row['together_bytes'] / 1e6:,.0f} of {row['apart_bytes'] / 1e6:,.0f} MB",
    )
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    raise SystemExit(main())
