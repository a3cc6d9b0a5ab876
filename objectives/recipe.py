"""How one trial trains: everything but the cell's own coordinates, each setting declared once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from objectives import settings
from objectives.settings import setting

AUTO = "auto"


@dataclass(frozen=True, kw_only=True)
class Recipe(settings.Checked):
    epochs: float = setting(3, help="passes over the training data", above=0, most=10_000, everyday=True)
    batch_size: int = setting(
        16, help="examples per optimiser step, over all processes", least=1, most=1_000_000, everyday=True
    )
    max_length: int = setting(
        128,
        metavar="N|auto",
        help="maximum tokens per example, longer ones are truncated; auto covers 99 % of the examples",
        least=2,
        most=1_000_000,
        words=(AUTO,),
        everyday=True,
    )
    optimizer: Literal["adam", "adamw"] = setting("adamw", help="the optimiser")
    weight_decay: float = setting(
        0.0, help="weight decay; not applied to biases and norms", least=0, most=1000
    )
    warmup: float = setting(
        0.0, metavar="EPOCHS", help="epochs of linear warm-up before the linear decay", least=0, most=10_000
    )
    max_grad_norm: float = setting(1.0, help="clip gradients to this norm", above=0, most=1e38)
    evaluations_per_epoch: int = setting(1, help="evaluations in each epoch", least=1, most=1000)
    score: Literal["last", "best"] = setting("last", help="which evaluation is the trial's score")
    mixed_precision: Literal["no", "bf16", "fp16"] = setting(
        "no",
        metavar="auto|no|bf16|fp16",
        help="precision of the matrix products, fixed when the study is planned; no is float32, TF32 on GPUs "
        "that have it",
        default_text="auto: bf16 where all GPUs here have it, else no",
        words=(AUTO,),
        everyday=True,
    )
    compile: bool = setting(False, help="run the tuned layers through torch.compile (GPUs)")
    prefix: Literal["cached", "live"] = setting(
        "cached",
        help="run frozen layers once and keep their states, without dropout (cached), or in every step, "
        "with dropout (live)",
    )
    group_by_length: bool = setting(
        True, help="draw batches of examples of similar length (seeded, still shuffled)"
    )
    selection_split: float = setting(
        0.0,
        metavar="SHARE",
        help="fraction of the training data held out to choose the learning rate",
        least=0,
        below=0.9,
    )
    accuracy: bool = setting(
        False, help="score by accuracy whatever the task's first metric is", is_flag=False
    )
