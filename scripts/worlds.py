"""Made-up studies whose truth is known: quality by depth and rate, noise of runs, collapses, and runs drawn
of it.

For measuring how often the analysis and the adaptive search are right; nothing here is shown to users of a
study.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from objectives.depths import layers_frozen

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

Shape = Literal["steep", "gradual", "plateau", "dip", "cliff"]
SHAPES: tuple[Shape, ...] = ("steep", "gradual", "plateau", "dip", "cliff")
RATES = (1e-5, 2e-5, 3e-5, 4e-5, 5e-5)


@dataclass(frozen=True, kw_only=True)
class World:
    """One model and task as it really is."""

    total_layers: int
    depths: tuple[int, ...]
    rates: tuple[float, ...]
    quality: Array
    """(depths, rates): the mean score of runs that learn."""
    noise: Array
    """(depths,): the standard deviation of such a run."""
    shared: float
    """The share of that variance which runs with one seed have in common."""
    collapse: Array
    """(depths, rates): the probability that a run learns nothing."""
    chance: float

    @property
    def best(self) -> NDArray[np.int64]:
        """The rate with the highest expected score at each depth."""
        expected = (1 - self.collapse) * self.quality + self.collapse * self.chance
        return expected.argmax(axis=1)

    @property
    def relative(self) -> Array:
        """True quality of runs that learn, at the best rates, relative to the full model's."""
        top = np.take_along_axis(self.quality, self.best[:, None], axis=1)[:, 0]
        relative: Array = top / top[0]
        return relative

    def answer(self, threshold: float) -> int:
        """The true operating point, as frozen layers."""
        return self.depths[int(np.flatnonzero(self.relative >= threshold - 1e-12).max())]

    def draw(self, generator: np.random.Generator, seeds: int) -> Array:
        """(depths, rates, seeds): the scores of a whole grid."""
        shape = (*self.quality.shape, seeds)
        common = generator.standard_normal((1, len(self.rates), seeds))
        own = generator.standard_normal(shape)
        noise = self.noise[:, None, None] * (self.shared**0.5 * common + (1 - self.shared) ** 0.5 * own)
        scores = self.quality[:, :, None] + noise
        fallen = generator.random(shape) < self.collapse[:, :, None]
        nothing = self.chance + 0.002 * np.abs(generator.standard_normal(shape))
        drawn: Array = np.where(fallen, nothing, scores)
        return drawn


def world(
    generator: np.random.Generator,
    shape: Shape,
    *,
    layers: int = 12,
    rates: Sequence[float] = RATES,
    noise: float = 0.01,
    uneven: float = 1.0,
    shared: float = 0.0,
    full: float = 0.85,
    chance: float = 0.5,
    collapse: float = 0.0,
    threshold: float = 0.9,
) -> World:
    """A curve of the given shape that crosses the threshold somewhere in the upper half of the layers.

    `uneven` is how much noisier the full model is than everything frozen; `collapse` the share of runs that
    learn nothing, everywhere.
    """
    depths = (0, *range((layers + 1) // 2, layers + 1))
    kept = np.array([1.0, *_kept(generator, shape, np.array(depths[1:]), layers, threshold)])
    peak = generator.uniform(0, len(rates) - 1)
    offsets = np.arange(len(rates)) - peak
    bend = generator.choice([0.002, 0.01])
    quality = full * kept[:, None] * (1 - bend * offsets**2)[None, :]
    spread = noise * np.geomspace(uneven**0.5, uneven**-0.5, len(depths))
    return World(
        total_layers=layers,
        depths=depths,
        rates=tuple(rates),
        quality=quality,
        noise=spread,
        shared=shared,
        collapse=np.full(quality.shape, collapse),
        chance=chance,
    )


def with_collapses_at_high_rates(found: World) -> World:
    """As large models do: the full model learns at the lowest rates only, deep freezes at most of them."""
    order = np.arange(len(found.rates)) / max(len(found.rates) - 1, 1)
    tuned = 1 - np.array([layers_frozen(n) for n in found.depths]) / found.total_layers
    likely = np.clip(1.6 * order[None, :] * tuned[:, None] ** 0.5 - 0.1, 0.0, 0.98)
    best = 1 - 0.01 * (np.arange(len(found.rates)) ** 2) / max(len(found.rates) - 1, 1)
    level = found.quality.max(axis=1)
    return World(**{**vars(found), "collapse": likely, "quality": level[:, None] * best[None, :]})


def _kept(
    generator: np.random.Generator, shape: Shape, depths: NDArray[np.int64], layers: int, threshold: float
) -> Array:
    """What each freeze keeps of the full model's quality."""
    at = int(generator.integers(0, len(depths)))
    beyond = np.arange(len(depths)) - at - generator.uniform(0.15, 0.85)
    step = {"steep": 0.04, "gradual": 0.01, "plateau": 0.0, "dip": 0.03, "cliff": 0.0}[shape] * 12 / layers
    if shape == "cliff":
        return np.where(beyond < 0, 0.97, 0.55)
    if shape == "plateau":
        level = threshold + generator.choice([-0.006, 0.006])
        return np.where(beyond < 0.5, level, level - 0.15)
    kept = np.minimum(threshold - step * beyond, 1.0 - 0.002 * np.arange(len(depths)))
    if shape == "dip" and at > 1:
        kept[generator.integers(0, at)] = threshold - 0.05
    return kept


def table(worlds: Sequence[World], scores: Sequence[Array], **columns: Any) -> Any:
    """The trial table of whole grids, one model for each world."""
    import pandas as pd

    from study.trials.trial_table import normalise

    parts = []
    for number, (found, drawn) in enumerate(zip(worlds, scores, strict=True)):
        depth, rate, seed = (index.ravel() for index in np.indices(drawn.shape))
        parts.append(
            pd.DataFrame(
                {
                    "model": f"world-{number:05d}",
                    "total_layers": found.total_layers,
                    "frozen_layers": np.array(found.depths)[depth],
                    "learning_rate": np.array(found.rates)[rate],
                    "seed": seed + 1,
                    "score": drawn.ravel(),
                    "chance": found.chance,
                }
            )
        )
    whole = pd.concat(parts, ignore_index=True)
    whole = whole.assign(task="made up", train_size="", state="", metric="accuracy", **columns)
    return normalise(whole, source="made-up runs")
