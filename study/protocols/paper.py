"""The paper's protocol (arXiv:1911.03090): a learning-rate search on the full model, then every depth.

The second phase runs at the best rate with other seeds, the full model too: the best of several noisy means
flatters the one that was chosen, and fresh runs do not. It starts when every cell of the first is
finished, whichever worker finds it so; both are read from the outcomes alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from objectives.contract import Cell, Outcome, UsageError
from objectives.depths import FULL
from objectives.settings import setting
from study.cli import lists
from study.protocols.base import Defaults, Protocol, Subject
from study.protocols.outcomes import best_rate, grid_cells, not_final
from study.specs.study_spec import MOST_SEED, StudySpec


@dataclass(frozen=True, kw_only=True)
class PaperSettings:
    search_seeds: tuple[int, ...] | None = setting(
        None,
        metavar="N|LIST",
        help="paper: seeds of the learning-rate search; these runs are not used for the scores",
        default_text="as many as --seeds, numbered after them",
        read=lists.seeds,
        least=0,
        most=MOST_SEED,
    )


class Paper(Protocol):
    name = "paper"
    summary = "a rate search on the full model, then every depth at that rate"
    settings = PaperSettings
    phased = True

    def defaults(self, subject: Subject) -> Defaults:
        roberta = "roberta" in subject.model.lower() and not subject.demo
        recipe = {
            "batch_size": 16,
            "max_length": 128,
            "epochs": 10 if roberta else 3,
            "optimizer": "adam",
            "weight_decay": 0.0,
            "warmup": 0.0,
            "max_grad_norm": 1.0,
            "evaluations_per_epoch": 1,
            "score": "last",
            "mixed_precision": "no",
            "prefix": "live",
            "group_by_length": False,
        }
        return Defaults(frozen_layers=subject.upper_half, seeds=(1, 2, 3, 4, 5), recipe=recipe)

    def own_settings(self, given: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
        found = super().own_settings(given, seeds)
        after = max(seeds) + 1
        return {"search_seeds": tuple(range(after, after + len(seeds))), **found}

    def wanted(self, spec: StudySpec, outcomes: Sequence[Outcome]) -> list[Cell]:
        search = not_final(_search_cells(spec), outcomes)
        if search:
            return search
        rate = best_rate(spec, _searched(spec, outcomes), FULL)
        # Every full-model run failed for good: there is no rate to go on with.
        return [] if rate is None else not_final(_depth_cells(spec, rate), outcomes)

    def explain(self, spec: StudySpec, outcomes: Sequence[Outcome]) -> str:
        cells = _search_cells(spec)
        left = not_final(cells, outcomes)
        if left:
            done = len(cells) - len(left)
            return (
                f"paper, phase 1 of 2: rate search on the full model, {done} of {len(cells)} cells finished"
            )
        rate = best_rate(spec, _searched(spec, outcomes), FULL)
        if rate is None:
            return (
                f"paper: all {len(cells)} cells of the learning-rate search failed, so phase 2 has no rate; "
                "look at their reasons, then run again with --retry-failed"
            )
        depths = _depth_cells(spec, rate)
        done = len(depths) - len(not_final(depths, outcomes))
        return (
            f"paper, phase 2 of 2: depths at learning rate {rate:g}, {done} of {len(depths)} cells finished"
        )

    def check(self, spec: StudySpec) -> None:
        super().check(spec)
        if FULL not in spec.frozen_layers:
            raise UsageError(
                f"--protocol paper searches its rate on the full model: add 0 to --frozen-layers "
                f"{','.join(map(str, spec.frozen_layers))}"
            )

    def later(self, spec: StudySpec) -> list[Cell]:
        return [] if spec.recorded else _depth_cells(spec, spec.learning_rates[0])

    def outlook(self, spec: StudySpec) -> str:
        return f"then {len(cells)} at the best learning rate" if (cells := self.later(spec)) else ""


def _search_cells(spec: StudySpec) -> list[Cell]:
    return grid_cells(spec, [FULL], spec.learning_rates, seeds=spec.search_seeds or spec.seeds)


def _depth_cells(spec: StudySpec, rate: float) -> list[Cell]:
    return grid_cells(spec, spec.frozen_layers, [rate])


def _searched(spec: StudySpec, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The search's own outcomes, so that no other run can move its choice."""
    cells = set(_search_cells(spec))
    return [outcome for outcome in outcomes if outcome.cell in cells]
