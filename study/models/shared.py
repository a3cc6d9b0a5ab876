"""Many tasks, one base: the layers that tasks share run once for a batch, and each task's own after them.

Tasks may be frozen at different depths. In memory, too, a frozen weight is there once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from objectives.contract import UsageError
from objectives.pretrained.replay import Replay
from objectives.pretrained.stack import find_layers
from study.models import tuned

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

BATCH = 32
Folder = str | os.PathLike[str]
Texts = Sequence[str] | Sequence[tuple[str, str]]
Inputs = dict[str, torch.Tensor]


@dataclass(frozen=True)
class _Member:
    about: tuned.Tuned
    model: PreTrainedModel
    replay: Replay
    tokenizer: PreTrainedTokenizerBase

    @property
    def depth(self) -> int:
        """Layers that are the base's."""
        return max(0, self.about.frozen_layers)


class Many:
    """Several tasks' models on one base. `models(inputs)` gives logits, `models.predict(texts)` answers."""

    def __init__(self, members: Mapping[str, _Member]):
        self._members = dict(members)

    @property
    def tasks(self) -> dict[str, PreTrainedModel]:
        """Each task's whole model by the task's name; frozen weights are the same tensors in all of them."""
        return {name: member.model for name, member in self._members.items()}

    def to(self, device: str | torch.device) -> Many:
        for member in self._members.values():
            torch.nn.Module.to(member.model, device)
        return self

    @property
    def device(self) -> torch.device:
        return next(iter(self._members.values())).model.device

    def __call__(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The logits of every task, for one batch of tokens."""
        return self._logits(inputs, self._members)

    @torch.inference_mode()
    def _logits(
        self, inputs: Mapping[str, torch.Tensor], members: Mapping[str, _Member]
    ) -> dict[str, torch.Tensor]:
        given = {name: value.to(self.device) for name, value in inputs.items()}
        states = _base_states(given, list(members.values()))
        found = {}
        for name, member in members.items():
            with member.replay.skipping(member.depth):
                if member.depth:
                    member.replay.load(states[member.depth])
                found[name] = member.model(**given).logits
        return found

    def predict(self, texts: Texts, batch_size: int = BATCH) -> dict[str, list[Any]]:
        """Every task's answers to the texts or pairs of texts, each cut where the task's trials cut it.

        An answer is {"label", "score"}; of a multi-label task a list of them, of a regression the number.
        """
        self._check(texts)
        found: dict[str, list[Any]] = {name: [] for name in self._members}
        for start in range(0, len(texts), batch_size):
            for inputs, members in self._encoded(texts[start : start + batch_size]):
                for name, logits in self._logits(inputs, members).items():
                    found[name] += _answers(logits.float().cpu(), members[name])
        return found

    def _check(self, texts: Texts) -> None:
        if isinstance(texts, str):
            raise UsageError("predict takes a list of texts, and one text was given: write [text]")
        pairs = {not isinstance(text, str) for text in texts}
        if len(pairs) > 1:
            raise UsageError("predict takes single texts or pairs of texts, and both were given")
        for name, member in self._members.items():
            columns = member.about.text
            if columns and pairs and pairs != {len(columns) == 2}:
                wanted = "pairs: [(first, second)]" if len(columns) == 2 else "single texts: [text]"
                given = "pairs" if pairs == {True} else "single texts"
                raise UsageError(
                    f"{name} reads {' and '.join(columns)}, and {given} were given: predict takes {wanted}"
                )

    def _encoded(self, texts: Texts) -> list[tuple[Inputs, dict[str, _Member]]]:
        """Tokens, and the tasks that read them: all tasks, unless some cut a text shorter than others."""
        columns = [list(texts)] if isinstance(texts[0], str) else list(map(list, zip(*texts, strict=True)))
        groups: list[tuple[Inputs, dict[str, _Member]]] = []
        for name, member in self._members.items():
            made = dict(member.tokenizer(*columns, truncation=True, padding=True, return_tensors="pt"))
            same = (
                members for inputs, members in groups if torch.equal(inputs["input_ids"], made["input_ids"])
            )
            members = next(same, None)
            if members is None:
                groups.append((made, {name: member}))
            else:
                members[name] = member
        return groups


def load_many(folders: Sequence[Folder], base: Folder | None = None) -> Many:
    """Models that `elsa export --tuned-only` wrote, of one base, to be run together.

    `base` is where the base model is, if it is not where it was; one with other weights is refused.
    """
    if not folders:
        raise UsageError("no folder is named: load_many takes what `elsa export --tuned-only` wrote")
    members: dict[str, _Member] = {}
    shared: dict[str, torch.nn.Parameter] = {}
    for folder in folders:
        about = tuned.read(folder)
        model = tuned.load(folder, base)
        member = _Member(about, model, Replay(model, find_layers(model)), tuned.tokenizer(about, base))
        _share(member, shared, folder)
        members[_name(about.task, members)] = member
    return Many(members)


def _name(task: str, taken: Mapping[str, Any]) -> str:
    """Two folders may be of one task."""
    name, number = task, 2
    while name in taken:
        name, number = f"{task} {number}", number + 1
    return name


def _share(member: _Member, shared: dict[str, torch.nn.Parameter], folder: Folder) -> None:
    """Let it hold the frozen tensors of the members before it; refuse one whose frozen weights are others."""
    member.replay.stack.freeze(member.about.frozen_layers)
    for name, parameter in list(member.model.named_parameters()):
        if parameter.requires_grad:
            continue
        first = shared.setdefault(name, parameter)
        if first is not parameter and not torch.equal(first, parameter):
            raise UsageError(
                f"{folder} has another base than the folders before it ({name} differs): load_many runs "
                "tasks of one base"
            )
        owner, _, leaf = name.rpartition(".")
        setattr(member.model.get_submodule(owner), leaf, first)


def _base_states(inputs: Inputs, members: Sequence[_Member]) -> dict[int, torch.Tensor]:
    """What the base's layers make of the batch, at every depth that some task goes on from."""
    depths = sorted({member.depth for member in members} - {0})
    states: dict[int, torch.Tensor] = {}
    if depths:
        deepest = max(members, key=lambda member: member.depth)
        with deepest.replay.capturing(depths, states.__setitem__) as forward:
            forward(deepest.model, inputs)
    return states


def _answers(logits: torch.Tensor, member: _Member) -> list[Any]:
    labels: dict[int, str] = dict(member.model.config.id2label)  # type: ignore[arg-type]
    if member.about.multi_label:
        return [
            [{"label": labels[i], "score": score} for i, score in enumerate(row)]
            for row in logits.sigmoid().tolist()
        ]
    if member.model.config.problem_type == "regression":
        return list(logits.squeeze(-1).tolist())
    best = logits.softmax(-1).max(-1)
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [{"label": labels[i], "score": score} for i, score in pairs]
