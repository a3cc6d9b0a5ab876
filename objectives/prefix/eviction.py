"""What leaves the prefix cache when room is needed, and which depths a build has room for.

First what nobody can use, then what no study wants any more, then what was used longest ago. What somebody
reads or writes stays: its blocks would be held although its name was gone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from objectives.prefix.entries import PARTIAL, WHOLE, Entry, Owner, held, is_in_use, last_use, mine

BLOCK = 4096


def cost(size: int) -> int:
    """The most bytes of the disk that a file of this size takes, also while it grows in place of another.

    File systems count whole blocks, and those in which they note where a file's pieces are.
    """
    pieces = 4 + size // (1 << 24)
    return (-(-size // BLOCK) + pieces) * BLOCK


@dataclass(frozen=True)
class Removable:
    """A file that nobody uses at this moment."""

    path: Path
    bytes: int
    last_use: float
    depth: int | None
    """Of the data set that is being built; None where it is another's."""
    rank: int
    """0 where nobody can use it, 1 where no study that goes on wants it, else 2."""

    @property
    def spare(self) -> bool:
        return self.rank < 2

    def remove(self) -> None:
        """InUse where somebody began to use it."""
        Entry(self.path.parent, self.path.stem).remove()
        self.path.unlink(missing_ok=True)


def removable(
    folder: Path,
    finished: Collection[str],
    own: Mapping[str, int] = MappingProxyType({}),
    wanted: Collection[int] = (),
    study: str = "",
) -> list[Removable]:
    """What may go, in the order in which it goes. `own` are the depths of the data set at hand by name."""
    found = []
    for ending in (WHOLE, PARTIAL, ".part"):
        for path in folder.glob(f"*{ending}"):
            if mine(path) and not is_in_use(path):
                depth = own.get(path.stem)
                about = Entry(folder, path.stem).about()
                if depth in wanted:
                    rank = 2
                elif ending != WHOLE or about is None:
                    rank = 0
                else:
                    asking = study if depth is not None else None
                    rank = 1 if _unwanted(about.owners, finished, asking) else 2
                found.append(Removable(path, held(path), last_use(path), depth, rank))
    return sorted(found, key=lambda one: (one.rank, one.last_use))


def _unwanted(owners: Sequence[Owner], finished: Collection[str], asking: str | None) -> bool:
    """The study that asks has said which depths it still wants."""
    return all(owner.study in ("", asking) or owner.study in finished for owner in owners)


@dataclass(frozen=True)
class Plan:
    targets: tuple[int, ...]
    removed: tuple[Removable, ...]
    """Before the build begins."""
    consumed: Removable | None
    """Cut off chunk by chunk as the build proceeds."""


def choose(
    must: int,
    extras: Sequence[int],
    costs: Mapping[int, int],
    free: int,
    files: Sequence[Removable],
    source: int,
) -> Plan | None:
    """As many depths as there is room for, the one that must be there first; None where even that has none.

    `source` is the depth that the build starts from: it is not removed, but it may be consumed. What studies
    still want is only removed for the depth that must be there.
    """
    origin = next((one for one in files if one.depth == source and one.path.suffix == WHOLE), None)
    spare = [one for one in files if one.spare and one is not origin]
    room = free + sum(one.bytes for one in spare)
    if costs[must] + sum(costs[depth] for depth in extras) <= room:
        return Plan((must, *extras), _enough(spare, costs, (must, *extras), free), None)
    consumable = origin.bytes if origin is not None and origin.spare else 0
    if costs[must] <= room + consumable:
        targets = [must]
        for depth in extras:
            others = sum(costs[one] for one in (*targets[1:], depth))
            # Only the one that must be there grows as the other shrinks; the others take their room at once.
            if others <= room and costs[must] + others <= room + consumable:
                targets.append(depth)
            elif depth > must:
                # Building this one later runs the layers up to those beyond it anyway.
                break
        needed = sum(costs[depth] for depth in targets)
        consumed = origin if needed > room else None
        return Plan(tuple(targets), _enough(spare, costs, targets, free), consumed)
    removed, consumed = list(spare), None
    for one in files:
        if costs[must] <= room:
            break
        if one not in removed:
            room += one.bytes
            if one is origin:
                consumed = one
            else:
                removed.append(one)
    return Plan((must,), tuple(removed), consumed) if costs[must] <= room else None


def _enough(
    files: Sequence[Removable], costs: Mapping[int, int], targets: Sequence[int], free: int
) -> tuple[Removable, ...]:
    """The first of them that make room for these targets."""
    found: list[Removable] = []
    for one in files:
        if sum(costs[depth] for depth in targets) <= free:
            break
        found.append(one)
        free += one.bytes
    return tuple(found)
