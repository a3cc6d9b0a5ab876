"""How sure an answer is and what would change it, in sentences; it puts an analysis into words."""

from __future__ import annotations

from collections.abc import Mapping

from objectives.depths import ranges, tuned_layers
from study.analysis.analyse import Analysis
from study.analysis.model_points import ModelPoint
from study.analysis.planner import POWER, SETTLED, SettlePlan
from study.analysis.points import OperatingPoint
from study.cli.wording import counted

MOSTLY = 0.5
"""Of the doubt; where the validation examples' part is larger, more of them help more than more seeds."""
SETTLE_IT = f"settle it with {100 * POWER:.0f} % power"
_MENTIONED = 0.05
"""Other answers with less probability are not named."""


def how_sure(model: ModelPoint, point: OperatingPoint, *, several: bool) -> str:
    """The probability of the answer, of its nearest rivals, and what to tune to be on the safe side."""
    if not point.knows_probability:
        return "Unknown: the full model has only one run."
    told = [_probability(model.probability, model.tuned_layers)] if several else [_of_point(point)]
    told += _parts(point)
    sure = point.confident_tuned_layers
    if sure is not None and point.tuned_layers is not None and sure > point.tuned_layers:
        told.append(
            f"To be 95 % sure of keeping {100 * point.threshold:.4g} %, "
            f"tune {_so_many(sure, point.total_layers)}."
        )
    return " ".join(text for text in told if text)


def _of_point(point: OperatingPoint) -> str:
    between = next((b for b in point.probability_between if b.first == point.frozen_layers), None)
    total = point.total_layers
    if between is not None:
        most, fewest = tuned_layers(total, between.first), tuned_layers(total, between.last)
        return (
            f"With probability {_share(between.probability)} the minimum is between {fewest} and {most} "
            f"layers; of these only {most} was measured."
        )
    shares: dict[int, float] = {}
    for frozen, share in point.probability.items():
        tuned = tuned_layers(total, frozen)
        shares[tuned] = shares.get(tuned, 0.0) + share
    return _probability(shares, point.tuned_layers)


def _probability(shares: Mapping[int, float], tuned: int | None) -> str:
    if tuned is None or tuned not in shares:
        return ""
    others = sorted(
        ((n, p) for n, p in shares.items() if n != tuned and p >= _MENTIONED), key=lambda o: -o[1]
    )
    rivals = ", ".join(f"{layers(n)}: {p:.2f}" for n, p in others[:2])
    verb = "is" if tuned == 1 else "are"
    return (
        f"Probability that {layers(tuned)} {verb} the minimum: {_share(shares[tuned])}"
        f"{f' ({rivals})' if rivals else ''}."
    )


def _share(probability: float) -> str:
    """No answer from runs is certain."""
    return "above 0.99" if probability >= 0.995 else f"{probability:.2f}"


def _parts(point: OperatingPoint) -> list[str]:
    """Which part of the uncertainty comes from the validation examples, and which from the seeds."""
    if point.examples_share is None or point.seeds_probability is None:
        return []
    if (point.sureness or 0.0) >= 0.995:
        return []
    return [
        f"{100 * point.examples_share:.0f} % of the uncertainty comes from the choice of validation "
        "examples, the rest from the seeds; for these examples alone the probability is "
        f"{_share(point.seeds_probability)}."
    ]


def what_would_change(analysis: Analysis, point: OperatingPoint) -> str:
    """What to run to be surer, or what to settle for; nothing where it is settled."""
    plan = analysis.settle_plan(point)
    # Only a study can be added to; a table may be of anybody's runs.
    add = "; elsa launch --settle runs them" if plan and plan.worthwhile and point.study is not None else ""
    told = [] if plan is None else [f"{sentence_of(plan, point)}{add}."]
    unsure = point.sureness is not None and point.sureness < SETTLED
    if unsure and point.examples_share is not None and point.examples_share > MOSTLY:
        told.append("More validation examples would help more than more seeds.")
    return " ".join(told)


def sentence_of(plan: SettlePlan, point: OperatingPoint) -> str:
    """What would settle an answer, or what to settle for; without a full stop."""
    depths = at_depths(plan)
    if plan.unmeasured:
        return f"Runs at {depths} would settle it"
    if plan.worthwhile and plan.seeds is not None:
        return f"{counted(plan.seeds, 'more seed')} at {depths} and at the full model would {SETTLE_IT}"
    needed = (
        "more than 1,000 more seeds" if plan.seeds is None else f"about {counted(plan.seeds, 'more seed')}"
    )
    return f"This would need {needed}; use the range instead: {settle_for(plan, point)}"


def at_depths(plan: SettlePlan) -> str:
    return f"{ranges(plan.frozen_layers)} frozen {'layer' if plan.frozen_layers == (1,) else 'layers'}"


def settle_for(plan: SettlePlan, point: OperatingPoint) -> str:
    """The range that holds the answer with the probability that settles it."""
    fewest, most = (tuned_layers(point.total_layers, n) for n in (plan.last, plan.first))
    return f"between {fewest} and {most} tuned layers"


def reliability(point: OperatingPoint) -> str:
    """Runs that collapsed or diverged at the answer or the full model: they have to be run again."""
    parts = [
        f"{100 * (1 - share):.0f} % of the runs {where}"
        for share, where in ((point.success, "at this depth"), (point.full_success, "of the full model"))
        if share is not None and share < 1
    ]
    if point.frozen_layers == 0:
        parts = parts[-1:]
    if not parts:
        return ""
    return f"{' and '.join(parts)} learned nothing; the quality is that of the others."


def _so_many(tuned: int, total: int) -> str:
    return f"all {total} layers" if tuned == total else layers(tuned)


def layers(number: int) -> str:
    return "1 layer" if number == 1 else f"{number} layers"
