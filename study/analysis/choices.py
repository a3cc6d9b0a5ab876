"""What an analysis may be asked for, and what it does by default; light, so that help can show it."""

from __future__ import annotations

from typing import Literal

Select = Literal["per-depth", "full-model"]
Outliers = Literal["none", "paper"]
Pairing = Literal["auto", "paired", "independent"]
THRESHOLDS = (0.90, 0.95, 0.99)
DRAWS = 10_000
