"""How sure an answer is and what would change it, in sentences; it puts an analysis into words."""

from __future__ import annotations

from objectives.depths import ranges
from study.analysis.analyse import Analysis
from study.analysis.model_points import ModelPoint
from study.analysis.planner import POWER, SettlePlan
from study.analysis.points import OperatingPoint
from study.reporting.names import count

MOSTLY = 0.5
"""Of the doubt; where the test set's part is larger, more test data helps more than more seeds."""
_MENTIONED = 0.05
"""Other answers with less probability are not named."""


def how_sure(model: ModelPoint, point: OperatingPoint, *, several: bool) -> str:
    """The probability of the answer, of its nearest rival, and what to tune to be on the safe side."""
    if not point.knows_probability:
        return "The full model was run once: how sure this is cannot be said."
    told = [_model_probability(model) if several else _probability(point), *_parts(point)]
    sure = point.confident_tuned_layers
    if sure is not None and point.tuned_layers is not None and sure > point.tuned_layers:
        told.append(f"To be 95 % sure of {100 * point.threshold:.4g} %, tune {layers(sure)}.")
    return " ".join(text for text in told if text)


def _model_probability(model: ModelPoint) -> str:
    share = model.probability.get(model.tuned_layers) if model.tuned_layers is not None else None
    if share is None:
        return ""
    others = {n: p for n, p in model.probability.items() if n != model.tuned_layers and p >= _MENTIONED}
    return f"The probability of this answer is {share:.2f}{_rivals(others, 'tuned')}."


def _probability(point: OperatingPoint) -> str:
    between = next((b for b in point.probability_between if b.first == point.frozen_layers), None)
    if between is not None:
        return (
            f"With probability {between.probability:.2f} the answer lies between {max(between.first, 0)} and "
            f"{between.last} frozen layers; of these only the first was measured."
        )
    share = point.sureness or 0.0
    others = {n: p for n, p in point.probability.items() if n != point.frozen_layers and p >= _MENTIONED}
    return f"The probability of this answer is {share:.2f}{_rivals(others, 'frozen')}."


def _rivals(others: dict[int, float], kind: str) -> str:
    likely = sorted(others.items(), key=lambda item: -item[1])[:2]
    return "".join(f", of {n} {kind} layers {p:.2f}" for n, p in likely)


def _parts(point: OperatingPoint) -> list[str]:
    """Which part of the doubt is the test set's, and which the seeds'."""
    if point.examples_share is None or point.seeds_probability is None:
        return []
    if (point.sureness or 0.0) >= 0.995:
        return []
    return [
        f"Of the doubt {100 * point.examples_share:.0f} % is the luck of the test examples and the rest "
        "that of "
        f"the seeds; on this very test set the probability is {point.seeds_probability:.2f}."
    ]


def what_would_change(analysis: Analysis, point: OperatingPoint) -> str:
    """What to run to be surer, or what to be content with; nothing where it is settled."""
    plan = analysis.settle_plan(point)
    told = [] if plan is None else [_plan(plan)]
    unsure = point.sureness is not None and point.sureness < 0.9
    if unsure and point.examples_share is not None and point.examples_share > MOSTLY:
        told.append("More test data would help more than more seeds.")
    return " ".join(told)


def _plan(plan: SettlePlan) -> str:
    depths = ranges(plan.frozen_layers)
    if plan.unmeasured:
        return f"Running {depths} frozen would settle it; elsa launch --settle does that."
    if plan.worthwhile and plan.seeds is not None:
        return (
            f"{count(plan.seeds, 'more seed').capitalize()} at {depths} frozen and at the full model "
            "would settle "
            f"it with {POWER:.0%} power; elsa launch --settle runs them."
        )
    needed = (
        "even 1,000 more seeds would not do"
        if plan.seeds is None
        else f"that takes about {plan.seeds:,} more seeds"
    )
    return (
        f"Do not expect to settle it ({needed}): be content with between {max(plan.first, 0)} and "
        f"{plan.last} "
        "frozen layers."
    )


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
    return (
        f"{' and '.join(parts)} learned nothing, and would have to be repeated; the quality is of the others."
    )


def layers(number: int) -> str:
    return "1 layer" if number == 1 else f"{number} layers"
