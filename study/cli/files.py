"""Files that commands write: a check before any work is done, and writing in one step."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from objectives.contract import UsageError
from objectives.settings import shortened


def check_file(path: str | os.PathLike[str], flag: str) -> None:
    """Refuse a file that cannot be written, before any work is done for it."""
    target = _possible(path, flag)
    if target.is_dir():
        raise UsageError(f"{flag} {path} cannot be written: it is a folder; name a file")
    if not target.parent.is_dir():
        raise UsageError(f"{flag} {path} cannot be written: there is no folder {target.parent}")
    if not os.access(target.parent, os.W_OK):
        raise UsageError(f"{flag} {path} cannot be written: no permission for the folder {target.parent}")


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
        os.lstat(path)
    except (ValueError, OSError) as error:
        if not isinstance(error, FileNotFoundError | NotADirectoryError | PermissionError):
            shown = shortened(os.fspath(path))
            raise UsageError(f"{flag} {shown} cannot be written: no file can have that name") from None
    return Path(path)


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Written beside and renamed, so that no reader ever sees half of it; missing folders are made."""
    target = Path(path)
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(text, encoding="utf-8", errors="backslashreplace")
        beside.replace(target)
    except OSError as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    return target
