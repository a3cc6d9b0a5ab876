"""The prefix cache: hidden states after frozen layers, on disk, shared by all trials of a machine.

Each entry is one flat file (tokens x hidden, no padding) beside a JSON file that says what it is. An
entry is made under a lock, written to a temporary file and renamed, so it is whole or absent.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import socket
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from objectives.encoding import Encoded, evaluation_batches
from objectives.private_files import is_own, own_folder

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from objectives.replay import Replay
    from objectives.stack import LayerStack

_FORMAT = 2
_CHUNK = 1 << 24
DEFAULT_SHARE = 0.25
"""Of the free disk, where no budget is given."""
_HOST = re.sub(r"\W+", "-", socket.gethostname())
_ABANDONED_SECONDS = 86_400
"""After which what another host has not finished, whose processes cannot be seen from here, is given up."""
_TRIES = 5
Warn = Callable[[str], None]


class States:
    """The stored states of one set of examples after `depth` layers."""

    seconds: float = 0.0
    """What computing them took, with all depths that they stand on: as if no others had been there."""

    def __init__(self, path: Path, tokens: int, hidden: int, dtype: torch.dtype, encoded: Encoded):
        # Integers of the same size: NumPy only moves the states, and knows no bfloat16.
        self._integer = np.dtype(f"i{dtype.itemsize}")
        raw = np.memmap(path, dtype=np.uint8, mode="r")
        self._flat = raw[: tokens * hidden * dtype.itemsize].view(self._integer).reshape(tokens, hidden)
        self._dtype = dtype
        self._offsets = encoded.offsets
        self._left = encoded.left

    def pad_rows(self, rows: NDArray[np.int64], width: int) -> torch.Tensor:
        """(batch, width, hidden) with zeros where there is padding."""
        import torch

        block = np.zeros((len(rows), width, self._flat.shape[1]), dtype=self._integer)
        for place, row in enumerate(rows):
            first, last = int(self._offsets[row]), int(self._offsets[row + 1])
            at = width - (last - first) if self._left else 0
            block[place, at : at + last - first] = self._flat[first:last]
        return torch.from_numpy(block).view(self._dtype)


def weight_digests(stack: LayerStack) -> list[str]:
    """For each depth 0 … L: a digest of all weights that its states depend on."""
    digest = hashlib.sha256()

    def add(name: str, value: torch.Tensor) -> None:
        digest.update(f"{name}{tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().numpy().data)

    for name, value in stack.embeddings.items():
        add(name, value)
    digests = [digest.hexdigest()]
    for layer in stack.layers:
        for inner, tensor in [*layer.named_parameters(), *layer.named_buffers()]:
            add(inner, tensor)
        digests.append(digest.hexdigest())
    return digests


@dataclass
class PrefixCache:
    """The entries below one folder, within a budget of bytes."""

    folder: Path
    budget_bytes: int | None = None
    warn: Warn = print
    _verified: dict[Path, float] = field(default_factory=dict)
    """Entries whose checksum this process has read, and the seconds that computing each took."""

    def __post_init__(self) -> None:
        own_folder(self.folder)

    def budget(self) -> int:
        if self.budget_bytes is not None:
            return self.budget_bytes
        return int((shutil.disk_usage(self.folder).free + self.used()) * DEFAULT_SHARE)

    def used(self) -> int:
        """Of what is stored and of what is being built."""
        return sum(_size(path) for ending in ("states", "part") for path in self.folder.glob(f"*.{ending}"))

    def states(self, builder: Builder, depth: int) -> States:
        """The states of this depth, built if need be; the caller has asked `budget` whether they fit.

        An OSError says that they cannot be stored here.
        """
        path = self._path(builder, depth)
        for _ in range(_TRIES):
            try:
                if not self._usable(path, builder):
                    with FileLock(f"{path}.lock"):
                        if not self._usable(path, builder):
                            self._make_room(builder.size())
                            self._build(builder, depth, path)
                os.utime(path)
                states = builder.open(path)
                states.seconds = self._verified[path]
                return states
            except FileNotFoundError:
                # Another process made room with it, or with the depth it is built from, in this very moment.
                self._verified = {known: s for known, s in self._verified.items() if known.exists()}
        raise OSError(errno.EBUSY, "other workers remove it as soon as it is built")

    def _path(self, builder: Builder, depth: int) -> Path:
        return self.folder / f"{builder.key(depth)}-{depth}.states"

    def _usable(self, path: Path, builder: Builder) -> bool:
        """Whole and unchanged: the checksum is read once per process."""
        if path in self._verified and path.exists():
            return True
        try:
            if not is_own(path):
                raise ValueError("another user's")
            about = json.loads(path.with_suffix(".json").read_text())
            if about["size"] != path.stat().st_size or about["size"] != builder.size():
                raise ValueError(f"{path.stat().st_size} bytes")
            if about["checksum"] != _checksum(path):
                raise ValueError("checksum")
            seconds = float(about["seconds"])
        except FileNotFoundError:
            return False
        except (ValueError, KeyError) as error:
            self.warn(f"prefix cache: {path.name} is damaged ({error}); building it again")
            return False
        self._verified[path] = seconds
        return True

    def _build(self, builder: Builder, depth: int, path: Path) -> None:
        start = next((d for d in range(depth - 1, 0, -1) if self._usable(self._path(builder, d), builder)), 0)
        source = builder.open(self._path(builder, start)) if start else None
        temporary = path.with_suffix(f".{_HOST}-{os.getpid()}.part")
        seconds = self._verified[self._path(builder, start)] if start else 0.0
        try:
            began = time.perf_counter()
            builder.run(source, start, depth, temporary)
            seconds += time.perf_counter() - began
            about = {
                "format": _FORMAT,
                "depth": depth,
                "built_from": start,
                "seconds": round(seconds, 4),
                "size": temporary.stat().st_size,
                "checksum": _checksum(temporary),
            }
            temporary.rename(path)
            side = temporary.with_suffix(".json.part")
            side.write_text(json.dumps(about))
            side.rename(path.with_suffix(".json"))
        finally:
            temporary.unlink(missing_ok=True)
        self._verified[path] = seconds
        with (self.folder / "builds.log").open("a") as log:
            log.write(f"{path.stem} depth={depth} from={start} pid={os.getpid()}\n")

    def _make_room(self, size: int) -> None:
        """Remove the entries used longest ago; a process that has one open goes on reading it."""
        with FileLock(self.folder / "evict.lock"):
            for part in self.folder.glob("*.part"):
                if not _alive(part):
                    part.unlink(missing_ok=True)
            entries = sorted(self.folder.glob("*.states"), key=_last_use)
            excess = self.used() + size - self.budget()
            for entry in entries:
                if excess <= 0:
                    break
                excess -= _size(entry)
                entry.with_suffix(".json").unlink(missing_ok=True)
                entry.unlink(missing_ok=True)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _last_use(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _alive(part: Path) -> bool:
    """Whether the process that writes this temporary file still runs; of another host, whether it may."""
    host, _, pid = part.name.split(".")[1].rpartition("-")
    if host != _HOST:
        return time.time() - _last_use(part) < _ABANDONED_SECONDS
    return Path(f"/proc/{pid}").exists()


def _checksum(path: Path) -> int:
    value = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            value = zlib.crc32(chunk, value)
    return value


@dataclass
class Builder:
    """Computes the states of one set of examples with one model."""

    model: PreTrainedModel
    replay: Replay
    encoded: Encoded
    weights: Sequence[str]
    """Digests per depth, from `weight_digests`."""
    dtype: torch.dtype
    autocast: Callable[[], Any]
    examples: str = ""

    def __post_init__(self) -> None:
        self.examples = self.examples or self.encoded.digest()

    @property
    def hidden(self) -> int:
        return int(self.model.config.hidden_size)

    def size(self) -> int:
        return int(self.encoded.offsets[-1]) * self.hidden * self.dtype.itemsize

    def key(self, depth: int) -> str:
        import torch
        import transformers

        parts = [_FORMAT, self.examples, self.weights[depth], depth, self.dtype, type(self.model).__name__]
        versions = [torch.__version__, transformers.__version__, self.model.config._attn_implementation]
        return hashlib.sha256(repr([*parts, *versions]).encode()).hexdigest()[:24]

    def open(self, path: Path) -> States:
        return States(path, int(self.encoded.offsets[-1]), self.hidden, self.dtype, self.encoded)

    def run(self, source: States | None, start: int, depth: int, path: Path) -> None:
        """Write the states after `depth` layers, from those after `start`, without dropout."""
        import torch

        from objectives.capabilities import capabilities

        encoded = self.encoded
        tokens = capabilities(self.model.device).forward_tokens
        with path.open("wb") as file:
            # Writing through a map to a disk that turns out to be full would kill the process.
            os.posix_fallocate(file.fileno(), 0, max(self.size(), 1))
        raw = np.memmap(path, dtype=np.uint8, mode="r+", shape=(max(self.size(), 1),))
        flat = torch.from_numpy(raw).view(self.dtype).view(-1, self.hidden)
        training = self.model.training
        self.model.eval()
        rows = np.empty(0, dtype=np.int64)

        def keep(_depth: int, states: torch.Tensor) -> None:
            states = states.to(device="cpu", dtype=self.dtype)
            for place, row in enumerate(rows):
                first, last = int(encoded.offsets[row]), int(encoded.offsets[row + 1])
                at = states.shape[1] - (last - first) if encoded.left else 0
                flat[first:last] = states[place, at : at + last - first]

        try:
            with (
                torch.no_grad(),
                self.autocast(),
                self.replay.skipping(start),
                self.replay.capturing([depth], keep) as forward,
            ):
                for rows in evaluation_batches(encoded.lengths, tokens):
                    inputs = {
                        name: torch.from_numpy(block).to(self.model.device)
                        for name, block in encoded.pad_rows(rows).items()
                    }
                    if source is not None:
                        width = inputs["attention_mask"].shape[1]
                        self.replay.load(source.pad_rows(rows, width).to(self.model.device))
                    forward(self.model, inputs)
            raw.flush()
        finally:
            self.model.train(training)
