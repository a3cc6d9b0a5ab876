"""What a share of the full model's quality is, in a sentence: of a score, of an error, or of both."""

from __future__ import annotations

from collections.abc import Iterable

from objectives.tasks.metrics import describe

_ERROR = (
    "(chance - error) / (chance - full model's error), where chance is the error of the best constant answer"
)


def keeps(metrics: Iterable[str]) -> str:
    scores, errors = _kinds(metrics)
    if not errors:
        return "Keeps: the score as a share of the full model's."
    if not scores:
        return f"Keeps: {_ERROR}."
    return f"Keeps: the score as a share of the full model's; of an error, {_ERROR}."


def drawn(metrics: Iterable[str]) -> str:
    """The caption of a figure of relative quality."""
    scores, errors = _kinds(metrics)
    if not errors:
        return "Mean score over seeds as a share of the full model's (the paper's Figure 1)."
    if not scores:
        return f"Relative quality of the mean error over seeds: {_ERROR}."
    return f"Mean score over seeds as a share of the full model's; of an error, {_ERROR}."


def above_chance(metrics: Iterable[str]) -> str:
    scores, errors = _kinds(metrics)
    told = (
        "Above chance: (score - chance) / (full - chance), where chance is the best constant answer's score."
    )
    if not errors:
        return told
    same = "an error's relative quality is measured from chance already"
    return f"{told[:-1]}; {same}." if scores else f"Above chance: {same}."


def _kinds(metrics: Iterable[str]) -> tuple[bool, bool]:
    """Whether some are better the higher they are, and whether some are errors."""
    higher = {describe(metric).higher_is_better for metric in metrics}
    return True in higher, False in higher
