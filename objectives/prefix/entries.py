"""The prefix cache's folder: files of states, what is said about each, and who uses them at this moment.

An entry holds the states of one data set after one number of layers. Its file is `NAME.states` when it is
whole and `NAME.partial` while chunks of it are missing; `NAME.json` says which chunks are there and whose.
Whoever reads or writes an entry holds a lock on its file: the system takes it back when the process ends,
however it ends. Nothing here needs torch.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock

from objectives.private_files import is_own

FORMAT = 3
WHOLE, PARTIAL, SIDE = ".states", ".partial", ".json"
BUILDS = "builds.log"
_FINISHED = "finished.json"
_NAME = re.compile(r"[0-9a-f]{24}-\d+")


class InUse(OSError):
    """Another process reads or writes this entry now."""

    def __init__(self, path: Path):
        super().__init__(errno.EBUSY, f"{path.name} is in use by another worker")


@dataclass(frozen=True)
class Owner:
    """For whom an entry was made or read."""

    study: str = ""
    model: str = ""
    data: str = ""


@dataclass
class About:
    """The side file of an entry."""

    depth: int
    size: int
    chunks: list[int | None]
    """Checksums in the order in which chunks are computed; None where one is missing."""
    seconds: float = 0.0
    """What computing it takes, all layers below the depth included."""
    fault: str = ""
    """Why there can be no such states."""
    owners: list[Owner] = field(default_factory=list)
    format: int = FORMAT

    @property
    def is_whole(self) -> bool:
        return None not in self.chunks

    @classmethod
    def from_dict(cls, data: Any) -> About:
        if data["format"] != FORMAT:
            raise ValueError(f"format {data['format']}")
        return cls(**{**data, "owners": [Owner(**one) for one in data["owners"]]})


@dataclass(frozen=True)
class Entry:
    folder: Path
    name: str

    def path(self, ending: str) -> Path:
        return self.folder / f"{self.name}{ending}"

    @property
    def is_stored(self) -> bool:
        return self.path(WHOLE).exists()

    def about(self) -> About | None:
        """None where there is no side file, or one that cannot be read."""
        try:
            return About.from_dict(json.loads(self.path(SIDE).read_bytes()))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, about: About) -> None:
        write_text(self.path(SIDE), json.dumps(asdict(about)))

    def remove(self) -> int:
        """The bytes that were freed; InUse where somebody reads or writes it."""
        freed = 0
        for ending in (WHOLE, PARTIAL):
            with contextlib.suppress(FileNotFoundError), lease(self.path(ending), exclusive=True):
                freed += held(self.path(ending))
                self.path(SIDE).unlink(missing_ok=True)
                self.path(ending).unlink()
        self.path(SIDE).unlink(missing_ok=True)
        return freed


def entries(folder: Path) -> Iterator[Entry]:
    """All that are there: whole, partial, or known only as impossible; nothing of another user's."""
    found = (path for ending in (WHOLE, PARTIAL, SIDE) for path in folder.glob(f"*{ending}"))
    names = {path.stem for path in found if _NAME.fullmatch(path.stem) and mine(path)}
    return (Entry(folder, name) for name in sorted(names))


def mine(path: Path) -> bool:
    """Whether it is a file of this user's own, not a link to somewhere else."""
    try:
        return path.is_file() and not path.is_symlink() and is_own(path)
    except OSError:
        return False


def lease(path: Path, *, exclusive: bool = False) -> BinaryIO:
    """The open file, locked until it and every map of it is closed.

    FileNotFoundError where there is none. A writer does not wait for others (InUse); a reader waits for one
    who writes, which is short unless it is used up, and then it is gone.
    """
    flags = (os.O_RDWR if exclusive else os.O_RDONLY) | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.fdopen(os.open(path, flags), "r+b" if exclusive else "rb", buffering=0)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB if exclusive else fcntl.LOCK_SH)
        # Whoever had it before may have removed it: then this is a file without a name.
        if not os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    except BlockingIOError:
        file.close()
        raise InUse(path) from None
    except BaseException:
        file.close()
        raise
    return file  # type: ignore[return-value]


def is_in_use(path: Path) -> bool:
    try:
        lease(path, exclusive=True).close()
    except InUse:
        return True
    except OSError:
        return False
    return False


def held(path: Path) -> int:
    """The bytes that a file takes on the disk."""
    try:
        return path.stat().st_blocks * 512
    except FileNotFoundError:
        return 0


def last_use(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def used(folder: Path) -> int:
    """By states that are stored, being built, or left by a process that was killed."""
    endings = (WHOLE, PARTIAL, ".part")
    return sum(held(path) for ending in endings for path in folder.glob(f"*{ending}"))


def checksum(data: Any) -> int:
    return zlib.crc32(data)


def write_text(path: Path, text: str) -> None:
    """Whole or not at all."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def room_lock(folder: Path) -> FileLock:
    """Held by whoever counts, takes or frees room in this folder."""
    return FileLock(folder / "room.lock")


def finished_studies(folder: Path) -> set[str]:
    """Studies that have ended, as far as workers of this machine have seen: their states go first."""
    try:
        return set(json.loads((folder / _FINISHED).read_bytes()))
    except (OSError, ValueError, TypeError):
        return set()


def mark_study(folder: Path, study: str, *, finished: bool) -> None:
    """Remember that a study has ended, or that it goes on after all; one without states here is forgotten."""
    if not folder.is_dir() or (study in finished_studies(folder)) == finished:
        return
    if finished and study not in _owning(folder):
        return
    with room_lock(folder):
        known = finished_studies(folder) - {study} | ({study} if finished else set())
        write_text(folder / _FINISHED, json.dumps(sorted(known & _owning(folder))))


def _owning(folder: Path) -> set[str]:
    found = (entry.about() for entry in entries(folder))
    return {owner.study for about in found if about is not None for owner in about.owners}
