"""Folders and files that are one user's own: what others could have written or replaced is not read.

Caches hold the user's texts in another form, and what is read from them goes into results.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from objectives.errors import UsageError

_OURS = re.compile(
    r"logs|slurm|models|checkpoints|tokens-.*|.*\.(states|partial|json|lock|part|tmp)|\d{8}-\d{6}-.*"
)
"""What is written into a cache folder, and into the one of logs."""


def own_folder(path: str | os.PathLike[str]) -> Path:
    """The folder, made for this user alone where it is not there; refused where others may write to it.

    One that others may read is closed to them, unless it holds more than a cache: a home, the root.
    """
    folder = Path(path).expanduser()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise UsageError(f"--cache-dir {path}: {error.strerror}: name a folder of your own") from None
    if found.st_uid != os.geteuid():
        raise UsageError(f"--cache-dir {path} belongs to another user: name a folder of your own")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UsageError(f"--cache-dir {path} can be written by others: chmod 700 it, or name another folder")
    if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO) and all(
        _OURS.fullmatch(name) for name in os.listdir(folder)
    ):
        folder.chmod(0o700)
    return folder


def is_own(path: Path) -> bool:
    """Whether this user wrote the file; FileNotFoundError where there is none."""
    return path.stat().st_uid == os.geteuid()
