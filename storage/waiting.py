"""The trials that waited when a worker last looked, by depth: which of them it tries next.

Workers walk each depth in an order of their own, so that they seldom meet.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Sequence
from itertools import islice

LOOK_AHEAD = 64


class Waiting:
    def __init__(self, trials: Iterable[tuple[int, int | None]] = (), order: random.Random | None = None):
        """Trial ids with the layers that each freezes; None for one that is no cell."""
        self._by_depth: dict[int | None, list[int]] = {}
        for trial_id, depth in trials:
            self._by_depth.setdefault(depth, []).append(trial_id)
        for ids in self._by_depth.values():
            (order or random).shuffle(ids)
        # What is no cell comes last: it is only tried to be found out.
        self._depths = sorted(self._by_depth, key=lambda depth: (depth is None, depth))
        self._last: int | None = None

    def __bool__(self) -> bool:
        return bool(self._by_depth)

    def pop(self, preferred: Sequence[int] = ()) -> int:
        """One of the first depth that has any: the preferred ones first, then the others from the lowest."""
        depth = next((depth for depth in preferred if depth in self._by_depth), self._depths[0])
        ids = self._by_depth[depth]
        found = ids.pop()
        self._last = depth
        self._drop_empty(depth)
        return found

    def ahead(self) -> list[int]:
        """Those that are tried next: of the depth of the last one, then of the others in their order."""
        order = sorted(self._depths, key=lambda depth: depth != self._last)
        return list(islice((one for depth in order for one in reversed(self._by_depth[depth])), LOOK_AHEAD))

    def drop(self, gone: Collection[int]) -> None:
        """Of those ahead, which somebody else has claimed."""
        for depth in self._depths[:]:
            ids = self._by_depth[depth]
            ids[-LOOK_AHEAD:] = [trial_id for trial_id in ids[-LOOK_AHEAD:] if trial_id not in gone]
            self._drop_empty(depth)

    def _drop_empty(self, depth: int | None) -> None:
        if not self._by_depth[depth]:
            del self._by_depth[depth]
            self._depths.remove(depth)
