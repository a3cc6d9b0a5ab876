"""Values as TOML, which Python reads but does not write."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def pairs(values: Mapping[str, Any]) -> str:
    """A line `key = value` for each; None is left out."""
    return "".join(f"{_key(name)} = {value(item)}\n" for name, item in values.items() if item is not None)


def table(name: str, values: Mapping[str, Any]) -> str:
    return f"[{name}]\n{pairs(values)}"


def value(item: Any) -> str:
    if isinstance(item, tuple | list):
        return f"[{', '.join(value(part) for part in item if part is not None)}]"
    if isinstance(item, str):
        # JSON's escapes are TOML's, too.
        return json.dumps(item, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(item).lower() if isinstance(item, bool) else repr(item)


def _key(name: str) -> str:
    plain = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if plain else json.dumps(name, ensure_ascii=False)
