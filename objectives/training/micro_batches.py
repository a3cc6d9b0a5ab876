"""How many examples a process takes through the model at a time, and what follows when memory runs out."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from objectives.depths import freeze_order

_REASON = "out of memory with a micro-batch of"
_HELD = " and states of frozen layers in the device's memory"
_SAID = re.compile(rf"{_REASON} (\d+)({_HELD})?")


def failure(size: int, reason: str, *, held: bool = False) -> str:
    """Why a trial failed, in words that the functions here know again.

    `held` says that states of frozen layers were in the device's memory, where they need not be.
    """
    return f"{_REASON} {size}{_HELD if held else ''}: {reason}"


def held_states(failed: str | None) -> bool:
    said = _SAID.search(failed or "")
    return said is not None and said[2] is not None


def needs_less_next_time(failed: str) -> bool:
    """Whether the next attempt will hold less memory, and so is no mere repetition."""
    said = _SAID.search(failed)
    return said is not None and (said[2] is not None or int(said[1]) > 1)


@dataclass
class MicroBatches:
    """Of one process; remembers what fitted, so that no trial finds it out again."""

    whole: int
    """What a trial begins with: the process's part of a batch, or less where less was asked for."""
    _most: dict[int, int] = field(default_factory=dict)
    """By depth, where more did not fit."""

    @classmethod
    def of(cls, batch_size: int, processes: int, wanted: int | None) -> MicroBatches:
        part = math.ceil(batch_size / processes)
        return cls(part if wanted is None else min(part, wanted))

    def first(self, depth: int, failed: str | None = None) -> int:
        """What to begin a trial of this depth with; `failed` is why the attempt before failed, if it did."""
        if failed and (said := _SAID.search(failed)) and not said[2]:
            self.shrink(depth, int(said[1]))
        # What did not fit with more layers frozen does not fit with fewer.
        frozen = freeze_order(depth)
        return min(
            (size for other, size in self._most.items() if freeze_order(other) >= frozen), default=self.whole
        )

    def shrink(self, depth: int, size: int) -> int | None:
        """Half of what did not fit; None where there is nothing to halve."""
        self._most[depth] = max(1, size // 2)
        return None if size == 1 else self._most[depth]
