"""How long examples are in tokens: what a maximum length cuts, and which one cuts next to nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from objectives.contract import UsageError

if TYPE_CHECKING:
    from objectives.data.task_data import TaskData

SAMPLE = 10_000
"""Training examples whose tokens are counted; all where there are no more."""
AUTO = "auto"
AUTO_SHARE = 0.99
_OFFSETS = ("roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "mpnet", "longformer", "data2vec-text")
"""Models whose positions begin after the padding token's."""
_NO_LIMIT = 1_000_000
_SEED = 128


@dataclass(frozen=True)
class Lengths:
    """Of a sample of the training examples, special tokens included."""

    tokens: NDArray[np.int64]
    limit: int | None
    """The most that the model takes."""
    model: str
    words: int | None = None
    """Different tokens of all training examples; None where only a sample was looked at."""

    def longest(self, length: int) -> int:
        """Tokens of the longest example where longer ones than `length` are cut."""
        return min(length, int(self.tokens.max(initial=1)))

    def resolve(self, wanted: int | str | None, usual: int) -> int:
        """A maximum length: as wanted within the model's limit, or with `auto` what 99 % of examples need."""
        if wanted is None:
            return min(usual, self.limit or usual)
        if wanted == AUTO:
            needed = int(np.quantile(self.tokens, AUTO_SHARE, method="higher"))
            return max(2, min(needed, self.limit or needed))
        length = int(wanted)
        if self.limit is not None and length > self.limit:
            raise UsageError(
                f"--max-length {length} is beyond {self.model}, which takes {self.limit} tokens: use at most "
                "that, or auto"
            )
        return length

    def cut(self, length: int) -> float:
        """The share of examples that are longer."""
        return float(np.mean(self.tokens > length))

    def told(self, length: int) -> str:
        """A remark where something is cut, else nothing."""
        share = self.cut(length)
        if not share:
            return ""
        percent = f"{100 * share:.1f} %" if share >= 0.0005 else "Less than 0.1 %"
        return f"{percent} of the training examples are longer than {length} tokens and are cut."


def measure(data: TaskData, path: str, name: str) -> Lengths:
    """Tokenises as trials do, without cutting."""
    from transformers import AutoConfig

    from objectives.pretrained.models import load_tokenizer

    tokenizer = load_tokenizer(path)
    rows = np.arange(len(data.train))
    whole = len(rows) <= SAMPLE
    if not whole:
        rows = np.sort(np.random.default_rng(_SEED).choice(rows, SAMPLE, replace=False))
    sample = data.train.select(rows)
    texts = [sample[column][:] for column in data.task.text]
    encoded = tokenizer(*texts, return_attention_mask=False, return_token_type_ids=False)["input_ids"]
    config = AutoConfig.from_pretrained(path)
    words = len({token for row in encoded for token in row}) if whole else None
    return Lengths(np.array([len(row) for row in encoded]), _limit(config, tokenizer), name, words)


def _limit(config: object, tokenizer: object) -> int | None:
    positions = getattr(config, "max_position_embeddings", None)
    if getattr(config, "position_biased_input", True) is False:
        # Positions are relative: the model knows no last one.
        positions = None
    if positions is not None and getattr(config, "model_type", "") in _OFFSETS:
        positions -= (getattr(config, "pad_token_id", None) or 0) + 1
    limits = [positions, getattr(tokenizer, "model_max_length", None)]
    known = [int(limit) for limit in limits if limit is not None and 0 < limit < _NO_LIMIT]
    return min(known, default=None)
