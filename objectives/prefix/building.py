"""Computes the states of one data set after its frozen layers, chunk by chunk, many depths in one pass.

What it computes depends on model, data, depth and precision alone: not on the depth that a pass starts from,
nor on the others that it is computed with.
"""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from objectives.data.encoding import Encoded, evaluation_batches
from objectives.errors import TrialFailed
from objectives.machine import give_back_memory
from objectives.prefix.entries import FORMAT
from objectives.prefix.layout import CHUNK_BYTES, Layout
from objectives.prefix.states import Places, States

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from objectives.pretrained.head_token import HeadToken
    from objectives.pretrained.replay import Replay
    from objectives.pretrained.stack import LayerStack


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


def passes(targets: Collection[int], stored: Collection[int]) -> list[tuple[int, list[int]]]:
    """The fewest layers that compute all `targets`: where each pass starts, and the depths on its way."""
    found: list[tuple[int, list[int]]] = []
    for depth in sorted(targets):
        start = max((known for known in stored if known < depth), default=0)
        if found and start <= found[-1][1][-1]:
            found[-1][1].append(depth)
        else:
            found.append((start, [depth]))
    return found


@dataclass
class Builder:
    """The states of one set of examples with one model, and how to compute them."""

    model: PreTrainedModel
    replay: Replay
    encoded: Encoded
    weights: Sequence[str]
    """Digests per depth, from `weight_digests`."""
    dtype: torch.dtype
    """Of stored states."""
    autocast: Callable[[], Any]
    precision: str = "no"
    """That the layers compute in."""
    head_token: HeadToken | None = None
    examples: str = ""
    _tokens: int | None = field(default=None, init=False)
    """Padded tokens per forward pass, where memory ran out with what the device usually takes."""
    _keys: dict[int, str] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.examples = self.examples or self.encoded.digest()

    @property
    def total_layers(self) -> int:
        return self.replay.stack.total_layers

    @property
    def hidden(self) -> int:
        return int(self.model.config.hidden_size)

    @property
    def row_bytes(self) -> int:
        return self.hidden * self.dtype.itemsize

    @cached_property
    def layout(self) -> Layout:
        return Layout(self.encoded.lengths, max(1, CHUNK_BYTES // self.row_bytes))

    def one_token(self, depth: int) -> bool:
        """Whether nothing but the token that the head reads is stored."""
        return depth == self.total_layers and self.head_token is not None

    def widths(self, depth: int) -> NDArray[np.int64]:
        lengths = self.encoded.lengths
        return np.ones_like(lengths) if self.one_token(depth) else lengths

    def size(self, depth: int) -> int:
        return int(self.widths(depth).sum()) * self.row_bytes

    def spans(self, depth: int) -> list[tuple[int, int]]:
        """First and last byte of each chunk."""
        rows = self.layout.spans(self.widths(depth))
        return [(first * self.row_bytes, last * self.row_bytes) for first, last in rows]

    def key(self, depth: int) -> str:
        """Of all that the states depend on."""
        if depth not in self._keys:
            import torch
            import transformers

            parts = [FORMAT, self.examples, self.weights[depth], depth, self.dtype, type(self.model).__name__]
            parts += [self.precision, self.head_token if self.one_token(depth) else None]
            versions = [torch.__version__, transformers.__version__, self.model.config._attn_implementation]
            text = repr([*parts, *versions])
            self._keys[depth] = hashlib.sha256(text.encode()).hexdigest()[:24]
        return self._keys[depth]

    def open(self, file: BinaryIO, depth: int, seconds: float) -> States:
        widths = self.widths(depth)
        places = Places(self.layout.starts(widths), widths, self.one_token(depth), self.encoded.left)
        return States(file, places, dtype=self.dtype, hidden=self.hidden, seconds=seconds)

    def compute(
        self, chunk: int, targets: Collection[int], stored: Mapping[int, NDArray[Any]]
    ) -> dict[int, torch.Tensor]:
        """One chunk's states at each of `targets`, from those of shallower depths that are `stored`."""
        import torch

        rows = self.layout.chunks[chunk]
        found = {
            depth: torch.empty((int(self.widths(depth)[rows].sum()), self.hidden), dtype=self.dtype)
            for depth in targets
        }
        for start, depths in passes(targets, stored):
            self._run_within_memory(rows, start, depths, stored.get(start), found)
        return found

    def _run_within_memory(
        self,
        rows: NDArray[np.int64],
        start: int,
        depths: Sequence[int],
        source: NDArray[Any] | None,
        found: Mapping[int, torch.Tensor],
    ) -> None:
        """With half as many tokens at a time as often as memory runs out, down to one example."""
        from objectives.capabilities import capabilities, out_of_memory

        device = capabilities(self.model.device)
        while True:
            tokens = self._tokens or device.forward_tokens
            try:
                return self._run(rows, start, depths, source, found, tokens)
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error):
                    raise
                reason = " ".join(str(error).split())[:200]
                traceback.clear_frames(error.__traceback__)
            give_back_memory(device)
            if tokens <= self.encoded.lengths[rows].max():
                raise TrialFailed(f"out of memory while the states of one example are computed: {reason}")
            self._tokens = tokens // 2

    def _run(
        self,
        rows: NDArray[np.int64],
        start: int,
        depths: Sequence[int],
        source: NDArray[Any] | None,
        found: Mapping[int, torch.Tensor],
        tokens: int,
    ) -> None:
        import torch

        device = self.model.device
        batch = rows
        inputs: dict[str, torch.Tensor] = {}
        places = torch.empty(0)
        done = dict.fromkeys(depths, 0)

        def keep(depth: int, states: torch.Tensor) -> None:
            if self.one_token(depth):
                assert self.head_token is not None
                taken = self.head_token.take(states, inputs)
            else:
                taken = states.reshape(-1, self.hidden)[places]
            first = done[depth]
            done[depth] = first + len(taken)
            found[depth][first : done[depth]] = taken.to(self.dtype)

        training = self.model.training
        self.model.eval()
        read = 0
        try:
            with (
                torch.no_grad(),
                self.autocast(),
                self.replay.skipping(start),
                self.replay.rounding(self.dtype),
                self.replay.capturing(depths, keep) as forward,
            ):
                for order in evaluation_batches(self.encoded.lengths[rows], tokens):
                    batch = rows[order]
                    padded = self.encoded.pad_rows(batch)
                    inputs = {name: torch.from_numpy(block).to(device) for name, block in padded.items()}
                    # Of the real tokens, in the order of the file.
                    places = torch.from_numpy(np.flatnonzero(padded["attention_mask"])).to(device)
                    if source is not None:
                        states = torch.zeros(
                            (padded["attention_mask"].size, self.hidden), dtype=self.dtype, device=device
                        )
                        flat = torch.from_numpy(source[read : read + len(places)]).view(self.dtype)
                        states[places] = flat.to(device)
                        read += len(places)
                        self.replay.load(states.view(*padded["attention_mask"].shape, self.hidden).float())
                    forward(self.model, inputs)
        finally:
            self.model.train(training)
