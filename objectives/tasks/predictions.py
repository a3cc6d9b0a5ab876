"""What a trial answered to each test example, packed into a short text and out of it again. No torch.

Three forms, the shortest that the metric can be computed from: whether each answer was right (one bit), the
labels and answers (a few bits each), or the labels and outputs (16 bits each).
"""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from objectives.tasks.metrics import Metric

Array = NDArray[Any]
Form = Literal["right", "classes", "values"]


@dataclass(frozen=True)
class Predictions:
    form: Form
    labels: Array | None
    """None where only right and wrong are known."""
    outputs: Array
    """As a metric takes them; of the form "right", whether each answer was."""

    def __len__(self) -> int:
        return len(self.outputs)

    def score(self, metric: Metric, rows: NDArray[np.int64] | slice = slice(None)) -> float:
        """The metric of some of the examples."""
        if self.labels is None:
            return float(self.outputs[rows].mean())
        return metric(self.labels[rows], self.outputs[rows])


def pack(labels: Array, outputs: Array, metric: Metric) -> str:
    """A text of plain characters."""
    if labels.dtype.kind == "f" or not _answers_suffice(metric, labels.ndim):
        truth, truth_span = _steps(labels)
        given, given_span = _steps(outputs)
        head: dict[str, Any] = {"form": "values", "shape": list(labels.shape), "outputs": list(outputs.shape)}
        head |= {"spans": [truth_span, given_span], "whole": labels.dtype.kind != "f"}
        return _text(head, truth + given)
    answers = _answers(labels, outputs)
    if metric.name == "accuracy":
        right = (answers == labels).reshape(len(labels), -1).all(axis=1)
        return _text({"form": "right", "size": len(right)}, np.packbits(right).tobytes())
    kinds = outputs.shape[-1] if labels.ndim == 1 else 2
    bits = max(1, int(kinds - 1).bit_length())
    head = {"form": "classes", "shape": list(labels.shape), "kinds": outputs.shape[-1], "bits": bits}
    # Most answers are the label: what they differ by packs better than what they are.
    return _text(head, _bits(labels, bits) + _bits(labels ^ answers, bits))


@cache
def _answers_suffice(metric: Metric, dimensions: int) -> bool:
    """Whether the metric reads answers only, not how sure the model was of them: tried on made-up outputs."""
    generator = np.random.default_rng(0)
    outputs = generator.standard_normal((40, 3))
    labels = generator.integers(0, 2, (40, 3)) if dimensions == 2 else generator.integers(0, 3, 40)
    if metric.name == "f1":
        labels, outputs = labels % 2, outputs[:, :2]
    plain = _as_outputs(labels, _answers(labels, outputs), outputs.shape[1])
    return abs(metric(labels, outputs) - metric(labels, plain)) < 1e-12


def unpack(text: str) -> Predictions:
    whole = zlib.decompress(base64.b85decode(text))
    line, _, body = whole.partition(b"\n")
    head = json.loads(line)
    if head["form"] == "right":
        bits = np.unpackbits(np.frombuffer(body, dtype=np.uint8), count=head["size"])
        return Predictions("right", None, bits.astype(bool))
    shape = tuple(head["shape"])
    if head["form"] == "classes":
        size, bits = int(np.prod(shape)), head["bits"]
        cut = -(-size * bits // 8)
        labels = _unbits(body[:cut], size, bits).reshape(shape)
        answers = labels ^ _unbits(body[cut:], size, bits).reshape(shape)
        return Predictions("classes", labels, _as_outputs(labels, answers, head["kinds"]))
    steps, cut = np.frombuffer(body, dtype="<u2"), int(np.prod(shape))
    truth, given = (
        _values(part, *span) for part, span in zip((steps[:cut], steps[cut:]), head["spans"], strict=True)
    )
    labels = (truth.round().astype(np.int64) if head["whole"] else truth).reshape(shape)
    return Predictions("values", labels, given.reshape(head["outputs"]))


def _answers(labels: Array, outputs: Array) -> Array:
    """The class of each example, or the labels that it has."""
    found: Array = (outputs > 0).astype(labels.dtype) if labels.ndim == 2 else outputs.argmax(axis=1)
    return found.astype(labels.dtype)


def _as_outputs(labels: Array, answers: Array, kinds: int) -> Array:
    """Outputs that give these answers."""
    if labels.ndim == 2:
        return np.where(answers > 0, 1.0, -1.0)
    return (answers[:, None] == np.arange(kinds)).astype(np.float64)


def _bits(numbers: Array, bits: int) -> bytes:
    """The lowest bits of each number, first all lowest ones."""
    flat = numbers.ravel().astype(np.int64)
    planes = (flat[None, :] >> np.arange(bits)[:, None]) & 1
    return np.packbits(planes.astype(np.uint8).ravel()).tobytes()


def _unbits(body: bytes, size: int, bits: int) -> NDArray[np.int64]:
    planes = np.unpackbits(np.frombuffer(body, dtype=np.uint8), count=size * bits).reshape(bits, size)
    return (planes.astype(np.int64) << np.arange(bits)[:, None]).sum(axis=0)


def _steps(numbers: Array) -> tuple[bytes, tuple[float, float]]:
    """Each number as one of 65,536 steps between the lowest and the highest, and these two."""
    low, high = float(numbers.min()), float(numbers.max())
    share = (numbers.astype(np.float64) - low) / ((high - low) or 1.0)
    return (share * 65_535).round().astype("<u2").tobytes(), (low, high)


def _values(steps: Array, low: float, high: float) -> Array:
    return low + steps.astype(np.float64) / 65_535 * (high - low)


def _text(head: dict[str, Any], body: bytes) -> str:
    return base64.b85encode(zlib.compress(json.dumps(head).encode() + b"\n" + body, 9)).decode()
