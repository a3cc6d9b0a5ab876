"""The prefix cache: hidden states after frozen layers, on disk, shared by all trials of a machine.

All depths that a study wants, and that the budget has room for, are computed in one pass over the data, chunk
by chunk; a pass that was killed goes on where it ended. What the files hold never exceeds the budget.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock

from objectives.prefix import entries, eviction
from objectives.prefix.build_pass import BuildPass, NoRoom, NotFinite, read_chunk
from objectives.prefix.building import Builder
from objectives.prefix.entries import PARTIAL, WHOLE, About, Entry, InUse, Owner, lease, room_lock
from objectives.prefix.states import States
from objectives.private_files import is_own, own_folder

DEFAULT_SHARE = 0.25
"""Of the free disk, where no budget is given."""
_TRIES = 5
Warn = Callable[[str], None]


class _Damaged(Exception):
    """An entry is not as it was written; `chunks` are those at fault."""

    def __init__(self, why: str, chunks: Collection[int] | None = None):
        super().__init__(why)
        self.chunks = chunks


@dataclass
class PrefixCache:
    """The entries below one folder, within a budget of bytes."""

    folder: Path
    budget_bytes: int | None = None
    warn: Warn = print
    owner: Owner = field(default_factory=Owner)
    verified: set[tuple[Path, int]] = field(default_factory=set)
    """Files whose checksums this process has read."""

    def __post_init__(self) -> None:
        own_folder(self.folder)
        if self.owner.study:
            entries.mark_study(self.folder, self.owner.study, finished=False)

    def budget(self) -> int:
        if self.budget_bytes is not None:
            return self.budget_bytes
        return int((shutil.disk_usage(self.folder).free + self.used()) * DEFAULT_SHARE)

    def used(self) -> int:
        """The bytes that states hold on the disk, with what is being built."""
        return entries.used(self.folder)

    def trim(self) -> None:
        """Back to the budget, which may be smaller than when the cache was filled."""
        with room_lock(self.folder):
            excess = self.used() - self.budget()
            for one in eviction.removable(self.folder, entries.finished_studies(self.folder)):
                if excess <= 0:
                    break
                with contextlib.suppress(InUse):
                    one.remove()
                    excess -= one.bytes

    def stored(self, builder: Builder) -> list[int]:
        """The depths whose states are here."""
        depths = range(1, builder.total_layers + 1)
        return [depth for depth in depths if self.entry(builder, depth).is_stored]

    def states(self, builder: Builder, depth: int, wanted: Callable[[], Collection[int]] = tuple) -> States:
        """The states of this depth, built if need be, and then with those of the other depths `wanted`.

        An OSError says why they cannot be stored here; NotFinite, that there are none.
        """
        entry, budget = self.entry(builder, depth), self.budget()
        if eviction.cost(builder.size(depth)) > budget:
            raise NoRoom(f"exceed the budget of {budget:,}")
        for _ in range(_TRIES):
            damage = None
            try:
                return self._open(builder, depth)
            except FileNotFoundError:
                pass
            except _Damaged as error:
                damage = error
                self.warn(f"prefix cache: {entry.name} is damaged ({error}); building it again")
            with FileLock(self.folder / f"{builder.key(0)}.lock"):
                if damage is not None:
                    _spoil(entry, damage)
                if not entry.is_stored:
                    BuildPass(self, builder, depth, wanted()).run()
        raise OSError(errno.EBUSY, "other workers remove it as soon as it is built")

    def open(self, builder: Builder, depth: int) -> States | None:
        """The states of this depth if they are here, whole and undamaged."""
        try:
            return self._open(builder, depth)
        except (OSError, _Damaged):
            return None

    def entry(self, builder: Builder, depth: int) -> Entry:
        return Entry(self.folder, f"{builder.key(depth)}-{depth}")

    def _open(self, builder: Builder, depth: int) -> States:
        entry = self.entry(builder, depth)
        path = entry.path(WHOLE)
        try:
            file = lease(path)
        except FileNotFoundError:
            about = entry.about()
            if about is not None and about.fault:
                raise NotFinite(about.fault, retry=False) from None
            raise
        with file:
            about = self._check(file, entry, builder, depth)
            os.utime(file.fileno())
            if self.owner != Owner() and self.owner not in about.owners:
                self._add_owner(entry)
            return builder.open(file, depth, about.seconds)

    def _check(self, file: BinaryIO, entry: Entry, builder: Builder, depth: int) -> About:
        """Whole and unchanged: the checksums are read once per process."""
        path, about, spans = entry.path(WHOLE), entry.about(), builder.spans(depth)
        if not is_own(path):
            raise _Damaged("another user's")
        if about is None or len(about.chunks) != len(spans):
            raise _Damaged("its side file")
        size = os.fstat(file.fileno()).st_size
        if size != builder.size(depth):
            raise _Damaged(f"{size} bytes")
        known = (path, os.fstat(file.fileno()).st_ino)
        if known not in self.verified:
            wrong = [
                chunk for chunk, span in enumerate(spans) if read_chunk(file, span, about, chunk) is None
            ]
            if wrong:
                raise _Damaged("checksum", wrong)
            self.verified.add(known)
        return about

    def _add_owner(self, entry: Entry) -> None:
        with room_lock(self.folder):
            about = entry.about()
            if about is not None and self.owner not in about.owners:
                about.owners.append(self.owner)
                entry.write(about)


def _spoil(entry: Entry, damage: _Damaged) -> None:
    """Take an entry back to what is left of it; nothing is, where it is not known which chunks are wrong."""
    about = entry.about()
    if damage.chunks is None or about is None:
        entry.remove()
        return
    with contextlib.suppress(FileNotFoundError), lease(entry.path(WHOLE), exclusive=True):
        about.chunks = [None if n in damage.chunks else value for n, value in enumerate(about.chunks)]
        entry.write(about)
        entry.path(WHOLE).rename(entry.path(PARTIAL))
