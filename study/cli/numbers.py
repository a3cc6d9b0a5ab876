"""Numbers on the command line, with their bounds: for commands whose flags are not declared settings."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable


def whole(least: int, most: int) -> Callable[[str], int]:
    """For `type=` of a flag: a whole number between two others."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text[:40]!r}: use a whole number from {least} to {most}")
        return value

    return read


def above(bound: float, most: float) -> Callable[[str], float]:
    """For `type=` of a flag: a number above one bound and up to another."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not bound < value <= most:
            raise argparse.ArgumentTypeError(f"{text[:40]!r}: use a number above {bound:g}, at most {most:g}")
        return value

    return read
