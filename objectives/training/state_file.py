"""Nested state of tensors, arrays and plain values in one safetensors file, exactly, without pickles.

Tensors and arrays are the file's tensors; the tree that they hang on is JSON in its header.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

_TREE = "tree"
_PLAIN = (bool, int, float, str, type(None))


class Unreadable(Exception):
    """No such file, or not what was written."""


def write(path: Path, state: Mapping[str, Any], about: Mapping[str, str]) -> None:
    """Whole or not at all, whatever happens meanwhile: readers see the old file or the new one."""
    tensors: dict[str, torch.Tensor] = {}
    tree = _packed(dict(state), tensors)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        save_file(tensors, beside, {**about, _TREE: json.dumps(tree)})
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        beside.replace(path)
    except SafetensorError as error:
        # How the library tells of a full disk.
        raise OSError(str(error)) from None
    finally:
        beside.unlink(missing_ok=True)


def read_about(path: Path) -> dict[str, str]:
    """What was said of the state, without reading it."""
    try:
        with safe_open(path, "pt") as file:
            found = dict(file.metadata() or {})
    except (OSError, SafetensorError) as error:
        raise Unreadable(str(error)) from None
    found.pop(_TREE, None)
    return found


def read(path: Path) -> dict[str, Any]:
    try:
        with safe_open(path, "pt") as file:
            tree = json.loads((file.metadata() or {})[_TREE])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return dict(_unpacked(tree, tensors))
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise Unreadable(f"{type(error).__name__}: {error}") from None


def _packed(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    """As JSON: plain values are themselves, all else is a list with its kind before it."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, list | tuple):
        return [type(value).__name__, *(_packed(item, tensors) for item in value)]
    if isinstance(value, Mapping):
        return ["dict", *([_packed(k, tensors), _packed(v, tensors)] for k, v in value.items())]
    if not isinstance(value, torch.Tensor | np.ndarray):
        raise TypeError(f"{type(value).__name__} cannot be written to a state file")
    kind = "tensor" if isinstance(value, torch.Tensor) else "array"
    found = (
        value.detach() if isinstance(value, torch.Tensor) else torch.from_numpy(np.ascontiguousarray(value))
    )
    name = str(len(tensors))
    tensors[name] = found.cpu().contiguous()
    return [kind, name, list(value.shape)]


def _unpacked(value: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    if not isinstance(value, list):
        return value
    kind, *items = value
    if kind in ("tensor", "array"):
        found = tensors[items[0]].reshape(items[1])
        return found if kind == "tensor" else found.numpy()
    if kind == "dict":
        return {_unpacked(k, tensors): _unpacked(v, tensors) for k, v in items}
    made = [_unpacked(item, tensors) for item in items]
    return tuple(made) if kind == "tuple" else made
