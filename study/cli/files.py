"""Files that commands write: a check before any work is done, and writing in one step."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from objectives.contract import UsageError
from objectives.paths import path_text
from objectives.settings import shortened


def check_file(path: str | os.PathLike[str], flag: str) -> None:
    """Refuse a file that cannot be written, before any work is done for it."""
    target = _possible(path, flag)
    if target.is_dir():
        raise UsageError(f"{flag} {path} cannot be written: it is a folder; name a file")
    if _is_special(target):
        if not os.access(target, os.W_OK):
            raise UsageError(f"{flag} {path} cannot be written: no permission for it")
        return
    folder = _behind_links(target).parent
    if not folder.is_dir():
        raise UsageError(f"{flag} {path} cannot be written: there is no folder {folder}")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{flag} {path} cannot be written: no permission for the folder {folder}")


def check_folder(path: str | os.PathLike[str], flag: str) -> None:
    """Refuse a folder that cannot be made or written into; it is not made here."""
    target = _possible(Path(path).expanduser(), flag)
    nearest = next(place for place in (target, *target.absolute().parents) if os.path.lexists(place))
    if not nearest.is_dir():
        raise UsageError(f"{flag} {path} cannot be written: {nearest} is not a folder")
    try:
        # By trying: root may write anywhere but into a file system that takes no files.
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise UsageError(f"{flag} {path} cannot be written: {nearest}: {error.strerror}") from None


def check_new_folder(path: str | os.PathLike[str], flag: str) -> None:
    """Refuse a folder that holds something already, or that cannot be written."""
    folder = Path(path)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{flag} {path} exists: name a folder that does not, or that is empty")
    check_folder(path, flag)


def _possible(path: str | os.PathLike[str], flag: str) -> Path:
    try:
        return Path(path_text(os.fspath(path)))
    except ValueError as error:
        raise UsageError(f"{flag} {shortened(os.fspath(path))} cannot be written: {error}") from None


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Written beside and renamed, so that no reader ever sees half of it; missing folders are made.

    Links are followed, and a pipe or a device is written into: renaming would replace it.
    """
    named = Path(path)
    beside = None
    try:
        if _is_special(named):
            _write(named, text)
            return named
        target = _behind_links(named)
        beside = target.with_name(f".{target.name[:50]}.{os.getpid()}")
        target.parent.mkdir(parents=True, exist_ok=True)
        _write(beside, text)
        beside.replace(target)
    except OSError as error:
        if beside is not None:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    return named


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", errors="backslashreplace")


def _is_special(path: Path) -> bool:
    """Whether there is something that is neither a file nor a folder: a pipe, a device."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _behind_links(path: Path) -> Path:
    return Path(os.path.realpath(path)) if path.is_symlink() else path
