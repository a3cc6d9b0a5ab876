"""Attention masks that are used without being looked at.

Transformers reads a mask back from the GPU in every forward pass to see whether anything is padded, and the
host waits for it. Nearly every batch has padding: the mask is used always, and nobody waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from objectives.capabilities import Capabilities

READERS = ("_ignore_bidirectional_mask_sdpa", "_ignore_causal_mask_sdpa")
"""What asks, in `transformers.masking_utils`, whether a mask can be left out."""


@contextmanager
def unread_masks(can: Capabilities) -> Iterator[None]:
    """While it lasts, no mask on a device is left out. On the host reading it costs nothing."""
    from transformers import masking_utils

    if can.is_host:
        yield
        return
    stock = {name: getattr(masking_utils, name) for name in READERS}
    for name in READERS:
        setattr(masking_utils, name, _never)
    try:
        yield
    finally:
        for name, reader in stock.items():
            setattr(masking_utils, name, reader)


def _never(*_: Any, **__: Any) -> bool:
    return False
