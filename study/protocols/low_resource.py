"""The blog's protocol: few training examples, every train size at every depth with every replicate."""

from __future__ import annotations

from study.protocols.base import Defaults, Subject
from study.protocols.grid import Grid

BLOG_DEPTHS = (-1, 0, 2, 4, 8, 10, 12)
BLOG_LAYERS = 12
BLOG_SIZES = (50, 100, 200, 500, 1000)


class LowResource(Grid):
    name = "low-resource"
    summary = "a grid at 50 to 1000 training examples; best evaluation counts"
    table_caveat = (
        "The low-resource protocol scores each run, unless told otherwise, by its best evaluation on the "
        "validation set that it is reported on, which biases scores upwards, most for noisy runs."
    )

    def defaults(self, subject: Subject) -> Defaults:
        return Defaults(
            frozen_layers=_blog_depths(subject.total_layers),
            learning_rates=(5e-5,),
            seeds=(1, 2, 3, 4, 5),
            train_sizes=BLOG_SIZES,
            recipe={
                "batch_size": 16,
                "epochs": 10,
                "warmup": 1.0,
                "evaluations_per_epoch": 2,
                "score": "best",
                "accuracy": True,
            },
        )


def _blog_depths(total_layers: int) -> tuple[int, ...]:
    """The blog's depths of 12 layers at the same share of another model's, each once."""
    scaled = (n if n <= 0 else max(1, round(n * total_layers / BLOG_LAYERS)) for n in BLOG_DEPTHS)
    return tuple(dict.fromkeys(scaled))
