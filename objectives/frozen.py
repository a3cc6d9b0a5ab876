"""How the frozen layers of the trial at hand run: once, from the cache; live; or computed for each batch.

The one place that knows why a depth's states are not in the cache; what they are is the cache's to know.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from objectives.batches import Batch
    from objectives.prefix import PrefixCache
    from objectives.replay import Replay
    from objectives.splits import Splits


@dataclass
class Frozen:
    model: PreTrainedModel
    replay: Replay
    splits: Splits
    cache: PrefixCache
    way: Literal["cached", "live"]
    dtype: torch.dtype
    """Of stored states, and of those that stand in for them."""
    warns: bool
    """Whether this process is the one that tells."""
    _depth: int = field(default=0, init=False)
    """The depth whose states are left out of the forward pass; 0 where all layers run in it."""
    _computes: bool = field(default=False, init=False)
    """The states did not fit into the cache: they are computed for each batch."""

    def load(self, depth: int) -> str | None:
        """Give every split its states at this depth; say how the frozen layers will run."""
        cached = depth >= 1 and self.way == "cached"
        why = self._load_states(depth) if cached else None
        if not cached or why:
            self.splits.load_states(self.cache, 0)
        self._depth, self._computes = depth if cached else 0, bool(why)
        if depth < 1:
            return None
        if why and self.warns:
            self.cache.warn(
                f"prefix cache: {self.splits.state_bytes():,} bytes for frozen_layers={depth} {why}; "
                "its frozen layers run in every step"
            )
        return ("uncached" if why else "cached") if cached else "live"

    def _load_states(self, depth: int) -> str | None:
        """Why the states of this depth cannot be had; None where they were loaded."""
        budget = self.cache.budget()
        if self.splits.state_bytes() > budget:
            return f"exceed the budget of {budget:,}"
        try:
            self.splits.load_states(self.cache, depth)
        except OSError as error:
            return f"could not be stored in {self.cache.folder} ({error.strerror or error})"
        return None

    @property
    def seconds(self) -> float | None:
        """What computing the training examples' states takes; those of an evaluation are no training.

        None where all layers run in every step.
        """
        if not self._depth:
            return None
        states = self.splits["train"].states
        return 0.0 if states is None else round(states.seconds, 4)

    def skipping(self) -> AbstractContextManager[None]:
        """While it lasts, layers with states answer with those of the batch that was handed over."""
        return self.replay.skipping(self._depth) if self._depth else nullcontext()

    def hand_over(self, batch: Batch) -> None:
        """The states of the next forward pass, cached or computed now."""
        states = batch.states
        if states is None and self._computes:
            states = self.replay.compute(self.model, batch.inputs, self._depth).to(self.dtype)
        if states is not None:
            # Between layers full precision runs, as it does where nothing is skipped.
            self.replay.load(states.float())
