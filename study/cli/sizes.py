"""Sizes of files and memory as people read them."""

from __future__ import annotations


def size_text(size: float) -> str:
    """`1.25 GiB`, `3.0 MiB`, `12.5 KiB`."""
    if size >= 2**30:
        return f"{size / 2**30:.2f} GiB"
    return f"{size / 2**20:.1f} MiB" if size >= 2**20 / 10 else f"{size / 2**10:.1f} KiB"
