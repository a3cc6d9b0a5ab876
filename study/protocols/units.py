"""What a cell costs in layer units: forward 1 and backward 2 per trained layer, the prefix as it runs.

An account of work, the same for every machine; seconds are the trial table's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from objectives.contract import Cell
from objectives.depths import layers_frozen, tuned_layers

Prefix = Literal["cached", "live"]


def cell_units(frozen_layers: int, total_layers: int, prefix: Prefix) -> float:
    """One trial's layer units: a live prefix runs forward in every step, a cached one not at all."""
    live = layers_frozen(frozen_layers) if prefix == "live" else 0
    return 3.0 * tuned_layers(total_layers, frozen_layers) + live


def prefix_units(frozen_layers: int, epochs: float) -> float:
    """Filling the cache of one depth: one forward pass over the data, where a trial makes `epochs`."""
    return layers_frozen(frozen_layers) / epochs


def study_units(cells: Iterable[Cell], total_layers: int, prefix: Prefix, epochs: float) -> float:
    """All cells of one model and task, each depth's cache filled once per train size."""
    cells = list(cells)
    work = sum(cell_units(cell.frozen_layers, total_layers, prefix) for cell in cells)
    if prefix == "cached":
        caches = {(cell.frozen_layers, cell.train_size) for cell in cells}
        work += sum(prefix_units(depth, epochs) for depth, _ in caches)
    return work
