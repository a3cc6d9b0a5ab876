"""Models of a study: a folder that Transformers loads, or a small file of tuned layers beside a shared base.

from study.models import load, load_many

model = load("reviews-delta")
both = load_many(["reviews-delta", "topics-delta"])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from study.models.shared import load_many
    from study.models.tuned import load

__all__ = ["load", "load_many"]

_HOMES = {"load": "study.models.tuned", "load_many": "study.models.shared"}


def __getattr__(name: str) -> Any:
    """Loaded when first asked for: they need torch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
