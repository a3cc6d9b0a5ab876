"""Lists, ranges and sizes as people type them: `0,6-12`, `1e-5-5e-5`, `20G`.

A ValueError says what is wrong; whoever reads a flag adds its name.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable

MOST_VALUES = 100_000
_NUMBER = r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_PART = re.compile(rf"^({_NUMBER})(?:-({_NUMBER})(?::({_NUMBER}))?)?$")
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def integers(text: str) -> tuple[int, ...]:
    """`0,6-12` or `0-12:2`: a list of numbers and ranges."""
    numbers = _expand(text, default_step=lambda first: 1.0)
    if any(number != int(number) for number in numbers):
        raise ValueError("whole numbers only")
    return tuple(int(number) for number in numbers)


def rates(text: str) -> tuple[float, ...]:
    """`1e-5,3e-5` or `1e-5-5e-5` (in steps of the first number) or `1e-5-5e-5:2e-5`."""
    return _expand(text, default_step=lambda first: first)


def seeds(text: str) -> tuple[int, ...]:
    """`5` is the seeds 1 to 5; a list or a range is itself."""
    if re.fullmatch(r"\d+", text):
        if len(text) > 9 or int(text) > MOST_VALUES:
            raise ValueError(f"more than {MOST_VALUES:,} values")
        return tuple(range(1, int(text) + 1))
    return integers(text)


def names(text: str) -> tuple[str, ...]:
    """`left,right`."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def shares(text: str) -> tuple[float, ...]:
    """`0.9,0.95`."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ValueError("use a list of shares such as 0.9,0.95") from None


def size_in_bytes(text: str) -> int:
    """`500M`, `20G`, `0`."""
    match = re.fullmatch(r"(\d{1,15}(?:\.\d+)?)\s*([kmgt]?)b?", text.strip().lower())
    if not match:
        raise ValueError("use a number of bytes such as 500M or 20G")
    return int(float(match[1]) * _UNITS[match[2]])


def _expand(text: str, default_step: Callable[[float], float]) -> tuple[float, ...]:
    numbers: list[float] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _PART.match(part)
        if not match:
            raise ValueError(f"{part[:40]!r} is neither a number nor a range such as 6-12")
        first, last, step = (None if number is None else float(number) for number in match.groups())
        if not all(math.isfinite(number) for number in (first, last, step) if number is not None):
            raise ValueError(f"{part[:40]!r} is not a finite number")
        assert first is not None
        if last is None:
            numbers.append(first)
            continue
        pace = default_step(first) if step is None else step
        if pace <= 0:
            raise ValueError("the step of a range must be positive")
        count = math.floor((last - first) / pace + 1e-9)
        if len(numbers) + count > MOST_VALUES:
            raise ValueError(f"more than {MOST_VALUES:,} values")
        # Twelve digits hide the rounding of binary fractions: 3e-05, not 3.0000000000000004e-05.
        numbers += [float(f"{first + i * pace:.12g}") for i in range(count + 1)]
    if repeated := [number for number, count in Counter(numbers).items() if count > 1]:
        raise ValueError(f"{repeated[0]:g} is named twice")
    return tuple(numbers)
