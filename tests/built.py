"""What computes states for the prefix cache, of a tiny model and tiny data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tiny
import torch

from objectives.data.encoding import encode
from objectives.data.task_data import load_data
from objectives.prefix import building
from objectives.prefix.building import Builder, weight_digests
from objectives.pretrained.models import Pretrained
from objectives.pretrained.replay import Replay
from objectives.pretrained.stack import find_layers
from objectives.tasks.definition import get_task

TASK = get_task("sst2")


def builder(
    tmp_path: Path,
    *,
    family: str = "bert",
    train: int = 32,
    dtype: torch.dtype = torch.float32,
    chunks: int = 1,
    **changes: Any,
) -> Builder:
    """Of a tiny model, whose states of one depth are cut into about so many chunks."""
    model, examples = tmp_path / f"{family}{len(changes)}", tmp_path / f"data-{train}"
    if not model.exists():  # Others may be reading it.
        tiny.save_model(family, model, **changes)
    if not examples.exists():
        tiny.save_data(examples, train)
    loaded = Pretrained(str(model), TASK, torch.device("cpu"))
    data = load_data(TASK, str(examples))
    encoded = encode(
        TASK,
        data.train,
        loaded.tokenizer,
        max_length=16,
        left=False,
        key=f"{train}",
        cache=tmp_path / "tokens",
    )
    stack = find_layers(loaded.model)
    made = Builder(
        loaded.model, Replay(loaded.model, stack), encoded, weight_digests(stack), dtype, torch.no_grad
    )
    made.layout = building.Layout(encoded.lengths, -(-int(encoded.offsets[-1]) // chunks))
    return made
