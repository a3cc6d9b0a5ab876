"""Tiny random models of every supported family, in folders that `from_pretrained` loads, and tiny data."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

WORDS = [f"w{number}" for number in range(60)]
LAYERS = 4
_SHAPE: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "vocab_size": 72,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 3,
}
_DECODER = {**_SHAPE, "num_key_value_heads": 1, "head_dim": 16}
FAMILIES: dict[str, dict[str, Any]] = {
    "bert": _SHAPE,
    "roberta": _SHAPE,
    "electra": {**_SHAPE, "embedding_size": 16},
    "mpnet": _SHAPE,
    "modernbert": {**_SHAPE, "cls_token_id": 2, "sep_token_id": 3},
    "distilbert": {"dim": 32, "n_layers": LAYERS, "n_heads": 2, "hidden_dim": 48, "vocab_size": 72},
    "deberta-v2": {
        **_SHAPE,
        "relative_attention": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_biased_input": False,
        "norm_rel_ebd": "layer_norm",
        "conv_kernel_size": 3,
    },
    "xlnet": {"d_model": 32, "n_layer": LAYERS, "n_head": 2, "d_inner": 48, "vocab_size": 72},
    "gpt2": {
        "n_embd": 32,
        "n_layer": LAYERS,
        "n_head": 2,
        "vocab_size": 72,
        "bos_token_id": 2,
        "eos_token_id": 3,
    },
    "llama": _DECODER,
    "qwen3": _DECODER,
    "gemma3_text": _DECODER,
}


def save_model(family: str, folder: Path, *, dropout: bool = True, **changes: Any) -> str:
    """A seeded random model with a word-level tokenizer; without dropout both prefixes must agree."""
    import torch
    from transformers import AutoConfig, AutoModelForSequenceClassification

    config = AutoConfig.for_model(family, **{**FAMILIES[family], "pad_token_id": 0, **changes})
    if not dropout:
        for name, value in list(config.to_dict().items()):
            if ("dropout" in name or name.endswith("_pdrop")) and isinstance(value, float):
                setattr(config, name, 0.0)
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_config(config)
    model.base_model.save_pretrained(folder)
    _tokenizer().save_pretrained(folder)
    return str(folder)


def _tokenizer() -> Any:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {word: number for number, word in enumerate([*special, *WORDS])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **dict(zip(names, special, strict=True)))


def sentences(count: int, seed: int) -> list[dict[str, Any]]:
    """SST-2-like rows: the label is whether the first word is an even one."""
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        words = draw.choices(WORDS, k=draw.randint(2, 14))
        rows.append({"sentence": " ".join(words), "label": int(int(words[0][1:]) % 2 == 0)})
    return rows


def save_data(folder: Path, train: int = 48, validation: int = 24) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    for name, count, seed in (("train", train, 1), ("validation", validation, 2)):
        lines = [json.dumps(row) for row in sentences(count, seed)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return str(folder)
