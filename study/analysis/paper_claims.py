"""The paper's claims as a checked list: published figure, ours, and agree, differ or cannot tell.

Differ needs evidence: a figure that our runs cannot tell from the published one is "cannot tell".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

import numpy as np

from objectives.tasks.definition import find_task
from objectives.tasks.metrics import describe
from study.analysis import published
from study.analysis.analyse import Analysis
from study.analysis.chance import task_key
from study.analysis.intervals import CONFIDENCE, student
from study.analysis.model_points import ModelPoint, model_points
from study.analysis.quality import Curve, DepthScore

Verdict = Literal["agree", "differ", "cannot tell"]
SIGNIFICANT = 0.05
_ROUNDING = 0.05
"""Published percentages have one digit after the point."""
_FROZEN_TOLERANCE = 0.05


@dataclass(frozen=True, kw_only=True)
class Claim:
    claim: str
    published: str
    source: str
    ours: str
    verdict: Verdict
    because: str


@dataclass(frozen=True, kw_only=True)
class Gain:
    """A freeze whose mean beats full fine-tuning, and how sure that is."""

    study: str | None
    model: str
    task: str
    train_size: int | None
    metric: str
    frozen_layers: int
    gain: float
    """Score minus the full model's score."""
    low: float | None
    """95 % interval of the gain, adjusted as the p-value is; None where a side has one run."""
    high: float | None
    p_value: float | None
    """Two-sided, adjusted for having picked the best of `compared` depths (Bonferroni)."""
    compared: int
    runs: int
    full_runs: int
    paired: bool


@dataclass(frozen=True, kw_only=True)
class PublishedScore:
    """One square of the paper's operating-point tables beside ours, in percent."""

    model: str
    task: str
    frozen_layers: int
    published: float
    ours: float | None
    difference: float | None
    verdict: Verdict
    because: str


def claims(analysis: Analysis) -> tuple[Claim, ...]:
    """Every claim of the paper that names a model or average, checked against this analysis."""
    return (*_tuned_claims(analysis), _frozen_claim(analysis), *_gain_claims(analysis))


def gains(curves: Sequence[Curve]) -> tuple[Gain, ...]:
    """For each curve the best freeze, where its mean is above that of a full model that learned."""
    found = (_gain(curve) for curve in curves if curve.undefined is None)
    return tuple(gain for gain in found if gain is not None)


def published_scores(analysis: Analysis) -> tuple[PublishedScore, ...]:
    """The paper's tables for the models in this analysis, square by square."""
    rows = []
    for curve in analysis.curves:
        model = published.model_key(curve.model)
        task = task_key(curve.task)
        if model is None or curve.train_size is not None or curve.demo:
            continue
        if task == "mnli" and curve.metric not in published.MNLI_METRICS:
            continue
        for frozen, scores in published.OPERATING_TABLES[model].items():
            figure = scores.get(task)
            if figure is not None:
                rows.append(_published_score(curve, frozen, figure))
    return tuple(rows)


def _tuned_claims(analysis: Analysis) -> list[Claim]:
    found: list[Claim] = []
    for name, figure in published.TUNED_LAYERS.items():
        ours = [
            m
            for m in model_points(analysis.points, as_paper=True)
            if published.model_key(m.model) == name
            and m.threshold == published.TUNED_THRESHOLD
            and m.train_size is None
        ]
        found += [_tuned_claim(analysis, m, name, figure) for m in ours]
    return found


def _tuned_claim(analysis: Analysis, model: ModelPoint, name: str, figure: int) -> Claim:
    have = {
        task_key(p.task)
        for p in analysis.points
        if (p.model, p.protocol, p.train_size) == (model.model, model.protocol, None)
        and p.task not in model.left_out
    }
    missing = [task for task in published.tasks_behind(name) if task not in have]
    share = model.probability.get(figure, 0.0)
    verdict: Verdict
    if model.tuned_layers is None:
        verdict, because = "cannot tell", "no task gives an operating point"
    elif missing and model.tuned_layers <= figure:
        verdict, because = (
            "cannot tell",
            f"{', '.join(map(_shown, missing))} not measured; more may be needed there",
        )
    elif model.at_least_tuned_layers is not None and (
        model.at_least_tuned_layers <= figure < model.tuned_layers
    ):
        verdict, because = "cannot tell", "it lies between the depths that were measured"
    elif not model.probability:
        verdict, because = "cannot tell", "no uncertainty can be claimed from these runs"
    elif model.tuned_layers == figure:
        verdict, because = "agree", f"the same number, with probability {share:.2f}"
    elif figure in model.possible:
        because = "depths that would give the published number a probability were not measured"
        verdict = "cannot tell"
    elif share >= SIGNIFICANT:
        verdict, because = "cannot tell", f"the published number has probability {share:.2f} here"
    else:
        verdict, because = "differ", f"the published number has probability {share:.2f} here"
    ours = (
        "unknown"
        if model.tuned_layers is None
        else f"{model.tuned_layers} (limited by {_shown(model.limiting_task or '')})"
    )
    return Claim(
        claim=f"{model.model}: tuned layers that keep 90 % on every task but CoLA",
        published=str(figure),
        source=published.PAPER,
        ours=ours,
        verdict=verdict,
        because=because,
    )


def _shown(task: str) -> str:
    known = find_task(task)
    return known.display if known else task


def _frozen_claim(analysis: Analysis) -> Claim:
    pairs = [
        (published.model_key(curve.model), depth.relative)
        for curve in analysis.curves
        if curve.train_size is None
        and task_key(curve.task) in (*published.TASKS, "cola")
        and published.model_key(curve.model) is not None
        for depth in [curve.at(curve.total_layers)]
        if depth is not None and depth.relative is not None
    ]
    known = {model for model, _ in pairs}
    mean = fmean(relative for _, relative in pairs) if pairs else None
    missing = [model for model in published.TUNED_LAYERS if model not in known]
    pairs_told = "1 pair" if len(pairs) == 1 else f"{len(pairs)} pairs"
    verdict: Verdict
    if mean is None:
        verdict, because = "cannot tell", "everything frozen was not measured"
    elif missing:
        verdict, because = "cannot tell", f"the average is over four models; not here: {', '.join(missing)}"
    else:
        close = abs(mean - published.EVERYTHING_FROZEN) <= _FROZEN_TOLERANCE
        verdict = "agree" if close else "differ"
        because = f"over {pairs_told} of model and task; agree is within {100 * _FROZEN_TOLERANCE:.0f} %"
    return Claim(
        claim="mean quality relative to full with everything frozen",
        published=f"{100 * published.EVERYTHING_FROZEN:.0f} %",
        source=published.PAPER,
        ours="unknown" if mean is None else f"{100 * mean:.1f} % over {pairs_told}",
        verdict=verdict,
        because=because,
    )


def _gain_claims(analysis: Analysis) -> list[Claim]:
    """Freezing beats full fine-tuning: where the paper says so, and where our runs do."""
    found = []
    for curve in analysis.curves:
        if published.model_key(curve.model) is None or curve.undefined or curve.train_size is not None:
            continue
        pair = (str(published.model_key(curve.model)), task_key(curve.task))
        figure = published.FREEZING_HELPS.get(pair)
        gain = _gain(curve)
        sure = gain is not None and gain.p_value is not None and gain.p_value < SIGNIFICANT
        if figure is None and not sure:
            continue
        verdict: Verdict
        if sure:
            verdict = "agree" if figure is not None else "differ"
            because = "a significant gain" if figure is not None else "the paper reports no gain here"
        else:
            verdict, because = "cannot tell", "the runs do not tell a gain from none"
        found.append(
            Claim(
                claim=f"{curve.model}, {curve.task}: freezing beats full fine-tuning",
                published="no gain" if figure is None else f"{100 * figure:+.2f} points at 5 seeds",
                source=published.PAPER_LOGS,
                ours="no freeze has a higher mean" if gain is None else _told(gain),
                verdict=verdict,
                because=because,
            )
        )
    return found


def _told(gain: Gain) -> str:
    sure = "one run, no p-value" if gain.p_value is None else f"p = {gain.p_value:.2g}"
    return f"{100 * gain.gain:+.2f} points at {gain.frozen_layers} frozen ({sure}, {gain.runs} runs)"


def _gain(curve: Curve) -> Gain | None:
    full = curve.at(0)
    freezes = [d for d in curve.depths if d.frozen_layers != 0 and d.score is not None]
    if full is None or full.score is None or not freezes:
        return None
    sign = 1.0 if describe(curve.metric).higher_is_better else -1.0
    best = max(freezes, key=lambda d: sign * (d.score or 0.0))
    difference = sign * ((best.score or 0.0) - full.score)
    if difference <= 0:
        return None
    shared = curve.paired and set(best.seeds) == set(full.seeds) and len(set(best.seeds)) == len(best.seeds)
    low, high, p_value = _tested(best, full, shared, len(freezes), sign)
    return Gain(
        study=curve.study,
        model=curve.model,
        task=curve.task,
        train_size=curve.train_size,
        metric=curve.metric,
        frozen_layers=best.frozen_layers,
        gain=difference,
        low=low,
        high=high,
        p_value=p_value,
        compared=len(freezes),
        runs=len(best.scores),
        full_runs=len(full.scores),
        paired=shared,
    )


def _tested(
    best: DepthScore, full: DepthScore, paired: bool, compared: int, sign: float
) -> tuple[float | None, float | None, float | None]:
    """Student's test on the pairs, Welch's without; nothing with one run, or runs that never vary.

    Interval and p-value are both adjusted for having picked the best of the depths compared (Bonferroni).
    """
    from scipy import stats

    if min(len(best.scores), len(full.scores)) < 2:
        return None, None, None
    if paired:
        full_by_seed = dict(zip(full.seeds, full.scores, strict=True))
        ours = sign * np.array(best.scores)
        theirs = sign * np.array([full_by_seed[seed] for seed in best.seeds])
        if np.ptp(ours - theirs) == 0:
            return None, None, None
        result = stats.ttest_rel(ours, theirs)
    else:
        if np.ptp(best.scores) == 0 and np.ptp(full.scores) == 0:
            return None, None, None
        result = stats.ttest_ind(sign * np.array(best.scores), sign * np.array(full.scores), equal_var=False)
    interval = result.confidence_interval(1 - (1 - CONFIDENCE) / compared)
    return float(interval.low), float(interval.high), min(1.0, float(result.pvalue) * compared)


def _reach(runs: int, std: float) -> float:
    """How far two means of the same runs may lie apart: ours, and the published one of its own seeds.

    The published runs' spread is not known and taken to be ours.
    """
    return student((1 + CONFIDENCE) / 2, runs - 1) * std * (1 / runs + 1 / published.RUNS) ** 0.5


def _published_score(curve: Curve, frozen: int, figure: float) -> PublishedScore:
    depth = curve.at(frozen)
    ours = None if depth is None or depth.score is None else 100 * depth.score
    verdict: Verdict = "cannot tell"
    if depth is None or ours is None:
        because = "not measured"
    elif abs(ours - figure) <= _ROUNDING + 1e-9:
        verdict, because = "agree", "equal as far as it is published"
    elif depth.std is None:
        because = "one run only"
    elif abs(ours - figure) <= 100 * _reach(len(depth.scores), depth.std) + _ROUNDING:
        verdict, because = "agree", "no further apart than seeds explain (95 %)"
    else:
        verdict, because = "differ", "further apart than seeds explain (95 %)"
    return PublishedScore(
        model=curve.model,
        task=curve.task,
        frozen_layers=frozen,
        published=figure,
        ours=ours,
        difference=None if ours is None else ours - figure,
        verdict=verdict,
        because=because,
    )
