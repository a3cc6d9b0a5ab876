"""What a source of a model or of data is: a data set of the hub, or a path of this machine."""

from __future__ import annotations

HUB = "hub:"


def is_hub(source: str) -> bool:
    """`hub:OWNER/NAME`; models are named without it."""
    return source.startswith(HUB)


def is_path(source: str) -> bool:
    """As specs keep what lies on a machine; anything else is a name."""
    return source.startswith("/")
