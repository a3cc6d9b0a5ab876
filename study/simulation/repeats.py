"""Replaying a protocol against a recording: workers, time in layer units, resampled seeds, no training."""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from objectives.contract import Cell, Outcome
from study import protocols
from study.protocols.evidence import Evidence
from study.protocols.outcomes import closed_cells
from study.protocols.units import cell_units, prefix_units
from study.simulation.source import Recording, answer_of
from study.specs.study_spec import StudySpec

Score = Callable[[Cell], float]


@dataclass(frozen=True, kw_only=True)
class Replay:
    """One repeat: what the protocol's runs say in the end, and what that took."""

    frozen_layers: int | None
    """None where there is no answer."""
    probability: float | None
    """Of that answer; None where nothing is known of the noise."""
    cells: int
    units: float
    idle: float
    """Share of the workers' time in which they had nothing to do."""


def replay(
    recording: Recording,
    spec: StudySpec,
    *,
    repeat: int,
    workers: int = 1,
    seed: int = 0,
) -> Replay:
    """Run the spec's protocol to its end; the same repeat always draws the same runs for a cell."""
    drawn = _draw(recording, spec, repeat, seed)

    def score(cell: Cell) -> float:
        return drawn[cell.frozen_layers, cell.learning_rate][cell.seed - 1]

    return run(spec, score, cells=recording.cells, workers=workers)


def run(
    spec: StudySpec,
    score: Score,
    *,
    cells: Collection[Cell] | None = None,
    workers: int = 1,
) -> Replay:
    """A whole study whose cells score what `score` says; where `cells` are given, only these can be run."""
    wanted = protocols.get(spec.protocol).wanted
    closed = [] if cells is None else closed_cells(spec, cells)
    outcomes: dict[Cell, Outcome] = {}
    waiting: list[Cell] = []
    running: list[tuple[float, int, Cell]] = []
    cached: set[int] = set()
    now = busy = 0.0
    while True:
        while len(running) < workers:
            if not waiting:
                waiting = [c for c in wanted(spec, [*outcomes.values(), *closed]) if c not in outcomes]
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
        outcomes[cell] = Outcome(cell, "COMPLETE", score(cell))
    answer, probability = _answer(spec, list(outcomes.values()))
    return Replay(
        frozen_layers=answer,
        probability=probability,
        cells=len(outcomes),
        units=busy,
        idle=1 - busy / (workers * now) if now else 0.0,
    )


def _answer(spec: StudySpec, outcomes: Sequence[Outcome]) -> tuple[int | None, float | None]:
    """What the report says of these runs."""
    evidence = Evidence.of(spec, spec.train_sizes[0], outcomes)
    answer, likely = answer_of(evidence.group(), evidence.asked.threshold, evidence.asked.select)
    return answer, None if answer is None else likely.get(answer)


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
    most = max(spec.every_seed)
    return {
        spot: runs[generator.integers(len(runs), size=most)].tolist()
        for spot, runs in sorted(recording.scores.items(), key=lambda item: item[0])
    }
