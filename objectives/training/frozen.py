"""How the frozen layers of the trial at hand run: once, from the cache; live; or computed for each batch.

The one place that knows why a depth's states are not in the cache; what they are is the cache's to know.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from accelerate.utils import gather_object

from objectives import machine
from objectives.capabilities import capabilities, out_of_memory
from objectives.fitting import DEVICE_WORKERS
from objectives.prefix.build_pass import NoRoom, NotFinite
from objectives.prefix.states import DeviceStates, States

if TYPE_CHECKING:
    import torch
    from accelerate import Accelerator
    from transformers import PreTrainedModel

    from objectives.prefix.prefix_cache import PrefixCache
    from objectives.pretrained.replay import Replay
    from objectives.training.batches import Batch, Stored
    from objectives.training.splits import Splits

DEVICE_SHARE = 0.25
"""Of the device's memory that is free before a trial: gradients, optimiser and activations take the rest.
The workers of one device divide it among them."""


@dataclass
class Frozen:
    model: PreTrainedModel
    replay: Replay
    splits: Splits
    cache: PrefixCache
    way: Literal["cached", "live"]
    accelerator: Accelerator
    device: torch.device
    """Where trials run."""
    on_device: Callable[[], AbstractContextManager[None]] = nullcontext
    """Brings a model there that is kept elsewhere."""
    wanted: Callable[[], Collection[int]] = tuple
    """The depths that trials still wait for."""
    _depth: int = field(default=0, init=False)
    """The depth whose states are left out of the forward pass; 0 where all layers run in it."""
    _computes: bool = field(default=False, init=False)
    """The states did not fit into the cache: they are computed for each batch."""
    _may_place: bool = field(default=True, init=False)
    """Whether states may take memory of the device."""

    def load(self, depth: int) -> str | None:
        """Give every split its states at this depth; say how the frozen layers will run."""
        cached = depth >= 1 and self.way == "cached"
        self.make_way(depth)
        why = self._load_states(depth) if cached else None
        self._depth, self._computes = depth if cached else 0, bool(why)
        if depth < 1:
            return None
        if why and self.accelerator.is_main_process:
            size = self.splits.builder.size(depth)
            self.cache.warn(
                f"prefix cache: {size:,} bytes for frozen_layers={depth} {why}; "
                "its frozen layers run in every step"
            )
        return ("uncached" if why else "cached") if cached else "live"

    def make_way(self, depth: int) -> None:
        """Let go of states that a trial of this depth has no use for."""
        if depth != self._depth:
            self.release()

    def leave_device(self) -> None:
        """Memory ran out there: from now on states are copied to it batch by batch."""
        self._may_place = False
        self.release()

    def release(self) -> None:
        """Let go of the states that are open: whoever needs their room may have it."""
        self.splits.states = None
        self._depth = 0

    def _load_states(self, depth: int) -> str | None:
        """Why the states of this depth cannot be had; None where they were loaded.

        One process builds them; the others wait, and then open what it has built.
        """
        found, why, fault = None, None, None
        # No process may have the depth before still open when room is made.
        self.accelerator.wait_for_everyone()
        is_open = self.splits.states is not None
        if self.accelerator.is_main_process and not is_open:
            try:
                with self.on_device():
                    found = self.cache.states(self.splits.builder, depth, self.wanted)
            except NotFinite as error:
                fault = error
            except OSError as error:
                reason = error.strerror or str(error)
                stored = f"could not be stored in {self.cache.folder} ({reason})"
                why = reason if isinstance(error, NoRoom) else stored
            # What a pass held is no part of any trial's memory.
            machine.give_back_memory(capabilities(self.device))
        self.accelerator.wait_for_everyone()
        if fault is not None:
            raise fault
        if not self.accelerator.is_main_process and not is_open:
            found = self.cache.open(self.splits.builder, depth)
            why = None if found else "are not there"
        if found is not None:
            self.splits.states = self._placed(found)
        if not self._all_have(self.splits.states is not None):
            # Others share the cache, and may have added or removed states meanwhile.
            self.splits.states = None
            why = why or "are not there for all processes"
        return why

    def _all_have(self, states: bool) -> bool:
        """Whether every process of the trial has them: layers that run in one must run in all."""
        return states if self.accelerator.num_processes == 1 else all(gather_object([states]))

    def _placed(self, states: States) -> Stored:
        """On the device where they fit beside what training needs there."""
        free = capabilities(self.device).free_bytes()
        share = DEVICE_SHARE / int(os.environ.get(DEVICE_WORKERS, "1"))
        if free is None or not self._may_place or states.flat.nbytes > share * free:
            return states
        try:
            return DeviceStates(states, self.device)
        except RuntimeError as error:
            # Another process has taken the memory meanwhile.
            if not out_of_memory(error):
                raise
            traceback.clear_frames(error.__traceback__)
        self._may_place = False
        return states

    @property
    def open_depth(self) -> int | None:
        """Whose states the next trial would find open."""
        return self._depth if self.splits.states is not None else None

    @property
    def device_bytes(self) -> int:
        """That the states take of the device's memory."""
        states = self.splits.states
        return states.nbytes if isinstance(states, DeviceStates) else 0

    @property
    def seconds(self) -> float | None:
        """What computing the training examples' states takes; those of an evaluation are no training.

        None where all layers run in every step.
        """
        if not self._depth:
            return None
        states = self.splits.states
        return 0.0 if states is None else round(states.seconds * self.splits.training_share(), 4)

    def skipping(self) -> AbstractContextManager[None]:
        """While it lasts, layers with states answer with those of the batch that was handed over."""
        return self.replay.skipping(self._depth) if self._depth else nullcontext()

    def hand_over(self, batch: Batch) -> None:
        """The states of the next forward pass, cached or computed now."""
        states, builder = batch.states, self.splits.builder
        if states is None and self._computes:
            states = self.replay.compute(self.model, batch.inputs, self._depth, builder.dtype)
        elif states is not None and builder.one_token(self._depth) and builder.head_token is not None:
            states = builder.head_token.put(states, batch.inputs)
        if states is not None:
            # Between layers full precision runs, as it does where nothing is skipped.
            self.replay.load(states.float())
