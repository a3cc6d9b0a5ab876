"""What the adaptive search has seen of one train size: scores by depth and rate, and seeds used up.

Reading only; predictions for cells still in flight can be laid over it, decisions are made elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from objectives.contract import Cell, Outcome
from objectives.depths import FULL as FULL
from objectives.depths import freeze_order as freeze_order
from objectives.depths import tuned_layers as tuned_layers
from objectives.tasks.metrics import describe
from study.analysis.chance import known_chance
from study.analysis.collapses import AT_CHANCE, collapsed
from study.analysis.samples import Counts, DepthRuns, Group, RateRuns, Sample, make_sample
from study.protocols.adaptive_settings import AdaptiveSettings, asked
from study.protocols.outcomes import CLOSED
from study.specs.study_spec import StudySpec
from study.trials.columns import DIVERGED

if TYPE_CHECKING:
    from numpy.typing import NDArray

Spot = tuple[int, int]
"""A depth (as frozen layers) and the index of a learning rate in ascending order."""


@dataclass(frozen=True)
class Run:
    seed: int
    score: float
    """As a quality: more is better, whatever the metric."""
    selection: float
    """What learning rates are chosen by; NaN where there is no selection split."""
    error: float = float("nan")
    """The score's standard error over test examples; NaN where that is not known."""


@dataclass
class Evidence:
    spec: StudySpec
    train_size: int | None
    rates: tuple[float, ...]
    depths: tuple[int, ...]
    """Candidates for the answer, ascending: everything deeper than the full model."""
    chance: float | None = None
    runs: dict[Spot, list[Run]] = field(default_factory=dict)
    diverged: dict[Spot, int] = field(default_factory=dict)
    used: dict[Spot, set[int]] = field(default_factory=dict)
    """Seeds with any outcome, failed and running ones too."""

    @classmethod
    def of(cls, spec: StudySpec, train_size: int | None, outcomes: Iterable[Outcome]) -> Evidence:
        rates = tuple(sorted(spec.learning_rates))
        index = {rate: i for i, rate in enumerate(rates)}
        depths = sorted((n for n in spec.every_depth if n != FULL), key=freeze_order)
        chance = spec.chance if spec.chance is not None else known_chance(spec.task, spec.metric)[0]
        evidence = cls(spec, train_size, rates, tuple(depths), chance)
        # In the order of the cells: the order in which workers finish must not move a sum's last bit.
        for outcome in sorted(outcomes, key=lambda o: o.cell.seed):
            cell = outcome.cell
            if cell.train_size != train_size or cell.learning_rate not in index:
                continue
            spot = (cell.frozen_layers, index[cell.learning_rate])
            evidence.used.setdefault(spot, set()).add(cell.seed)
            if outcome.state == "COMPLETE" and outcome.score is not None:
                chosen_by = outcome.selection_score
                selection = float("nan") if chosen_by is None else spec.quality(chosen_by)
                error = float("nan") if outcome.score_error is None else outcome.score_error
                evidence.add(spot, Run(cell.seed, spec.quality(outcome.score), selection, error))
            elif outcome.reason not in (None, CLOSED) and DIVERGED.search(outcome.reason or ""):
                evidence.diverged[spot] = evidence.diverged.get(spot, 0) + 1
        return evidence

    @property
    def asked(self) -> AdaptiveSettings:
        return asked(self.spec)

    def add(self, spot: Spot, run: Run) -> None:
        self.runs.setdefault(spot, []).append(run)

    @property
    def floor(self) -> float | None:
        """What no learning at all is worth; None where that is unknown."""
        return None if self.chance is None else describe(self.spec.metric).quality(self.chance, self.chance)

    def count(self, spot: Spot) -> int:
        return len(self.runs.get(spot, ()))

    def depth_count(self, depth: int) -> int:
        """Runs at a depth, whatever their learning rate."""
        return sum(len(group) for (frozen, _), group in self.runs.items() if frozen == depth)

    def tried(self, spot: Spot) -> bool:
        return bool(self.used.get(spot))

    def next_cell(self, spot: Spot) -> Cell | None:
        """The spot's next seed in the spec's order, so that seeds are shared between spots."""
        used = self.used.get(spot, set())
        seed = next((seed for seed in self.spec.seeds if seed not in used), None)
        depth, rate = spot
        return None if seed is None else Cell(depth, self.rates[rate], seed, self.train_size)

    def at_chance(self, depth: int) -> bool:
        """Whether some run at this depth is no better than chance, or hardly."""
        if self.floor is None:
            return False
        scores = [run.score for spot, group in self.runs.items() if spot[0] == depth for run in group]
        return bool(scores) and min(scores) <= self.floor + AT_CHANCE * max(max(scores) - self.floor, 0.0)

    def predict(self, cells: Iterable[Cell]) -> None:
        """Take each cell in flight as finished with the score it most likely gets.

        What is still wanted then is worth running beside them; what is not would only be a guess.
        """
        full = [run.score for (depth, _), group in self.runs.items() if depth == FULL for run in group]
        typical = float(np.median(full)) if full else 1.0
        names = ("score", "selection", "error")
        known = {
            spot: tuple(float(np.mean([getattr(r, name) for r in group])) for name in names)
            for spot, group in self.runs.items()
        }
        for cell in cells:
            spot = (cell.frozen_layers, self.rates.index(cell.learning_rate))
            # A depth never seen is put at the threshold, where it settles nothing.
            guess = typical if cell.frozen_layers == FULL else typical * self.asked.threshold
            unseen = (guess, guess if self._has_selection else float("nan"), float("nan"))
            self.add(spot, Run(cell.seed, *known.get(spot, unseen)))

    @property
    def _has_selection(self) -> bool:
        return any(run.selection == run.selection for group in self.runs.values() for run in group)

    def group(self) -> Group:
        """As the analysis has it of a finished study."""
        spots = sorted(self.runs, key=lambda spot: (freeze_order(spot[0]), spot[1]))
        fallen = self._collapsed(spots)
        searching = set(self.spec.search_seeds)
        by_depth: dict[int, list[RateRuns]] = {}
        for spot in spots:
            parts = [
                _sample(
                    self.runs[spot],
                    fallen[spot],
                    [(run.seed in searching) == search for run in self.runs[spot]],
                )
                for search in (False, True)
            ]
            samples = [sample for sample in parts if sample is not None]
            found = RateRuns(
                self.rates[spot[1]],
                samples[0],
                samples[1] if len(samples) > 1 else None,
                diverged=self.diverged.get(spot, 0),
                floor=self.floor or 0.0,
            )
            by_depth.setdefault(spot[0], []).append(found)
        return Group(
            study=None,
            protocol=self.spec.protocol,
            model=self.spec.model,
            task=self.spec.task,
            train_size=self.train_size,
            metric=self.spec.metric,
            total_layers=self.spec.total_layers,
            chance=self.chance,
            chance_source=None,
            depths=tuple(DepthRuns(depth, tuple(rates), Counts()) for depth, rates in by_depth.items()),
        )

    def _collapsed(self, spots: list[Spot]) -> dict[Spot, NDArray[np.bool_]]:
        if not spots:
            return {}
        sizes = [len(self.runs[spot]) for spot in spots]
        depths = np.unique([freeze_order(spot[0]) for spot in spots], return_inverse=True)[1]
        scores = np.array([run.score for spot in spots for run in self.runs[spot]])
        marks = collapsed(scores, np.repeat(np.arange(len(spots)), sizes), depths, self.floor)
        return dict(zip(spots, np.split(marks, np.cumsum(sizes)[:-1]), strict=True))


def _sample(runs: Sequence[Run], fallen: NDArray[np.bool_], wanted: Sequence[bool]) -> Sample | None:
    inside = np.array(wanted)
    if not inside.any():
        return None
    kept = [run for run, one in zip(runs, wanted, strict=True) if one]
    return make_sample(
        np.array([run.seed for run in kept]),
        np.array([run.score for run in kept]),
        np.array([run.selection for run in kept]),
        fallen[inside],
        errors=np.array([run.error for run in kept]),
    )
