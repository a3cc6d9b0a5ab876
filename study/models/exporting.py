"""Writes an exported model: a folder that Transformers loads, or only what was tuned; with its card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from objectives.contract import UsageError
from study.models import tuned

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from objectives.finetune import FineTuning
    from objectives.tasks import Task
    from study.specs.study_spec import StudySpec

CARD = "README.md"


@dataclass(frozen=True)
class Trained:
    """A fine-tuned model in memory, answering in the labels' own unit."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    tuned: Mapping[str, torch.Tensor]
    """The parameters that were trained; the others are the base's."""


def of_objective(objective: FineTuning, task: Task, frozen_layers: int, max_length: int) -> Trained:
    """What a trial has just trained. The objective must not run another trial afterwards."""
    model = objective.model
    objective.targets.fold(objective.stack)
    objective.stack.freeze(frozen_layers)
    found = {name: p for name, p in model.named_parameters() if p.requires_grad}
    name_labels(model.config, task)
    objective.pretrained.tokenizer.model_max_length = max_length
    return Trained(model.eval(), objective.pretrained.tokenizer, found)


def name_labels(config: Any, task: Task) -> None:
    names = task.labels or task.label
    config.id2label = dict(enumerate(names))
    config.label2id = {name: number for number, name in enumerate(names)}


def check_out(folder: Path) -> None:
    """Refuse a folder that holds something else, before anything is trained."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"--out {folder} exists: name a folder that does not, or that is empty")


def write_full(trained: Trained, folder: Path, card: str) -> list[Path]:
    """config.json, model.safetensors, tokenizer and card."""
    folder.mkdir(parents=True, exist_ok=True)
    trained.model.save_pretrained(folder)
    trained.tokenizer.save_pretrained(folder)
    (folder / CARD).write_text(card, encoding="utf-8")
    return sorted(folder.iterdir())


def write_tuned(trained: Trained, spec: StudySpec, folder: Path, card: str, frozen_layers: int) -> list[Path]:
    about = tuned.Tuned(
        base=spec.model_path or spec.model,
        revision=spec.model_fingerprint,
        frozen_sha256=tuned.frozen_digest(trained.model, trained.tuned),
        frozen_layers=frozen_layers,
        total_layers=spec.total_layers,
        task=spec.task,
        max_length=spec.recipe.max_length,
        config=plain_config(trained.model.config),
    )
    paths = tuned.save(trained.model, about, folder, trained.tuned)
    (folder / CARD).write_text(card, encoding="utf-8")
    return [*paths, folder / CARD]


def plain_config(config: Any) -> dict[str, Any]:
    """The configuration as JSON, without where it was loaded from."""
    import json

    found = json.loads(config.to_json_string(use_diff=False))
    return {
        name: value for name, value in found.items() if name not in ("_name_or_path", "transformers_version")
    }


def merge(folder: str, base: str | None, out: Path) -> list[Path]:
    """A tuned-only folder as a full one, with its card."""
    from objectives.models import load_tokenizer

    about = tuned.read(folder)
    model = tuned.load(folder, base)
    tokenizer = load_tokenizer(base or about.base)
    tokenizer.model_max_length = about.max_length
    card = Path(folder) / CARD
    text = card.read_text(encoding="utf-8") if card.exists() else ""
    return write_full(Trained(model, tokenizer, {}), out, text)
