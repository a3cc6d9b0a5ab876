"""Writes an exported model: a folder that Transformers loads, or only what was tuned; with its card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from objectives.pretrained.models import Pretrained
from objectives.pretrained.stack import find_layers
from objectives.training.targets import Targets
from study.models import tuned

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from objectives.pretrained.stack import LayerStack
    from objectives.tasks.definition import Task
    from objectives.training.finetune import FineTuning
    from objectives.training.kept import Kept
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
    objective.pretrained.put_back()
    objective.stack.freeze(frozen_layers)
    found = objective.tuned()
    return _finished(objective.pretrained, objective.stack, objective.targets, task, max_length, found)


def of_kept(kept: Kept, place: str, task: Task, max_length: int) -> Trained:
    """What a trial has left behind, in a model that is made from `place`, the base."""
    import torch

    pretrained = Pretrained(place, task, torch.device("cpu"))
    parameters = dict(pretrained.model.named_parameters())
    with torch.no_grad():
        for name, value in kept.tuned.items():
            parameters[name].copy_(value)
    found = {name: parameters[name] for name in kept.tuned}
    targets = Targets(task.kind, kept.mean, kept.spread)
    return _finished(pretrained, find_layers(pretrained.model), targets, task, max_length, found)


def _finished(
    pretrained: Pretrained,
    stack: LayerStack,
    targets: Targets,
    task: Task,
    max_length: int,
    tuned: Mapping[str, torch.Tensor],
) -> Trained:
    """Answers in the labels' own unit and names, and cuts texts where the trial did."""
    targets.fold(stack)
    name_labels(pretrained.model.config, task)
    pretrained.tokenizer.model_max_length = max_length
    return Trained(pretrained.model.eval(), pretrained.tokenizer, tuned)


def name_labels(config: Any, task: Task) -> None:
    names = task.labels or task.label
    config.id2label = dict(enumerate(names))
    config.label2id = {name: number for number, name in enumerate(names)}


def write_full(trained: Trained, folder: Path, card: str) -> list[Path]:
    """config.json, model.safetensors, tokenizer and card."""
    folder.mkdir(parents=True, exist_ok=True)
    trained.model.save_pretrained(folder)
    trained.tokenizer.save_pretrained(folder)
    (folder / CARD).write_text(card, encoding="utf-8")
    return _readable(sorted(folder.iterdir()))


def _readable(paths: list[Path]) -> list[Path]:
    """By whom the card is: safetensors lets its owner alone read a file."""
    for path in paths:
        path.chmod((path.parent / CARD).stat().st_mode)
    return paths


def write_tuned(trained: Trained, spec: StudySpec, folder: Path, card: str, frozen_layers: int) -> list[Path]:
    about = tuned.Tuned(
        base=spec.model_path or spec.model,
        revision=spec.model_fingerprint,
        frozen_sha256=tuned.frozen_digest(trained.model, trained.tuned),
        frozen_layers=frozen_layers,
        total_layers=spec.total_layers,
        task=spec.task,
        text=spec.described_task().text,
        max_length=spec.recipe.max_length,
        config=plain_config(trained.model.config),
    )
    paths = tuned.save(trained.model, about, folder, trained.tuned)
    (folder / CARD).write_text(card, encoding="utf-8")
    return _readable([*paths, folder / CARD])


def plain_config(config: Any) -> dict[str, Any]:
    """The configuration as JSON, without where it was loaded from."""
    import json

    found = json.loads(config.to_json_string(use_diff=False))
    return {
        name: value for name, value in found.items() if name not in ("_name_or_path", "transformers_version")
    }


def merge(folder: str, base: str | None, out: Path) -> list[Path]:
    """A tuned-only folder as a full one, with its card."""
    from study.models.card import merged

    about = tuned.read(folder)
    model = tuned.load(folder, base)
    card = Path(folder) / CARD
    text = card.read_text(encoding="utf-8") if card.exists() else ""
    text = merged(text, pairs=len(about.text) == 2, multi_label=about.multi_label)
    return write_full(Trained(model, tuned.tokenizer(about, base), {}), out, text)
