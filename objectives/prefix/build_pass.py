"""One pass over the data that stores the states of one or several depths, within the cache's budget.

A chunk counts once the side file has its checksum: an interrupted pass is resumed. Where there is no
room for the depth that the pass starts from beside the new one, its chunks are cut off as they are used up.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from objectives.errors import TrialFailed
from objectives.prefix import entries, eviction
from objectives.prefix.building import Builder, passes
from objectives.prefix.entries import (
    BUILDS,
    PARTIAL,
    SIDE,
    WHOLE,
    About,
    Entry,
    InUse,
    Owner,
    held,
    lease,
    room_lock,
)

if TYPE_CHECKING:
    import torch

    from objectives.prefix.prefix_cache import PrefixCache

Span = tuple[int, int]


class NoRoom(OSError):
    """The budget has no room for a depth."""

    def __init__(self, why: str):
        super().__init__(errno.ENOSPC, why)


class NotFinite(TrialFailed):
    """Some state is infinite or no number: no trial of this depth can be trained."""


class _Depth:
    """One depth's file, open and locked for as long as the pass lasts."""

    def __init__(self, entry: Entry, builder: Builder, depth: int, file: BinaryIO, about: About):
        self.entry, self.depth, self.file, self.about = entry, depth, file, about
        self.spans: list[Span] = builder.spans(depth)
        self.start = 0
        """The depth that its last chunk was computed from."""

    def has(self, chunk: int) -> bool:
        return self.about.chunks[chunk] is not None

    def reserve(self, span: Span) -> None:
        os.ftruncate(self.file.fileno(), self.about.size)
        # macOS has no such call: there a disk that fills up is noticed when a chunk is written.
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self.file.fileno(), span[0], span[1] - span[0])

    def cut(self, chunk: int) -> None:
        """Give back the room of this chunk and of all that lie behind it."""
        self.about.chunks[chunk] = None
        self.entry.write(self.about)
        os.ftruncate(self.file.fileno(), self.spans[chunk][0])

    def read(self, chunk: int, itemsize: int, width: int) -> NDArray[Any] | None:
        found = read_chunk(self.file, self.spans[chunk], self.about, chunk)
        return None if found is None else found.view(f"i{itemsize}").reshape(-1, width)

    def write(self, chunk: int, values: torch.Tensor) -> None:
        import torch

        data = values.view(torch.uint8).numpy().reshape(-1)
        _write_at(self.file.fileno(), data, self.spans[chunk][0])
        self.about.chunks[chunk] = entries.checksum(data)
        self.entry.write(self.about)


class BuildPass:
    """Made and run by PrefixCache, under the data set's lock."""

    def __init__(self, cache: PrefixCache, builder: Builder, depth: int, wanted: Collection[int]):
        self._cache, self._builder, self._must = cache, builder, depth
        stored = [known for known in cache.stored(builder) if not builder.one_token(known)]
        self._source = max((known for known in stored if known < depth), default=0)
        self._wanted = {depth, *(one for one in wanted if 1 <= one <= builder.total_layers)}
        self._extras = [
            one
            for one in sorted(self._wanted - {depth, *cache.stored(builder)})
            if len(passes((one, depth), stored)) == 1 and not self._is_faulty(one)
        ]
        self._stored = stored
        self._targets: dict[int, _Depth] = {}
        self._sources: dict[int, _Depth] = {}
        self._consumed: _Depth | None = None

    def run(self) -> None:
        with ExitStack() as stack:
            with room_lock(self._cache.folder):
                self._make_room(stack)
            for chunk in range(len(self._builder.layout.chunks)):
                self._chunk(chunk)
            for target in self._targets.values():
                self._finish(target)
            if self._consumed is not None:
                for ending in (PARTIAL, SIDE):
                    self._consumed.entry.path(ending).unlink(missing_ok=True)

    def _is_faulty(self, depth: int) -> bool:
        about = self._cache.entry(self._builder, depth).about()
        return about is not None and bool(about.fault)

    def _make_room(self, stack: ExitStack) -> None:
        """Remove what must go, and take the room: all of it now, but for what is freed on the way."""
        plan = self._plan()
        while not self._remove(plan, stack):
            plan = self._plan()
        try:
            for start, _ in passes(plan.targets, self._stored):
                if start and start not in self._sources:
                    self._open_source(stack, start)
            for depth in plan.targets:
                target = self._open_target(stack, depth)
                if self._consumed is None or depth != self._must:
                    target.reserve((0, target.about.size))
        except OSError:
            for target in self._targets.values():
                if not any(target.has(chunk) for chunk in range(len(target.spans))):
                    target.entry.path(PARTIAL).unlink(missing_ok=True)
            raise

    def _plan(self) -> eviction.Plan:
        cache, builder = self._cache, self._builder
        names = {cache.entry(builder, d).name: d for d in range(1, builder.total_layers + 1)}
        begun = cache.entry(builder, self._must).path(PARTIAL)
        files = eviction.removable(
            cache.folder, entries.finished_studies(cache.folder), names, self._wanted, cache.owner.study
        )
        costs = {
            depth: max(
                0,
                eviction.cost(builder.size(depth)) - held(cache.entry(builder, depth).path(PARTIAL)),
            )
            for depth in (self._must, *self._extras)
        }
        budget = cache.budget()
        plan = eviction.choose(
            self._must,
            self._extras,
            costs,
            budget - cache.used(),
            [one for one in files if one.path != begun],
            self._source,
        )
        if plan is None:
            raise NoRoom(f"find no room in the budget of {budget:,}, which other workers use")
        return plan

    def _remove(self, plan: eviction.Plan, stack: ExitStack) -> bool:
        """False where somebody began to use one of them in this very moment."""
        try:
            for one in plan.removed:
                one.remove()
            if plan.consumed is not None:
                self._consumed = self._open_source(stack, self._source, exclusive=True)
                self._consumed.entry.path(WHOLE).rename(self._consumed.entry.path(PARTIAL))
        except InUse:
            return False
        return True

    def _open_source(self, stack: ExitStack, depth: int, *, exclusive: bool = False) -> _Depth:
        entry = self._cache.entry(self._builder, depth)
        file = stack.enter_context(lease(entry.path(WHOLE), exclusive=exclusive))
        about = entry.about()
        spans = self._builder.spans(depth)
        if about is None or len(about.chunks) != len(spans):
            about = About(depth, 0, [None] * len(spans))
        self._sources[depth] = _Depth(entry, self._builder, depth, file, about)
        return self._sources[depth]

    def _open_target(self, stack: ExitStack, depth: int) -> _Depth:
        cache, builder = self._cache, self._builder
        entry = cache.entry(builder, depth)
        about, chunks = entry.about(), len(builder.layout.chunks)
        if about is None or len(about.chunks) != chunks or not entry.path(PARTIAL).exists():
            about = About(depth, builder.size(depth), [None] * chunks)
        if cache.owner != Owner() and cache.owner not in about.owners:
            about.owners.append(cache.owner)
        os.close(os.open(entry.path(PARTIAL), os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600))
        file = stack.enter_context(lease(entry.path(PARTIAL), exclusive=True))
        self._targets[depth] = _Depth(entry, builder, depth, file, about)
        return self._targets[depth]

    def _chunk(self, chunk: int) -> None:
        missing = [depth for depth, target in self._targets.items() if not target.has(chunk)]
        known = self._known(chunk, missing)
        if self._consumed is not None:
            with room_lock(self._cache.folder):
                self._consumed.cut(chunk)
                if self._must in missing:
                    growing = self._targets[self._must]
                    growing.reserve(growing.spans[chunk])
        if not missing:
            return
        began = time.perf_counter()
        computed = self._builder.compute(chunk, missing, known)
        self._share_seconds(chunk, missing, known, time.perf_counter() - began)
        for depth, values in computed.items():
            if bool(values.isfinite().all()):
                self._targets[depth].write(chunk, values)
            else:
                self._refuse(depth)

    def _known(self, chunk: int, missing: Collection[int]) -> dict[int, NDArray[Any]]:
        """The states of this chunk that others of its depths can be computed from; a damaged one is not."""
        builder = self._builder
        files = {
            depth: file
            for depth, file in {**self._sources, **self._targets}.items()
            if file.has(chunk) and not builder.one_token(depth)
        }
        known: dict[int, NDArray[Any]] = {}
        while starts := [s for s, _ in passes(missing, files) if s and s not in known]:
            for start in starts:
                found = files[start].read(chunk, builder.dtype.itemsize, builder.hidden)
                if found is None:
                    del files[start]
                else:
                    known[start] = found
        return known

    def _share_seconds(
        self, chunk: int, missing: Collection[int], known: Collection[int], seconds: float
    ) -> None:
        """A depth's own share of a pass, by its layers, and what the states it stands on took."""
        lengths = self._builder.encoded.lengths
        share = float(lengths[self._builder.layout.chunks[chunk]].sum() / lengths.sum())
        made = passes(missing, known)
        layers = sum(depths[-1] - start for start, depths in made)
        files = {**self._sources, **self._targets}
        for start, depths in made:
            before = files[start].about.seconds * share if start else 0.0
            for depth in depths:
                target = self._targets[depth]
                target.start = start
                target.about.seconds += before + seconds * (depth - start) / layers

    def _refuse(self, depth: int) -> None:
        """There are no such states: say so to all who want them."""
        target = self._targets.pop(depth)
        precision = self._builder.precision
        cure = "use --mixed-precision bf16 or no" if precision == "fp16" else "look at the model's weights"
        target.about.fault = (
            f"the states after {depth} frozen layers are not finite"
            f"{'' if precision == 'no' else f' in {precision}'}: {cure}"
        )
        target.entry.write(target.about)
        target.entry.path(PARTIAL).unlink(missing_ok=True)
        if depth == self._must:
            raise NotFinite(target.about.fault, retry=False)

    def _finish(self, target: _Depth) -> None:
        path: Path = target.entry.path(WHOLE)
        target.about.seconds = round(target.about.seconds, 4)
        target.entry.write(target.about)
        target.entry.path(PARTIAL).rename(path)
        self._cache.verified.add((path, os.fstat(target.file.fileno()).st_ino))
        with contextlib.suppress(OSError), (self._cache.folder / BUILDS).open("a") as log:
            log.write(f"{path.stem} depth={target.depth} from={target.start} pid={os.getpid()}\n")


def read_chunk(file: BinaryIO, span: Span, about: About, chunk: int) -> NDArray[np.uint8] | None:
    """A chunk of an entry's file; None where it is not what was written."""
    data = np.empty(span[1] - span[0], dtype=np.uint8)
    file.seek(span[0])
    view = data.data
    while view and (done := file.readinto(view)):  # type: ignore[attr-defined]
        view = view[done:]
    return None if view or entries.checksum(data) != about.chunks[chunk] else data


def _write_at(descriptor: int, data: NDArray[np.uint8], at: int) -> None:
    view = data.data
    while view:
        done = os.pwrite(descriptor, view, at)
        view, at = view[done:], at + done
