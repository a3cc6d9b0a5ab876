"""Depths: how many layers are frozen, in which order, and what is left to tune. Standard library only."""

from __future__ import annotations

from collections.abc import Iterable

EMBEDDINGS = -1
"""Frozen embeddings alone."""
FULL = 0
"""Nothing frozen: the full model."""


def freeze_order(frozen_layers: int) -> float:
    """Less to more frozen: nothing (0), the embeddings (-1), then layers."""
    return 0.5 if frozen_layers == EMBEDDINGS else float(frozen_layers)


def layers_frozen(frozen_layers: int) -> int:
    """Frozen embeddings freeze no layer."""
    return max(frozen_layers, 0)


def tuned_layers(total_layers: int, frozen_layers: int) -> int:
    """Frozen embeddings leave every layer tuned."""
    return total_layers - layers_frozen(frozen_layers)


def depth_name(frozen_layers: int) -> str:
    return "-1 (embeddings)" if frozen_layers == EMBEDDINGS else str(frozen_layers)


def short_name(frozen_layers: int) -> str:
    """For the axis of a figure, where the full model is no depth like the others."""
    return {EMBEDDINGS: "emb", FULL: "full"}.get(frozen_layers, str(frozen_layers))


def ranges(numbers: Iterable[int]) -> str:
    """`0, 6-12`, as the command line takes it."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(f"{p[0]}-{p[-1]}" if len(p) > 2 else ", ".join(map(str, p)) for p in parts)
