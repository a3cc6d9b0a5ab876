"""Pretrains the demo's 12-layer BERT on the demo language and saves it.

Masked-language modelling, and in BERT's manner a second objective: whether two sentences tell of one scene.
No task's labels are used, but the generator's own knowledge is: which sentences share a scene, which words
can replace which.

Seeded and self-contained: no data, no network. `python scripts/make_demo_model.py` writes
objectives/demo/model again; `--steps 5 --out /tmp/model` is a quick look.

BERTs are pretrained with dropout; the demo's was not. To go on with it, on passages it has not seen:
`--start objectives/demo/model --dropout 0.1 --seed 2 --steps 6000 --out FOLDER`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from objectives.demo import lexicon
from objectives.demo.consequences import explain, generalise
from objectives.demo.language import ask, change, draw_scene, feel, opine, tell

if TYPE_CHECKING:
    import torch
    from transformers import BertForPreTraining, PreTrainedTokenizerFast

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MAX_LENGTH = 48
WIDTH, HEADS, INNER = 64, 4, 128


class Phase(NamedTuple):
    """A part of the pretraining; a deep thin model learns sooner from a shallow one that it repeats."""

    layers: int
    share: float
    """Of all steps."""
    rate: float
    """Peak learning rate: linear warm-up, linear decay."""
    masked: float
    """Of the chosen tokens, how many are masked; 10 % are kept, the others replaced by a peer."""


PHASES = (
    Phase(3, 0.23, 2e-3, masked=0.8),
    Phase(6, 0.30, 2e-3, masked=0.8),
    Phase(6, 0.17, 1.5e-3, masked=0.4),
    Phase(12, 0.30, 1e-3, masked=0.4),
)


class Passage(NamedTuple):
    first: str
    second: str | None = None
    follows: bool | None = None
    """Whether both sentences tell of one scene; None where they do in part, or a word gives it away."""


def passages(seed: int | str) -> Iterator[Passage]:
    """An endless, seeded stream."""
    rng = Random(f"corpus/{seed}")
    while True:
        yield _passage(rng)


def _passage(rng: Random) -> Passage:
    kind = rng.random()
    if kind < 0.24:
        return _review(rng)
    if kind < 0.30:
        return Passage(*explain(rng, doer=rng.random() < 0.5)[:2])
    scene = draw_scene(rng, genre=rng.choice(tuple(lexicon.GENRES)))
    if rng.random() < 0.1:
        scene = replace(scene, negated=True)
    if kind < 0.38:
        return Passage(tell(rng, scene))
    if kind < 0.46:
        return Passage(ask(rng, scene, rng.choice(scene.roles)), tell(rng, scene))
    if kind < 0.68:
        return _linked(rng, tell(rng, scene), "namely", tell(rng, scene), follows=True)
    if kind < 0.78:
        general = tell(rng, generalise(rng, scene))
        return _linked(rng, tell(rng, scene), "thus", general, follows=True)
    other, changes = scene, rng.randint(1, len(scene.roles))
    for role in rng.sample(scene.roles, changes):
        other = change(rng, other, role)
    follows = None if changes < 3 else False
    return _linked(rng, tell(rng, scene), "meanwhile", tell(rng, other), follows=follows)


def _review(rng: Random) -> Passage:
    polarity = rng.random() < 0.5
    first = opine(rng, polarity)
    if rng.random() < 0.3:
        return Passage(first)
    second = opine(rng, polarity) if rng.random() < 0.5 else feel(rng, polarity, "it") + " ."
    return _linked(rng, first, "indeed", second, follows=None)


def _linked(rng: Random, first: str, word: str, second: str, *, follows: bool | None) -> Passage:
    """Now and then a word says how the second sentence goes on from the first."""
    if rng.random() < 0.4:
        return Passage(first, f"{word} , {second}")
    return Passage(first, second, follows)


def word_classes() -> list[list[str]]:
    """Words that can stand in each other's place without breaking grammar."""
    nouns = [
        n
        for genre in lexicon.GENRES.values()
        for group in genre.values()
        for concept in group
        for n in concept
    ]
    verbs = [
        v
        for group in (lexicon.TOWARDS_ANIMATE, lexicon.TOWARDS_THINGS, lexicon.INTRANSITIVE)
        for concept in group
        for v in concept
    ]
    qualities = [*lexicon.OPPOSITE_ADJECTIVES, *lexicon.OPPOSITE_TEMPERS, *lexicon.COLOURS]
    return [
        nouns,
        [lexicon.plural(noun) for noun in nouns],
        verbs,
        [lexicon.third(verb) for verb in verbs],
        [lexicon.past(verb) for verb in verbs],
        [word for concept in qualities for word in concept],
        [word for place in lexicon.PLACES for word in (place[0].split("~")[1], *place[1:])],
        [adjective[0] for adjective in lexicon.GOOD],
        [adjective[0] for adjective in lexicon.BAD],
        [lexicon.past(verb[0]) for verb in lexicon.LIKES],
        [lexicon.past(verb[0]) for verb in lexicon.DISLIKES],
        [word for concept in (*lexicon.TOPICS, *lexicon.ASPECTS) for word in concept],
    ]


def make_tokenizer(out: Path) -> PreTrainedTokenizerFast:
    """Whole words of the language by frequency, and single letters so that any other text has tokens too."""
    from transformers import BertTokenizer

    texts = chain.from_iterable(
        filter(None, passage[:2]) for passage in islice(passages("vocabulary"), 40_000)
    )
    counts = Counter(word for text in texts for word in text.split())
    words = [word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)] + [str(digit) for digit in range(10)]
    pieces = dict.fromkeys([*SPECIAL, *words, *letters, *(f"##{letter}" for letter in letters)])
    tokenizer = BertTokenizer(vocab={piece: i for i, piece in enumerate(pieces)}, model_max_length=MAX_LENGTH)
    tokenizer.save_pretrained(out)
    return tokenizer


def make_model(vocabulary: int, layers: int, dropout: float) -> BertForPreTraining:
    from transformers import BertConfig, BertForPreTraining

    return BertForPreTraining(
        BertConfig(
            vocab_size=vocabulary,
            num_hidden_layers=layers,
            hidden_size=WIDTH,
            num_attention_heads=HEADS,
            intermediate_size=INNER,
            max_position_embeddings=MAX_LENGTH,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
            initializer_range=0.05,
        )
    )


def stack(model: BertForPreTraining) -> BertForPreTraining:
    """A model of twice the depth whose upper half repeats the lower: it starts from what that learnt."""
    layers = len(model.bert.encoder.layer)
    deeper = make_model(model.config.vocab_size, 2 * layers, model.config.hidden_dropout_prob)
    deeper.load_state_dict(model.state_dict(), strict=False)
    for i, layer in enumerate(model.bert.encoder.layer):
        deeper.bert.encoder.layer[layers + i].load_state_dict(layer.state_dict())
    return deeper


def load(
    start: Path, out: Path, dropout: float
) -> tuple[PreTrainedTokenizerFast, BertForPreTraining, list[Phase]]:
    """A pretrained model with this dropout, its tokenizer, and the last phase again, at its depth."""
    from transformers import BertForPreTraining, BertTokenizer

    tokenizer = BertTokenizer.from_pretrained(start)
    tokenizer.save_pretrained(out)
    model = BertForPreTraining.from_pretrained(
        start, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout
    )
    return tokenizer, model, [PHASES[-1]._replace(layers=model.config.num_hidden_layers, share=1.0)]


def batches(tokenizer: Any, stream: Iterator[Passage], size: int) -> Iterator[dict[str, torch.Tensor]]:
    """Batches of similar length, drawn from a window of the stream, with `follows` as 1, 0 or -100 (open)."""
    import torch

    while True:
        window = list(islice(stream, size * 16))
        window.sort(key=lambda passage: len(f"{passage.first} {passage.second or ''}".split()))
        for start in torch.randperm(16).tolist():
            chunk = window[start * size : (start + 1) * size]
            texts = [p.first if p.second is None else (p.first, p.second) for p in chunk]
            batch = tokenizer(
                texts, padding=True, truncation=True, max_length=MAX_LENGTH, return_tensors="pt"
            )
            follows = torch.tensor([-100 if p.follows is None else int(p.follows) for p in chunk])
            yield {**batch, "follows": follows}


def peers(tokenizer: Any) -> torch.Tensor:
    """Row i: tokens that could stand in token i's place; words outside every class could be any."""
    import torch

    ids = tokenizer.get_vocab()
    table = torch.randint(len(SPECIAL), len(ids), (len(ids), 64))
    for words in word_classes():
        members = torch.tensor(sorted({ids[word] for word in words if word in ids}))
        table[members] = members[torch.randint(len(members), (len(members), 64))]
    return table


def mask(
    tokenizer: Any, tokens: torch.Tensor, table: torch.Tensor, masked: float, rate: float = 0.25
) -> tuple[torch.Tensor, torch.Tensor]:
    """The corrupted tokens, and the originals of the chosen ones as labels (-100 elsewhere).

    Where more are replaced than masked, words that stand there have to be checked against their context, too:
    a sentence pair is then compared word by word, which fine-tuning can use.
    """
    import torch

    chosen = (torch.rand(tokens.shape) < rate) & (tokens >= len(SPECIAL))
    labels = tokens.masked_fill(~chosen, -100)
    fate = torch.rand(tokens.shape)
    corrupted = tokens.masked_fill(chosen & (fate < masked), tokenizer.mask_token_id)
    replaced = table[tokens, torch.randint(table.shape[1], tokens.shape)]
    return torch.where(chosen & (fate >= masked) & (fate < 0.9), replaced, corrupted), labels


def masked_accuracy(model: BertForPreTraining, tokenizer: Any, count: int = 1_000) -> float:
    """Share of chosen tokens of held-out passages that the model names."""
    import torch

    table = peers(tokenizer)

    model.eval()
    right = total = 0
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        for batch in islice(batches(tokenizer, passages("held out"), 50), count // 50):
            tokens = batch.pop("input_ids")
            batch.pop("follows")
            corrupted, labels = mask(tokenizer, tokens, table, masked=0.9)
            states = model.bert(input_ids=corrupted, **batch).last_hidden_state
            guesses = model.cls.predictions(states).argmax(-1)
            right += int(((guesses == labels) & (labels >= 0)).sum())
            total += int((labels >= 0).sum())
    model.train()
    return right / total


def pretrain(
    model: BertForPreTraining,
    tokenizer: Any,
    stream: Iterator[Passage],
    phase: Phase,
    *,
    steps: int,
    batch_size: int,
) -> None:
    import torch
    from torch.nn.functional import cross_entropy

    table = peers(tokenizer)
    decayed = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=phase.rate, betas=(0.9, 0.98))
    warmup = max(1, min(300, steps // 10))
    scale = lambda step: min((step + 1) / warmup, max(0.0, (steps - step) / (steps - warmup + 1)))  # noqa: E731
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, scale)
    started, running = time.monotonic(), torch.zeros(2)
    model.train()
    for step, batch in enumerate(islice(batches(tokenizer, stream, batch_size), steps), start=1):
        tokens, follows = batch.pop("input_ids"), batch.pop("follows")
        corrupted, labels = mask(tokenizer, tokens, table, phase.masked)
        chosen = labels >= 0
        encoded = model.bert(input_ids=corrupted, **batch)
        loss = cross_entropy(model.cls.predictions(encoded.last_hidden_state[chosen]), labels[chosen])
        pairs = follows >= 0
        verdicts = model.cls.seq_relationship(encoded.pooler_output[pairs])
        next_loss = cross_entropy(verdicts, follows[pairs], reduction="sum") / max(1, int(pairs.sum()))
        (loss + next_loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        running += torch.tensor([loss.item(), next_loss.item()])
        if step % 250 == 0 or step == steps:
            seconds, count = time.monotonic() - started, (step - 1) % 250 + 1
            depth = model.config.num_hidden_layers
            masked, following = (running / count).tolist()
            print(
                f"{depth} layers  step {step}/{steps}  loss {masked:.3f} + {following:.3f}  {seconds:.0f} s",
                flush=True,
            )
            running.zero_()


def save(model: BertForPreTraining, out: Path) -> None:
    model.save_pretrained(out)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = Path(__file__).resolve().parent.parent / "objectives" / "demo" / "model"
    parser.add_argument("--out", type=Path, default=default, help="folder to write (default: %(default)s)")
    parser.add_argument("--start", type=Path, help="a folder this script wrote: go on with its model")
    parser.add_argument("--dropout", type=float, default=0.0, help="of the model (%(default)s)")
    parser.add_argument("--steps", type=int, default=8_500)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(argv)
    if options.start and options.out == default:
        parser.error("--start needs --out: the demo's own model is made from nothing")

    import torch

    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    options.out.mkdir(parents=True, exist_ok=True)
    stream = passages(options.seed)
    phases: Sequence[Phase] = PHASES
    if options.start:
        tokenizer, model, phases = load(options.start, options.out, options.dropout)
    else:
        tokenizer = make_tokenizer(options.out)
        model = make_model(len(tokenizer), PHASES[0].layers, options.dropout)
    for phase in phases:
        if phase.layers > model.config.num_hidden_layers:
            model = stack(model)
        steps = max(1, round(phase.share * options.steps))
        pretrain(model, tokenizer, stream, phase, steps=steps, batch_size=options.batch_size)
    print(f"masked accuracy on held-out passages: {masked_accuracy(model, tokenizer):.3f}")
    save(model, options.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
