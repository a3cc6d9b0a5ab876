"""Operating points: the most that can be frozen at a wanted share of the full model's quality.

One per model, task, train size and threshold; each claim of it is read from the same joint distribution.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from objectives.depths import layers_frozen, tuned_layers
from objectives.tasks.metrics import describe
from study.analysis.quality import Curve, DepthScore
from study.analysis.verdict import Verdict, verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from study.analysis.estimate import Estimate

Status = Literal["ok", "no answer"]
ONLY_FULL = "only the full model was run: add depths to --frozen-layers"


@dataclass(frozen=True, kw_only=True)
class Between:
    """The probability that the answer lies between two depths, of which only the first was measured."""

    first: int
    last: int
    probability: float


@dataclass(frozen=True, kw_only=True)
class ChancePoint:
    """The operating point in the chance-corrected view, (score - chance) / (full - chance)."""

    frozen_layers: int | None
    tuned_layers: int | None
    relative: float | None
    relative_low: float | None
    relative_high: float | None
    confident_frozen_layers: int | None
    probability: dict[int, float]


@dataclass(frozen=True, kw_only=True)
class OperatingPoint:
    study: str | None
    protocol: str | None
    model: str
    task: str
    train_size: int | None
    metric: str
    threshold: float
    total_layers: int
    status: Status
    reason: str | None
    """Why there is no answer, and what to try."""
    full_score: float | None
    frozen_layers: int | None
    tuned_layers: int | None
    deepest_frozen_layers: int | None
    """Where the depths right beyond the answer were not measured: the deepest that it could be."""
    score: float | None
    relative: float | None
    relative_low: float | None
    relative_high: float | None
    learning_rate: float | None
    trials: int
    """Runs behind `score`."""
    full_trials: int
    success: float | None
    """Share of the runs at the answer that neither collapsed nor diverged."""
    full_success: float | None
    confident_frozen_layers: int | None
    """The deepest freeze that reaches the threshold with 95 % confidence, as do all smaller ones measured."""
    confident_tuned_layers: int | None
    probability: dict[int, float]
    """Of each depth being the answer, where the next deeper one was measured, too."""
    probability_between: tuple[Between, ...]
    """Of the answer lying somewhere in a stretch of depths that were not measured."""
    probability_undefined: float
    """Of the full model scoring nothing that a share could be taken of."""
    seeds_probability: float | None
    """The probability of this answer for these test examples alone, without their variation."""
    examples_share: float | None
    """Of the variance that makes the answer unsure, the share that more test examples would lessen."""
    sustained: bool
    """False where some smaller freeze fails although this one passes, or nothing passes."""
    open_ended: bool
    """Nothing deeper than the answer was measured: the need is at most `tuned_layers`."""
    freezes: int
    """Depths other than 0 with a score."""
    chance: float | None
    chance_corrected: ChancePoint | None
    demo: bool
    notes: tuple[str, ...]

    @property
    def fewest_tuned_layers(self) -> int | None:
        """As few as might do, by what was not measured."""
        deepest = self.deepest_frozen_layers
        return self.tuned_layers if deepest is None else tuned_layers(self.total_layers, deepest)

    @property
    def knows_probability(self) -> bool:
        return bool(self.probability or self.probability_between)

    @property
    def sureness(self) -> float | None:
        """The probability of this answer, or of the stretch of unmeasured depths that it begins."""
        if self.frozen_layers is None or not self.knows_probability:
            return None
        between = next((b for b in self.probability_between if b.first == self.frozen_layers), None)
        return between.probability if between else self.probability.get(self.frozen_layers, 0.0)


def operating_point(
    curve: Curve,
    estimate: Estimate,
    draws: NDArray[np.float64] | None,
    threshold: float,
    seed_draws: NDArray[np.float64] | None = None,
) -> OperatingPoint:
    """`draws` are of the estimate; `seed_draws` of its part over seeds, where it has one over examples,
    too."""
    measured = [depth for depth in curve.depths if depth.score is not None]
    freezes = sum(depth.frozen_layers != 0 for depth in measured)
    reason = curve.undefined or (None if freezes else ONLY_FULL)
    found = verdict(estimate, threshold, draws) if reason is None else None
    answer = curve.depths[found.answer] if found and found.answer is not None else None
    confident = curve.depths[found.confident] if found and found.confident is not None else None
    exact, between = _probabilities(curve, found)
    deepest = None if answer is None else _last_before_next(curve, answer.frozen_layers)
    return OperatingPoint(
        study=curve.study,
        protocol=curve.protocol,
        model=curve.model,
        task=curve.task,
        train_size=curve.train_size,
        metric=curve.metric,
        threshold=threshold,
        total_layers=curve.total_layers,
        status="ok" if reason is None else "no answer",
        reason=reason,
        full_score=curve.full_score,
        frozen_layers=answer.frozen_layers if answer else None,
        tuned_layers=answer.tuned_layers if answer else None,
        deepest_frozen_layers=deepest,
        score=answer.score if answer else None,
        relative=answer.relative if answer else None,
        relative_low=answer.relative_low if answer else None,
        relative_high=answer.relative_high if answer else None,
        learning_rate=answer.learning_rate if answer else None,
        trials=len(answer.scores) if answer else 0,
        full_trials=curve.full_runs,
        success=answer.success if answer else None,
        full_success=curve.depths[0].success if curve.full_score is not None else None,
        confident_frozen_layers=confident.frozen_layers if confident else None,
        confident_tuned_layers=confident.tuned_layers if confident else None,
        probability=exact,
        probability_between=between,
        probability_undefined=found.undefined if found else 0.0,
        seeds_probability=_seeds_probability(estimate, threshold, found, seed_draws),
        examples_share=_examples_share(estimate, threshold, found),
        sustained=found.sustained if found else False,
        open_ended=answer is not None and answer is measured[-1] and answer.tuned_layers > 0,
        freezes=freezes,
        chance=curve.chance,
        chance_corrected=_chance_point(curve, estimate, draws, threshold) if reason is None else None,
        demo=curve.demo,
        notes=tuple(_notes(curve, estimate, threshold, answer, deepest, reason)),
    )


def _probabilities(curve: Curve, found: Verdict | None) -> tuple[dict[int, float], tuple[Between, ...]]:
    """By depth, and by stretch where the depths right beyond one were not measured."""
    exact: dict[int, float] = {}
    between = []
    shares = zip(curve.depths, found.probability, strict=True) if found and found.probability else ()
    for depth, share in shares:
        last = _last_before_next(curve, depth.frozen_layers) if share > 0 else None
        if share > 0 and last is None:
            exact[depth.frozen_layers] = share
        elif last is not None:
            between.append(Between(first=depth.frozen_layers, last=last, probability=share))
    return exact, tuple(between)


def _last_before_next(curve: Curve, frozen_layers: int) -> int | None:
    """The last depth before the next one measured, where there is any in between: the answer could be
    there."""
    here = layers_frozen(frozen_layers)
    beyond = [layers_frozen(d.frozen_layers) for d in curve.depths if d.score is not None]
    last = min((n for n in beyond if n > here), default=curve.total_layers + 1) - 1
    return last if last > here else None


def _boundary(estimate: Estimate, found: Verdict | None) -> int | None:
    """The depth that decides: the next measured one beyond the answer, else the answer itself."""
    if found is None or found.answer is None or not found.probability:
        return None
    beyond = [i for i in range(found.answer + 1, len(estimate.means)) if np.isfinite(estimate.means[i])]
    return beyond[0] if beyond else found.answer


def _seeds_probability(
    estimate: Estimate, threshold: float, found: Verdict | None, draws: NDArray[np.float64] | None
) -> float | None:
    if found is None or found.answer is None or draws is None or not found.probability:
        return None
    return verdict(estimate.seeds_alone(), threshold, draws).probability[found.answer]


def _examples_share(estimate: Estimate, threshold: float, found: Verdict | None) -> float | None:
    index = _boundary(estimate, found)
    if index is None or estimate.over_examples is None:
        return None
    whole, seeds = (e.contrast(index, threshold).variance for e in (estimate, estimate.seeds_alone()))
    return 1 - seeds / whole if whole > 0 else None


def _chance_point(
    curve: Curve, estimate: Estimate, draws: NDArray[np.float64] | None, threshold: float
) -> ChancePoint | None:
    """None where chance is unknown."""
    if curve.chance is None:
        return None
    level = describe(curve.metric).quality(curve.chance, curve.chance)
    found = verdict(estimate, threshold, draws, level)
    answer = curve.depths[found.answer] if found.answer is not None else None
    confident = curve.depths[found.confident] if found.confident is not None else None
    interval = None
    if found.answer and found.probability:
        interval = estimate.ratio_interval(found.answer, level)
    low, high = interval or (None, None)
    return ChancePoint(
        frozen_layers=answer.frozen_layers if answer else None,
        tuned_layers=answer.tuned_layers if answer else None,
        relative=answer.chance_corrected if answer else None,
        relative_low=low,
        relative_high=high,
        confident_frozen_layers=confident.frozen_layers if confident else None,
        probability=_probabilities(curve, found)[0],
    )


def _notes(
    curve: Curve,
    estimate: Estimate,
    threshold: float,
    answer: DepthScore | None,
    deepest: int | None,
    reason: str | None,
) -> list[str]:
    if reason is not None:
        return [reason]
    found = []
    if estimate.runs[0] < 2:
        found.append("one run of the full model: no uncertainty can be claimed, so there is no probability")
    else:
        single = [
            str(d.frozen_layers) for d, runs in zip(curve.depths, estimate.runs, strict=True) if runs == 1
        ]
        if single:
            found.append(
                f"one run only at frozen {', '.join(single)}: its noise is taken from the other depths"
            )
    if answer is not None and deepest is not None:
        first = layers_frozen(answer.frozen_layers) + 1
        span = f"{first}" if deepest == first else f"{first} to {deepest}"
        found.append(
            f"frozen {span} was not measured: at {threshold:.4g} the answer could be as deep as {deepest}"
        )
    return found
