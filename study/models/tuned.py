"""A fine-tuned model as what was tuned: its layers and head in one file, the frozen rest in a shared base.

Three files: tuned.safetensors, tuned.json (base model, its revision, the SHA-256 of its frozen weights, the
configuration), and the model card.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from objectives.contract import UsageError
from objectives.pretrained.models import PROBLEM_TYPES, load_tokenizer

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

WEIGHTS, ABOUT = "tuned.safetensors", "tuned.json"
FORMAT = 1
_COMMIT = re.compile("[0-9a-f]{40}")
"""Of the hub."""


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """What tuned.json says."""

    format: int = FORMAT
    base: str
    """What `from_pretrained` takes: a hub name, or a folder where it was trained."""
    revision: str
    """The hub's commit, or the fingerprint of the folder."""
    frozen_sha256: str
    """Of all weights of the model that are not in the file."""
    frozen_layers: int
    total_layers: int
    task: str
    text: tuple[str, ...] = ()
    """The one or two columns that it reads."""
    max_length: int
    config: Mapping[str, Any]
    """The fine-tuned model's configuration."""

    @property
    def multi_label(self) -> bool:
        return self.config.get("problem_type") == PROBLEM_TYPES["multi-label"]


def save(model: PreTrainedModel, about: Tuned, folder: Path, tuned: Mapping[str, torch.Tensor]) -> list[Path]:
    """The weights that were tuned, and what they belong to."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: value.detach().cpu().contiguous() for name, value in tuned.items()}, folder / WEIGHTS)
    (folder / ABOUT).write_text(json.dumps(asdict(about), indent=1) + "\n")
    return [folder / WEIGHTS, folder / ABOUT]


def read(folder: str | os.PathLike[str]) -> Tuned:
    path = Path(folder) / ABOUT
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        known = {item.name for item in fields(Tuned)}
        about = Tuned(**{name: value for name, value in values.items() if name in known})
    except FileNotFoundError:
        raise UsageError(f"{folder}: no {ABOUT}; it is not what `elsa export --tuned-only` wrote") from None
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None
    if about.format != FORMAT:
        raise UsageError(f"{path} has format {about.format}, and this version reads {FORMAT}")
    return about


def frozen_digest(model: PreTrainedModel, tuned: Mapping[str, Any]) -> str:
    """Of every parameter of the model that is not tuned, by name."""
    digest = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        if name not in tuned:
            value = parameter.detach().cpu().contiguous()
            digest.update(f"{name}\0{value.dtype}\0{tuple(value.shape)}\0".encode())
            digest.update(value.numpy().tobytes())
    return digest.hexdigest()


def load(folder: str | os.PathLike[str], base: str | os.PathLike[str] | None = None) -> PreTrainedModel:
    """The whole model, bit for bit as it was trained, in evaluation mode.

    `base` is where the base model is, if it is not where it was; one with other weights is refused.
    """
    about, tuned = read(folder), weights(folder)
    model = base_model(about, base)
    _check_base(model, about, tuned, folder, base)
    _put(model, tuned, folder)
    return model.eval()


def weights(folder: str | os.PathLike[str]) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = Path(folder) / WEIGHTS
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None


def base_model(about: Tuned, base: str | os.PathLike[str] | None) -> PreTrainedModel:
    """The base with the fine-tuned model's head, which is still drawn at random."""
    import torch
    from transformers import AutoConfig, AutoModelForSequenceClassification

    from objectives.data.hub import quiet_libraries

    quiet_libraries()
    place = str(base if base is not None else about.base)
    config = AutoConfig.for_model(**{"model_type": "", **about.config})
    # A folder has a fingerprint in its place, and another base than the recorded one has its own.
    recorded = base is None and _COMMIT.fullmatch(about.revision)
    revision = {"revision": about.revision} if recorded else {}
    try:
        return AutoModelForSequenceClassification.from_pretrained(
            place, config=config, dtype=torch.float32, ignore_mismatched_sizes=True, **revision
        )
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:160]
        raise UsageError(f"the base model {place} cannot be loaded ({reason}): name it with base") from None


def tokenizer(about: Tuned, base: str | os.PathLike[str] | None = None) -> PreTrainedTokenizerBase:
    """The base's, which cuts texts where the trial cut them."""
    found = load_tokenizer(str(base if base is not None else about.base))
    found.model_max_length = about.max_length
    if found.pad_token_id is None:
        found.pad_token = found.eos_token
    return found


def _check_base(
    model: PreTrainedModel,
    about: Tuned,
    tuned: Mapping[str, Any],
    folder: str | os.PathLike[str],
    base: str | os.PathLike[str] | None,
) -> None:
    found = frozen_digest(model, tuned)
    if found != about.frozen_sha256:
        raise UsageError(
            f"{base or about.base} is not the base of {folder}: its frozen weights have the SHA-256 "
            f"{found[:16]}…, not {about.frozen_sha256[:16]}… ({about.base}, revision {about.revision})"
        )


def _put(model: PreTrainedModel, tuned: Mapping[str, torch.Tensor], folder: str | os.PathLike[str]) -> None:
    import torch

    parameters = dict(model.named_parameters())
    unknown = [
        name for name in tuned if name not in parameters or parameters[name].shape != tuned[name].shape
    ]
    if unknown:
        raise UsageError(f"{folder}: the model has no weight {unknown[0]} of that shape")
    with torch.no_grad():
        for name, value in tuned.items():
            parameters[name].copy_(value)
