"""How fast the disk of the cache folder is, past what the system keeps of it in memory."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

_CHUNK = 8 << 20
_MOST_BYTES = 192 << 20
_MOST_SECONDS = 8.0
"""A disk that has not taken all by then is measured by what it took."""


@dataclass(frozen=True, kw_only=True)
class DiskSpeed:
    write_bytes_per_second: float
    read_bytes_per_second: float
    free_bytes: int


def measure(folder: Path) -> DiskSpeed:
    """Raises OSError where the folder cannot be made, written or read."""
    folder.mkdir(parents=True, exist_ok=True)
    chunk = os.urandom(_CHUNK)
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        began, written = time.perf_counter(), 0
        while written < _MOST_BYTES and time.perf_counter() - began < _MOST_SECONDS:
            written += file.write(chunk)
        os.fsync(file.fileno())
        write_seconds = time.perf_counter() - began
        if hasattr(os, "posix_fadvise"):
            # Else it would be read from memory.
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        file.seek(0)
        began, read, block = time.perf_counter(), 0, bytearray(_CHUNK)
        while time.perf_counter() - began < _MOST_SECONDS and (count := file.readinto(block)):
            read += count
        read_seconds = time.perf_counter() - began
    status = os.statvfs(folder)
    return DiskSpeed(
        write_bytes_per_second=written / write_seconds,
        read_bytes_per_second=read / read_seconds,
        free_bytes=status.f_bavail * status.f_frsize,
    )
