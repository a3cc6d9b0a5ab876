"""How many of its last layers does a transformer need fine-tuned, and what does that save?

`from study import Study` for notebooks and scripts; the commands are the modules of this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from study.launching.api import Study
    from study.protocols.sampler import AdaptiveSampler

__all__ = ["AdaptiveSampler", "Study"]

_HOMES = {"Study": "study.launching.api", "AdaptiveSampler": "study.protocols.sampler"}


def __getattr__(name: str) -> Any:
    """Loaded when first asked for: every command imports this package."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
