"""What the adaptive search has seen of one train size: scores by depth and rate, and seeds used up.

Reading only; predictions for cells still in flight can be laid over it, decisions are made elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from objectives.contract import Cell, Outcome
from study.protocols.outcomes import selection_value
from study.spec import StudySpec

FULL = 0


def freeze_order(frozen_layers: int) -> float:
    """From less to more frozen: nothing (0), the embeddings (-1), then layers, as in the analysis."""
    return 0.5 if frozen_layers == -1 else float(frozen_layers)


def tuned_layers(total_layers: int, frozen_layers: int) -> int:
    """Frozen embeddings leave every layer tuned."""
    return total_layers - max(frozen_layers, 0)


Spot = tuple[int, int]
"""A depth (as frozen layers) and the index of a learning rate in ascending order."""


@dataclass
class Evidence:
    spec: StudySpec
    train_size: int | None
    rates: tuple[float, ...]
    depths: tuple[int, ...]
    """Candidates for the answer, ascending: everything deeper than the full model."""
    scores: dict[Spot, list[float]] = field(default_factory=dict)
    selection: dict[Spot, list[float]] = field(default_factory=dict)
    """What learning rates are chosen by; the scores themselves where there is no selection split."""
    used: dict[Spot, set[int]] = field(default_factory=dict)
    """Seeds with any outcome, failed and running ones too."""

    @classmethod
    def of(cls, spec: StudySpec, train_size: int | None, outcomes: Iterable[Outcome]) -> Evidence:
        rates = tuple(sorted(spec.learning_rates))
        index = {rate: i for i, rate in enumerate(rates)}
        evidence = cls(
            spec,
            train_size,
            rates,
            tuple(sorted((n for n in spec.frozen_layers if n != FULL), key=freeze_order)),
        )
        # In the order of the cells: the order in which workers finish must not move a sum's last bit.
        for outcome in sorted(outcomes, key=lambda o: o.cell.seed):
            cell = outcome.cell
            if cell.train_size != train_size or cell.learning_rate not in index:
                continue
            spot = (cell.frozen_layers, index[cell.learning_rate])
            evidence.used.setdefault(spot, set()).add(cell.seed)
            if outcome.state == "COMPLETE" and outcome.score is not None:
                choice = selection_value(outcome)
                evidence.add(spot, outcome.score, outcome.score if choice is None else choice)
        return evidence

    def add(self, spot: Spot, score: float, selection: float) -> None:
        self.scores.setdefault(spot, []).append(score)
        self.selection.setdefault(spot, []).append(selection)

    def runs(self, spot: Spot) -> int:
        return len(self.scores.get(spot, ()))

    def depth_runs(self, depth: int) -> int:
        """Runs at a depth, whatever their learning rate."""
        return sum(len(group) for (frozen, _), group in self.scores.items() if frozen == depth)

    def tried(self, spot: Spot) -> bool:
        return bool(self.used.get(spot))

    def next_cell(self, spot: Spot) -> Cell | None:
        """The spot's next seed in the spec's order, so that seeds are shared between spots."""
        used = self.used.get(spot, set())
        seed = next((seed for seed in self.spec.seeds if seed not in used), None)
        depth, rate = spot
        return None if seed is None else Cell(depth, self.rates[rate], seed, self.train_size)

    def predict(self, cells: Iterable[Cell]) -> None:
        """Take each cell in flight as finished with the score it most likely gets.

        What is still wanted then is worth running beside them; what is not would only be a guess.
        """
        full = [score for (depth, _), group in self.scores.items() if depth == FULL for score in group]
        typical = float(np.median(full)) if full else 1.0
        known = {spot: float(np.mean(group)) for spot, group in self.scores.items()}
        choice = {spot: float(np.mean(group)) for spot, group in self.selection.items()}
        for cell in cells:
            spot = (cell.frozen_layers, self.rates.index(cell.learning_rate))
            # A depth never seen is put at the threshold, where it settles nothing.
            guess = typical if cell.frozen_layers == FULL else typical * self.spec.threshold
            self.add(spot, known.get(spot, guess), choice.get(spot, guess))
