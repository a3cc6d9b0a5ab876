"""Replaying a protocol against a recording: workers, time in layer units, resampled seeds, no training."""

from __future__ import annotations

import heapq
import zlib
from dataclasses import dataclass

import numpy as np

from objectives.contract import Cell, Outcome
from study import protocols
from study.protocols import adaptive
from study.protocols.evidence import freeze_order
from study.protocols.outcomes import best_rate
from study.protocols.units import cell_units, prefix_units
from study.recording import Recording
from study.spec import StudySpec


@dataclass(frozen=True, kw_only=True)
class Replay:
    """One repeat: what the protocol answered, and what that took."""

    frozen_layers: int | None
    cells: int
    units: float
    idle: float
    """Share of the workers' time in which they had nothing to do."""
    substituted: int
    """Cells answered from another learning rate, because theirs was not recorded at that depth."""


def replay(recording: Recording, spec: StudySpec, *, repeat: int, workers: int, seed: int = 0) -> Replay:
    """Run the spec's protocol to its end; the same repeat always draws the same runs for a cell."""
    scores = _draw(recording, spec, repeat, seed)
    wanted = protocols.get(spec.protocol)
    outcomes: dict[Cell, Outcome] = {}
    waiting: list[Cell] = []
    running: list[tuple[float, int, Cell]] = []
    cached: set[int] = set()
    now = busy = 0.0
    substituted = 0
    while True:
        while len(running) < workers:
            if not waiting:
                waiting = [c for c in wanted(spec, list(outcomes.values())) if c not in outcomes]
                outcomes |= {cell: Outcome(cell, "WAITING") for cell in waiting}
            if not waiting:
                break
            cell = waiting.pop(0)
            outcomes[cell] = Outcome(cell, "RUNNING")
            units = _units(spec, cell, cached)
            busy += units
            heapq.heappush(running, (now + units, len(outcomes), cell))
        if not running:
            break
        now, _, cell = heapq.heappop(running)
        rate = recording.recorded_rate(cell)
        substituted += rate != cell.learning_rate
        outcomes[cell] = Outcome(cell, "COMPLETE", scores[cell.frozen_layers, rate][cell.seed - 1])
    return Replay(
        frozen_layers=answer(spec, list(outcomes.values())),
        cells=len(outcomes),
        units=busy,
        idle=1 - busy / (workers * now) if now else 0.0,
        substituted=substituted,
    )


def answer(spec: StudySpec, outcomes: list[Outcome]) -> int | None:
    """The adaptive search's own answer; for a protocol that runs everything, the definition's."""
    if spec.protocol == "adaptive":
        belief = adaptive.posterior(spec, outcomes, spec.train_sizes[0])
        return None if belief is None or belief.full <= 0 else belief.frozen_layers
    everywhere = best_rate(spec, outcomes, 0) if spec.select == "full-model" else None
    quality: dict[int, float] = {}
    for depth in spec.frozen_layers:
        rate = best_rate(spec, outcomes, depth) if everywhere is None or depth == 0 else everywhere
        runs = [o.score for o in outcomes if o.score is not None and _at(o.cell, depth, rate)]
        if runs:
            quality[depth] = float(np.mean(runs))
    if quality.get(0, 0.0) <= 0:
        return None
    reaching = [depth for depth, mean in quality.items() if mean >= (spec.threshold - 1e-9) * quality[0]]
    return max(reaching, key=freeze_order)


def _at(cell: Cell, depth: int, rate: float | None) -> bool:
    return cell.frozen_layers == depth and cell.learning_rate == rate


def _units(spec: StudySpec, cell: Cell, cached: set[int]) -> float:
    units = cell_units(cell.frozen_layers, spec.total_layers, spec.recipe.prefix)
    if spec.recipe.prefix == "cached" and cell.frozen_layers not in cached:
        cached.add(cell.frozen_layers)
        units += prefix_units(cell.frozen_layers, spec.recipe.epochs)
    return units


def _draw(
    recording: Recording, spec: StudySpec, repeat: int, seed: int
) -> dict[tuple[int, float], list[float]]:
    """A score for every recorded cell and simulated seed, drawn with replacement from the cell's runs."""
    name = zlib.crc32(f"{recording.model} {recording.task} {recording.train_size}".encode())
    generator = np.random.default_rng([seed, repeat, name])
    most = max(spec.seeds)
    return {
        spot: runs[generator.integers(len(runs), size=most)].tolist()
        for spot, runs in sorted(recording.scores.items(), key=lambda item: item[0])
    }
