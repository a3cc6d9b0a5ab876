"""Pretrains the demo's 12-layer BERT by masked-language modelling on the demo language and saves it.

Seeded and self-contained: no data, no network. `python scripts/make_demo_model.py` writes
objectives/demo_model again; `--steps 5 --out /tmp/model` is a quick look.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from objectives.corpus import Passage, passages

if TYPE_CHECKING:
    import torch
    from transformers import BertForMaskedLM, PreTrainedTokenizerFast

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MAX_LENGTH = 48
WIDTH, HEADS, INNER = 64, 4, 128
PHASES = ((3, 0.45), (6, 0.25), (12, 0.3))
"""Depth and share of the steps: deep thin models learn sooner when stacked from shallow ones."""


def make_tokenizer(out: Path) -> PreTrainedTokenizerFast:
    """Whole words of the language by frequency, and single letters so that any other text has tokens too."""
    from transformers import BertTokenizer

    texts = chain.from_iterable(filter(None, passage) for passage in islice(passages("vocabulary"), 40_000))
    counts = Counter(word for text in texts for word in text.split())
    words = [word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)] + [str(digit) for digit in range(10)]
    pieces = dict.fromkeys([*SPECIAL, *words, *letters, *(f"##{letter}" for letter in letters)])
    tokenizer = BertTokenizer(vocab={piece: i for i, piece in enumerate(pieces)}, model_max_length=MAX_LENGTH)
    tokenizer.save_pretrained(out)
    return tokenizer


def make_model(vocabulary: int, layers: int) -> BertForMaskedLM:
    from transformers import BertConfig, BertForMaskedLM

    return BertForMaskedLM(
        BertConfig(
            vocab_size=vocabulary,
            num_hidden_layers=layers,
            hidden_size=WIDTH,
            num_attention_heads=HEADS,
            intermediate_size=INNER,
            max_position_embeddings=MAX_LENGTH,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            initializer_range=0.05,
        )
    )


def stack(model: BertForMaskedLM) -> BertForMaskedLM:
    """A model of twice the depth whose upper half repeats the lower: it starts from what that learnt."""
    layers = len(model.bert.encoder.layer)
    deeper = make_model(model.config.vocab_size, 2 * layers)
    deeper.load_state_dict(model.state_dict(), strict=False)
    for i, layer in enumerate(model.bert.encoder.layer):
        deeper.bert.encoder.layer[layers + i].load_state_dict(layer.state_dict())
    return deeper


def batches(tokenizer: Any, stream: Iterator[Passage], size: int) -> Iterator[dict[str, torch.Tensor]]:
    """Batches of similar length, drawn from a window of the stream."""
    import torch

    while True:
        window = list(islice(stream, size * 16))
        window.sort(key=lambda passage: len(" ".join(filter(None, passage)).split()))
        order = torch.randperm(16).tolist()
        for start in order:
            chunk = window[start * size : (start + 1) * size]
            texts = [first if second is None else (first, second) for first, second in chunk]
            yield tokenizer(texts, padding=True, truncation=True, max_length=MAX_LENGTH, return_tensors="pt")


def mask(tokenizer: Any, tokens: torch.Tensor, rate: float = 0.2) -> tuple[torch.Tensor, torch.Tensor]:
    """BERT's corruption: of the chosen tokens 80 % masked, 10 % replaced, 10 % kept."""
    import torch

    special = tokens < len(SPECIAL)
    chosen = (torch.rand(tokens.shape) < rate) & ~special
    labels = tokens.masked_fill(~chosen, -100)
    fate = torch.rand(tokens.shape)
    corrupted = tokens.masked_fill(chosen & (fate < 0.8), tokenizer.mask_token_id)
    random = torch.randint(len(SPECIAL), len(tokenizer), tokens.shape)
    return torch.where(chosen & (fate >= 0.8) & (fate < 0.9), random, corrupted), labels


def masked_accuracy(model: BertForMaskedLM, tokenizer: Any, count: int = 1_000) -> float:
    """Share of masked tokens of held-out passages that the model names."""
    import torch

    model.eval()
    right = total = 0
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        for batch in islice(batches(tokenizer, passages("held out"), 50), count // 50):
            tokens = batch.pop("input_ids")
            corrupted, labels = mask(tokenizer, tokens)
            guesses = model(input_ids=corrupted, **batch).logits.argmax(-1)
            right += int(((guesses == labels) & (labels >= 0)).sum())
            total += int((labels >= 0).sum())
    model.train()
    return right / total


def pretrain(
    model: BertForMaskedLM,
    tokenizer: Any,
    stream: Iterator[Passage],
    *,
    steps: int,
    batch_size: int,
    rate: float,
) -> None:
    import torch

    decayed = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.98))
    warmup = max(1, min(300, steps // 10))
    scale = lambda step: min((step + 1) / warmup, max(0.0, (steps - step) / (steps - warmup + 1)))  # noqa: E731
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, scale)
    started, running = time.monotonic(), 0.0
    model.train()
    for step, batch in enumerate(islice(batches(tokenizer, stream, batch_size), steps), start=1):
        tokens = batch.pop("input_ids")
        corrupted, labels = mask(tokenizer, tokens)
        chosen = labels >= 0
        states = model.bert(input_ids=corrupted, **batch).last_hidden_state
        loss = torch.nn.functional.cross_entropy(model.cls(states[chosen]), labels[chosen])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        running += loss.item()
        if step % 250 == 0 or step == steps:
            seconds, count = time.monotonic() - started, (step - 1) % 250 + 1
            depth = model.config.num_hidden_layers
            print(
                f"{depth} layers  step {step}/{steps}  loss {running / count:.3f}  {seconds:.0f} s",
                flush=True,
            )
            running = 0.0


def save(model: BertForMaskedLM, out: Path) -> None:
    model.config.hidden_dropout_prob = model.config.attention_probs_dropout_prob = 0.1
    model.save_pretrained(out)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = Path(__file__).resolve().parent.parent / "objectives" / "demo_model"
    parser.add_argument("--out", type=Path, default=default, help="folder to write (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=12_000)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(argv)

    import torch

    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    options.out.mkdir(parents=True, exist_ok=True)
    tokenizer = make_tokenizer(options.out)
    stream = passages(options.seed)
    model = make_model(len(tokenizer), PHASES[0][0])
    for layers, share in PHASES:
        if layers > model.config.num_hidden_layers:
            model = stack(model)
        steps = max(1, round(share * options.steps))
        rate = options.learning_rate
        pretrain(model, tokenizer, stream, steps=steps, batch_size=options.batch_size, rate=rate)
    print(f"masked accuracy on held-out passages: {masked_accuracy(model, tokenizer):.3f}")
    save(model, options.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
