"""Numbers with their nouns."""

from __future__ import annotations


def counted(number: float, thing: str) -> str:
    """`1 cell`, `2 cells`, `0.5 epochs`."""
    shown = f"{number:,}" if isinstance(number, int) else f"{number:g}"
    return f"{shown} {thing}{'' if number == 1 else 's'}"
