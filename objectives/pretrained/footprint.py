"""The memory that a trial holds at most, for every depth, estimated from a model's configuration alone.

One forward pass over tensors without values counts what each layer keeps for its backward pass; weights,
gradients and the optimiser are counted by their parameters. `objectives/README.md` says how close it comes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from objectives.capabilities import Capabilities
from objectives.depths import FULL
from objectives.fitting import DEVICE_PROCESS_BYTES
from objectives.pretrained.stack import find_layers

if TYPE_CHECKING:
    from transformers import PretrainedConfig

_FLOAT = 4
"""Bytes of a weight: mixed precision keeps them whole, and casts."""
_MOMENTS = 2
"""Of Adam and AdamW, each as large as the parameters."""
_HOST_PROCESS = 350 << 20
"""Private memory of a process that has imported everything and trains next to nothing."""
_TRANSIENT = 3
"""Of the largest tensors, how many are at hand at once beside what is kept."""
TOLERANCE = 0.15
"""By how much of itself a peak may differ from its estimate, as measured (`objectives/README.md`)."""
_DTYPES = {"no": None, "bf16": torch.bfloat16, "fp16": torch.float16}
_ATTENTION_DROPOUT = ("attention_probs_dropout_prob", "attention_dropout", "attn_pdrop")


@dataclass(frozen=True)
class Footprint:
    """Bytes of one process."""

    weights: int
    gradients: int
    optimiser: int
    activations: int
    process: int
    """What it takes whatever it trains."""

    @property
    def total(self) -> int:
        return sum(astuple(self))

    def __str__(self) -> str:
        named = {name: value for name, value in vars(self).items() if name != "process"}
        return " + ".join(
            [
                *(f"{name} {gigabytes(value)}" for name, value in named.items()),
                f"{gigabytes(self.process)} for the process",
            ]
        )


def gigabytes(size: float) -> str:
    return f"{size / 1e9:.2f} GB"


@dataclass(frozen=True, kw_only=True)
class Fit:
    """What decides beside the model how much is held."""

    micro_batch: int
    cached: bool
    """Whether frozen layers answer from the cache, and need not be on the device."""
    checkpointing: bool = False
    trained_rows: int | None = None
    """Of the word embeddings, where nothing is frozen; None is all of them."""
    shards: int = 1
    """Processes that share out weights, gradients and optimiser state."""


@dataclass(frozen=True, kw_only=True)
class Shapes:
    """What a model needs, per parameter group, layer and example."""

    host: bool
    embeddings: int
    """Parameters."""
    word_rows: int
    word_width: int
    layers: tuple[int, ...]
    head: int
    kept: tuple[int, ...]
    """Bytes that each layer keeps per example."""
    cast: tuple[int, ...]
    """Bytes that each layer keeps whatever the number of examples: weights in 16 bits."""
    kept_before: int
    """Bytes that the embeddings keep per example."""
    kept_after: int
    """Bytes that pooler, head and loss keep per example."""
    state: int
    """Bytes of one example's hidden states."""
    largest: int
    """Bytes of the largest tensor of one example."""
    forward_tokens: int
    tokens: int

    def footprint(self, depth: int, fit: Fit) -> Footprint:
        first = max(depth, 0)
        tuned = sum(self.layers[first:]) + self.head
        rows = self.word_rows if fit.trained_rows is None else min(fit.trained_rows, self.word_rows)
        if depth == FULL:
            tuned += self.embeddings - (self.word_rows - rows) * self.word_width
        on_device = self.parameters
        # On the host they are the pretrained weights themselves where trials are sharded.
        if fit.cached and (fit.shards > 1 or not self.host):
            on_device -= sum(self.layers[:first])
        # With nothing frozen the trained rows are a second, smaller embedding.
        copies = rows * self.word_width if depth == FULL and rows < self.word_rows else 0
        weights = on_device + copies
        gradients, moments = tuned, tuned * _MOMENTS
        if fit.shards > 1:
            # Beside its share a process has whole what runs now, twice while it is gathered, what runs next,
            # and one gradient.
            words = (rows if depth == FULL else self.word_rows) * self.word_width
            running = max([words, *(self.layers[first:] if fit.cached else self.layers)])
            weights = _share(weights - (self.word_rows * self.word_width if copies else 0), fit) + 3 * running
            trained = max([words if depth == FULL else 0, self.head, *self.layers[first:]])
            gradients, moments = _share(tuned, fit) + trained, _share(moments, fit)
        if self.host:
            # The pretrained weights, to put back before each trial.
            weights += self.parameters
        evaluation = self.largest * _TRANSIENT * max(1, self.forward_tokens // self.tokens)
        process = _HOST_PROCESS if self.host else DEVICE_PROCESS_BYTES
        training = Footprint(
            weights=weights * _FLOAT,
            gradients=gradients * _FLOAT,
            optimiser=moments * _FLOAT,
            activations=max(self._activations(depth, fit), evaluation),
            process=process,
        )
        if self.host or not (fit.cached and first):
            return training
        # The states to be cached are computed with the whole model, by one process.
        building = Footprint(self.parameters * _FLOAT, 0, 0, evaluation, process)
        return max(training, building, key=lambda one: one.total)

    @property
    def parameters(self) -> int:
        return self.embeddings + sum(self.layers) + self.head

    def _activations(self, depth: int, fit: Fit) -> int:
        first, batch = max(depth, 0), fit.micro_batch
        layers = [
            batch * kept + cast for kept, cast in zip(self.kept[first:], self.cast[first:], strict=True)
        ]
        if fit.checkpointing and layers:
            # One layer at a time, computed again, with the gradients of what it keeps.
            inside = 2 * max(layers) + len(layers) * batch * self.state
        else:
            inside = sum(layers)
        before = self.kept_before if depth == FULL else 0
        return inside + batch * (before + self.kept_after + _TRANSIENT * self.largest)


def _share(parameters: int, fit: Fit) -> int:
    return -(-parameters // fit.shards)


def shapes(config: PretrainedConfig, labels: int, *, tokens: int, precision: str, host: bool) -> Shapes:
    """Of examples of so many tokens, on the host or on a device, where attention is fused if it can be."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from transformers import AutoModelForSequenceClassification
    from transformers.initialization import no_init_weights

    from objectives.pretrained.models import attention

    # Of a GPU nothing is asked but what all of them have.
    can = Capabilities(torch.device("cpu") if host else torch.device("cuda", 0))
    config = type(config).from_dict({**config.to_dict(), "num_labels": labels})
    if getattr(config, "pad_token_id", None) is None:
        config.pad_token_id = 0
    way = attention(config, host)
    if not host and AutoModelForSequenceClassification._model_mapping[type(config)]._supports_sdpa:
        # Fused kernels drop attention weights without keeping them; DeBERTa and XLNet have none.
        for name in _ATTENTION_DROPOUT:
            if hasattr(config, name):
                setattr(config, name, 0.0)
    with FakeTensorMode(allow_non_fake_inputs=True), no_init_weights():
        chosen = {} if way is None else {"attn_implementation": way}
        model = AutoModelForSequenceClassification.from_config(config, **chosen)
        stack = find_layers(model)
        words = model.get_input_embeddings().weight
        one = _Kept(model, stack.layers, 1, tokens, precision, can)
        two = _Kept(model, stack.layers, 2, tokens, precision, can)
    each = [b - a for a, b in zip(one.layers, two.layers, strict=True)]
    return Shapes(
        host=host,
        embeddings=sum(p.numel() for p in stack.embeddings.values()),
        word_rows=words.shape[0],
        word_width=words.shape[1],
        layers=tuple(sum(p.numel() for p in layer.parameters()) for layer in stack.layers),
        head=sum(p.numel() for p in stack.head.values()),
        kept=tuple(each),
        cast=tuple(max(0, a - e) for a, e in zip(one.layers, each, strict=True)),
        kept_before=two.before - one.before,
        kept_after=two.after - one.after,
        state=tokens * config.hidden_size * _FLOAT,
        largest=one.largest,
        forward_tokens=can.forward_tokens,
        tokens=tokens,
    )


class _Kept:
    """What one forward pass of so many examples keeps for the backward pass, in bytes, by where."""

    def __init__(self, model: Any, layers: Any, batch: int, tokens: int, precision: str, can: Capabilities):
        from objectives.pretrained.masks import unread_masks

        self.before = self.after = self.largest = 0
        self.layers = [0] * len(layers)
        self._place: int | None = -1
        own = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
        seen: dict[int, Any] = {}

        def pack(value: torch.Tensor) -> torch.Tensor:
            storage = value.untyped_storage()
            if storage._cdata not in own and storage._cdata not in seen:
                seen[storage._cdata] = storage
                self._add(storage.nbytes(), value.dim() > 2)
            return value

        hooks = [layer.register_forward_pre_hook(self._enter(n)) for n, layer in enumerate(layers)]
        hooks += [layer.register_forward_hook(self._enter(None)) for layer in layers]
        ids = torch.ones((batch, tokens), dtype=torch.long)
        dtype = _DTYPES[precision]
        model.train()
        with (
            unread_masks(Capabilities(torch.device("meta"))),  # they have no values to be read
            torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None),
            _counted_dropout(torch.float32 if can.is_host else torch.bool),
            torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value),
        ):
            logits = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
            functional.log_softmax(logits.float(), dim=-1)
        for hook in hooks:
            hook.remove()

    def _enter(self, number: int | None) -> Any:
        def hook(*_: Any) -> None:
            self._place = number

        return hook

    def _add(self, size: int, is_batch: bool) -> None:
        if self._place is None:
            self.after += size
        elif self._place < 0:
            self.before += size
        else:
            self.layers[self._place] += size
            if is_batch:
                self.largest = max(self.largest, size)


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        context.save_for_backward(torch.empty(values.shape, dtype=dtype))
        return values.clone()

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradients[0], None


@contextmanager
def _counted_dropout(dtype: torch.dtype) -> Iterator[None]:
    """While it lasts, dropout keeps what ours keeps on a CPU, or what a GPU's kernel keeps."""
    stock = functional.dropout

    def dropout(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        return _Dropout.apply(input, dtype) if training and p > 0 else input

    functional.dropout = dropout  # type: ignore[assignment]
    try:
        yield
    finally:
        functional.dropout = stock
