"""What the prefix cache holds, entry by entry, and the removal of what is not needed any more."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from objectives.prefix.entries import (
    PARTIAL,
    SIDE,
    WHOLE,
    Entry,
    InUse,
    Owner,
    entries,
    finished_studies,
    held,
    is_in_use,
    last_use,
    room_lock,
)

State = Literal["whole", "partly built", "not finite"]


@dataclass(frozen=True)
class Content:
    """One entry: the states of one data set after one number of frozen layers."""

    name: str
    owners: tuple[Owner, ...]
    frozen_layers: int | None
    """None where the entry's side file cannot be read."""
    bytes: int
    last_use: float
    """Seconds since 1970."""
    state: State
    in_use: bool
    finished: bool
    """All studies that used it have ended, as far as this machine has seen."""

    @property
    def studies(self) -> list[str]:
        return sorted({owner.study for owner in self.owners if owner.study})


def contents(folder: Path) -> list[Content]:
    """All entries of this user, by study and depth."""
    ended = finished_studies(folder)
    found = [_content(entry, ended) for entry in entries(folder)]
    return sorted(found, key=lambda one: (one.studies, one.frozen_layers or 0, one.name))


def _content(entry: Entry, ended: set[str]) -> Content:
    about = entry.about()
    files = [entry.path(ending) for ending in (WHOLE, PARTIAL)]
    owners = tuple(about.owners) if about else ()
    fault = about is not None and bool(about.fault)
    return Content(
        name=entry.name,
        owners=owners,
        frozen_layers=about.depth if about else None,
        bytes=sum(map(held, files)),
        last_use=max(map(last_use, files)) or last_use(entry.path(SIDE)),
        state="whole" if entry.is_stored else "not finite" if fault else "partly built",
        in_use=any(map(is_in_use, files)),
        finished=all(owner.study in ended for owner in owners if owner.study),
    )


def remove(folder: Path, chosen: Iterable[Content]) -> tuple[int, list[Content]]:
    """The bytes that were freed, and the entries that a worker uses at this moment, which stay."""
    freed, kept = 0, []
    if not folder.is_dir():
        return 0, []
    with room_lock(folder):
        for one in chosen:
            try:
                freed += Entry(folder, one.name).remove()
            except InUse:
                kept.append(one)
    return freed, kept
