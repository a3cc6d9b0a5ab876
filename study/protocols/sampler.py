"""The adaptive search as an Optuna sampler, for a plain `study.optimize(objective)`.

It asks the protocol's own `wanted` and hands out its cells, each once, also to workers that share the
study; it makes no decision of its own and trains nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from optuna import Study, TrialPruned
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from objectives.contract import Cell, Outcome, Recipe, State, UsageError
from objectives.settings import declared
from study import protocols
from study.protocols.adaptive import Adaptive, AdaptiveSettings
from study.specs.study_spec import StudySpec

CELL = "adaptive:cell"
"""The trial's system attribute: its cell, or None where nothing was wanted when it asked."""
TURN_SECONDS = 10.0
"""A worker that has not chosen its cell by then has died between its two writes."""
_POLL_SECONDS = 0.05
_STATES: dict[TrialState, State] = {
    TrialState.COMPLETE: "COMPLETE",
    TrialState.RUNNING: "RUNNING",
    TrialState.WAITING: "WAITING",
}
_RANK = ("FAIL", "WAITING", "RUNNING", "COMPLETE")
"""Of several trials of one cell the last of these counts."""


class AdaptiveSampler(BaseSampler):
    """Suggests `frozen_layers`, `learning_rate`, `seed` (and `train_size`) until the answer is settled.

    A trial that finds nothing to do waits for a running one to end and is pruned at its first `suggest`;
    after `patience` seconds without news the worker leaves.
    """

    def __init__(self, spec: StudySpec, *, patience: float = 3600.0):
        self.spec = spec
        self.patience = patience
        self._wanted = protocols.get(spec.protocol).wanted
        self._wanted(spec, [])  # refuses a spec without an answer before anything is written

    @classmethod
    def over(
        cls,
        *,
        total_layers: int,
        frozen_layers: Sequence[int],
        learning_rates: Sequence[float],
        seeds: Sequence[int],
        **settings: Any,
    ) -> AdaptiveSampler:
        """For an objective of one's own; `settings` are the search's (threshold, confidence, budget) and the
        spec's."""
        unnamed: dict[str, Any] = dict.fromkeys(
            ("task", "metric", "model", "model_fingerprint", "data", "data_fingerprint"), "-"
        )
        grid = {"frozen_layers": frozen_layers, "learning_rates": learning_rates, "seeds": seeds}
        known = {item.name for item in declared(AdaptiveSettings)}
        own = tuple(sorted((name, settings.pop(name)) for name in known & settings.keys()))
        values = {"protocol": Adaptive.name, "recipe": Recipe(), "protocol_settings": own, **settings}
        values |= {name: tuple(choices) for name, choices in grid.items()}
        return cls(StudySpec(**unnamed, total_layers=total_layers, **values))

    def explain(self, study: Study) -> str:
        """One line: the answer so far, how sure it is, and why the search goes on or stopped."""
        return protocols.get(self.spec.protocol).explain(
            self.spec, self._outcomes(study.get_trials(deepcopy=False))
        )

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        self._raise_error_if_multi_objective(study)
        if study.direction != StudyDirection.MAXIMIZE:
            raise UsageError("the adaptive search seeks a share of the full score: use direction='maximize'")
        if CELL in trial.system_attrs or "fixed_params" in trial.system_attrs:
            return  # a retried or an enqueued trial has its cell
        cell = self._next(self._at_my_turn(study, trial))
        content = None if cell is None else asdict(cell)
        study._storage.set_trial_system_attr(trial._trial_id, CELL, content)
        trial.system_attrs[CELL] = content

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return {}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        if CELL not in trial.system_attrs:
            raise UsageError(f"an enqueued trial must name every parameter: it has no {param_name!r}")
        if trial.system_attrs[CELL] is None:
            self._wait_for_news(study, trial)
            raise TrialPruned("no cell was wanted")
        values = Cell(**trial.system_attrs[CELL]).parameters()
        if param_name not in values:
            raise UsageError(f"the adaptive search has no {param_name!r}: it suggests {', '.join(values)}")
        value = values[param_name]
        if not param_distribution._contains(param_distribution.to_internal_repr(value)):
            raise UsageError(f"{param_name}={value} is wanted but outside of {param_distribution}")
        return value

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """Stop where nothing is wanted any more and nothing runs that could change that."""
        others = [t for t in study.get_trials(deepcopy=False) if t.number != trial.number]
        outcomes = self._outcomes(others)
        cell = self._cell(trial)
        if cell is not None:
            outcomes = [outcome for outcome in outcomes if outcome.cell != cell]
            outcomes.append(Outcome(cell, _STATES.get(state, "FAIL"), values[0] if values else None))
        if not self._wanted(self.spec, outcomes):
            with suppress(RuntimeError):  # ask-and-tell has no loop to stop
                study.stop()

    def _at_my_turn(self, study: Study, trial: FrozenTrial) -> list[FrozenTrial]:
        """The other trials, once all that began before this one have chosen: so no two choose at once."""
        deadline = time.monotonic() + TURN_SECONDS
        while True:
            trials = [t for t in study.get_trials(deepcopy=False) if t.number != trial.number]
            choosing = [
                t for t in trials if t.number < trial.number and t.state == TrialState.RUNNING and _blank(t)
            ]
            if not choosing or time.monotonic() > deadline:
                return trials
            time.sleep(_POLL_SECONDS)

    def _next(self, trials: list[FrozenTrial]) -> Cell | None:
        outcomes = self._outcomes(trials)
        known = {outcome.cell for outcome in outcomes}
        # A cell that waits in the queue as a trial will be popped as that trial.
        waiting = [outcome for outcome in outcomes if outcome.state == "WAITING"]
        asked = [outcome for outcome in outcomes if outcome not in waiting]
        return next((cell for cell in self._wanted(self.spec, asked) if cell not in known), None)

    def _wait_for_news(self, study: Study, trial: FrozenTrial) -> None:
        """Until a trial that was running has ended; leave where none does within the patience."""
        deadline = time.monotonic() + self.patience
        running = self._running(study, trial)
        while running and running <= self._running(study, trial):
            if time.monotonic() > deadline:
                with suppress(RuntimeError):
                    study.stop()
                return
            time.sleep(_POLL_SECONDS)

    def _running(self, study: Study, trial: FrozenTrial) -> set[int]:
        trials = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        return {t.number for t in trials if t.number != trial.number and self._cell(t) is not None}

    def _outcomes(self, trials: Sequence[FrozenTrial]) -> list[Outcome]:
        found: dict[Cell, Outcome] = {}
        for trial in trials:
            cell = self._cell(trial)
            if cell is None:
                continue
            state = _STATES.get(trial.state, "FAIL")
            if cell not in found or _RANK.index(state) > _RANK.index(found[cell].state):
                found[cell] = Outcome(cell, state, trial.value if state == "COMPLETE" else None)
        return list(found.values())

    def _cell(self, trial: FrozenTrial) -> Cell | None:
        if trial.system_attrs.get(CELL) is not None:
            return Cell(**trial.system_attrs[CELL])
        values = {**trial.system_attrs.get("fixed_params", {}), **trial.params}
        names = ("frozen_layers", "learning_rate", "seed")
        if not values.keys() >= set(names):
            return None
        return Cell(**{name: values[name] for name in names}, train_size=values.get("train_size"))


def _blank(trial: FrozenTrial) -> bool:
    return CELL not in trial.system_attrs and "fixed_params" not in trial.system_attrs
