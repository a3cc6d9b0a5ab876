"""Tokens on disk: one file of arrays per set of examples, with a checksum; what is damaged is made again."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from objectives.private_files import is_own, own_folder

Arrays = dict[str, NDArray[Any]]

CHECKSUM = "checksum"
FAULTS = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, NotImplementedError)
"""What reading a file that is no whole entry ends in."""

log = logging.getLogger(__name__)


def cached(folder: Path, name: str, make: Callable[[], Arrays]) -> Arrays:
    """The arrays of this name; made, and kept for other workers, where there are none that are whole."""
    path = own_folder(folder) / f"tokens-{name}.npz"
    with FileLock(f"{path}.lock"):
        found = _read(path)
        if found is None:
            found = make()
            _write(path, found)
    return found


def _read(path: Path) -> Arrays | None:
    try:
        if not is_own(path):
            log.warning("token cache: %s is another user's; making it again", path.name)
            return None
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        if arrays.pop(CHECKSUM).tobytes() != _checksum(arrays):
            raise ValueError("checksum")
        return arrays
    except FileNotFoundError:
        return None
    except FAULTS as error:
        log.warning("token cache: %s is damaged (%s); making it again", path.name, error)
        return None


def _write(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Whole or not at all; the arrays are at hand whether or not there is room for them."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    stored: dict[str, Any] = {**arrays, CHECKSUM: np.frombuffer(_checksum(arrays), dtype=np.uint8)}
    try:
        with temporary.open("wb") as file:
            np.savez(file, **stored)
        temporary.replace(path)
    except OSError as error:
        log.warning("token cache: cannot keep %s: %s", path.name, error.strerror)
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _checksum(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}\0".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.digest()
