"""Pretrained models by name or folder: configuration, fingerprint, tokenizer and weights.

Weights are loaded once per process; `Pretrained.reset` puts them back between trials.
"""

from __future__ import annotations

import copy
import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from objectives.contract import HubError, UsageError
from objectives.data.hub import quiet_libraries, unreachable
from objectives.data.task_data import DEMO
from objectives.tasks.definition import Kind, Task

if TYPE_CHECKING:
    import torch
    from torch import nn
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase


SHORT_NAMES = {
    "bert-base": "google-bert/bert-base-uncased",
    "bert-large": "google-bert/bert-large-uncased",
    "roberta-base": "FacebookAI/roberta-base",
    "roberta-large": "FacebookAI/roberta-large",
}
_BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
_LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
_ROBERTA = {"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1, "pad_token_id": 1}
PUBLISHED_CONFIGS: dict[str, tuple[str, dict[str, int]]] = {
    "bert-base": ("bert", {**_BASE, "vocab_size": 30522}),
    "bert-large": ("bert", {**_LARGE, "vocab_size": 30522}),
    "roberta-base": ("roberta", {**_BASE, **_ROBERTA}),
    "roberta-large": ("roberta", {**_LARGE, **_ROBERTA}),
}
"""The short names' configurations, public facts, so that their parameters can be counted offline."""
PROBLEM_TYPES: dict[Kind, str] = {
    "classes": "single_label_classification",
    "multi-label": "multi_label_classification",
    "regression": "regression",
}
"""As Transformers calls the kinds of tasks."""


@dataclass(frozen=True)
class ModelIdentity:
    """What a study needs to know of a model before any weight is loaded."""

    name: str
    """As a person names it: a short name, a hub name, a folder's name, or "demo"."""
    path: str
    """What `from_pretrained` takes."""
    fingerprint: str
    """Of the folder's content, or the hub's commit."""
    total_layers: int


def resolve_path(model: str) -> str:
    """A hub name or a local folder for `from_pretrained`."""
    if model == DEMO:
        from objectives.demo import examples as demo

        return str(demo.MODEL_PATH)
    if model in SHORT_NAMES and not Path(model).is_dir():
        return SHORT_NAMES[model]
    looks_local = model.startswith((".", "/", "~")) or model.count("/") > 1 or model.endswith("/")
    path = Path(model).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise UsageError(
                f"--model {model}: the folder has no config.json, so it is no Transformers model"
            )
        return str(path.resolve())
    if looks_local:
        raise UsageError(f"--model {model}: no such folder; name a folder, a hub model, or one of {_short()}")
    return model


def _short() -> str:
    return ", ".join(SHORT_NAMES)


def load_config(model: str) -> PretrainedConfig:
    from transformers import AutoConfig

    quiet_libraries()
    path = resolve_path(model)
    try:
        return AutoConfig.from_pretrained(path)
    except OSError as error:
        if Path(path).is_dir():
            raise UsageError(f"--model {model}: {_first_line(error)}") from error
        raise HubError(unreachable(f"model {path}", error)) from error
    except (ValueError, KeyError) as error:
        raise UsageError(f"--model {model}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__


def identify(model: str) -> ModelIdentity:
    from objectives.pretrained.stack import count_layers

    config = load_config(model)
    path = resolve_path(model)
    is_folder = Path(path).is_dir()
    fingerprint = _hash_folder(Path(path)) if is_folder else str(config._commit_hash)
    # As it was named: a link says more of a model than the snapshot folder behind it.
    name = Path(os.path.abspath(Path(model).expanduser())).name if is_folder and model != DEMO else model
    return ModelIdentity(name, path, fingerprint, count_layers(config, model))


def _hash_folder(folder: Path) -> str:
    """Of what shapes a result: configuration, tokenizer and weights, not read-me files."""
    wanted = ("*.json", "*.txt", "*.model", "*.safetensors", "*.bin")
    digest = hashlib.sha256()
    for path in sorted({path for pattern in wanted for path in folder.glob(pattern)}):
        digest.update(path.name.encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


class Pretrained:
    """One model in memory with its pretrained weights kept aside."""

    def __init__(self, path: str, task: Task, device: torch.device, *, sharded: bool = False):
        """With `sharded` the model stays in the host's memory, for copies that trials share out."""
        import torch
        from transformers import AutoConfig, AutoModelForSequenceClassification

        from objectives.capabilities import capabilities

        quiet_libraries()
        can = capabilities(device)
        self.tokenizer = load_tokenizer(path)
        # Loading draws the new head at random; `reset` draws it again with the trial's seed.
        model, info = AutoModelForSequenceClassification.from_pretrained(
            path,
            num_labels=task.outputs,
            problem_type=PROBLEM_TYPES[task.kind],
            dtype=torch.float32,
            attn_implementation=attention(AutoConfig.from_pretrained(path), can.is_host),
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
        self._device = device
        self.model: PreTrainedModel = model if sharded else model.to(device)
        _set_padding(self.model.config, self.tokenizer)
        new = set(info["missing_keys"]) | {key[0] for key in info["mismatched_keys"]}
        self.new_parameters = sorted(new & set(dict(self.model.named_parameters())))
        # In the host's memory: on the GPU they would count in every trial's peak.
        self._weights = {
            name: value.detach() if sharded else can.pin(value.detach().to("cpu", copy=True))
            for name, value in self._state()
        }

    def _state(self) -> Iterator[tuple[str, torch.Tensor]]:
        yield from self.model.named_parameters()
        yield from self.model.named_buffers()

    def reset(self, seed: int) -> None:
        """Pretrained weights again, and a head drawn with this seed."""
        import torch
        from accelerate.utils import set_seed

        self.put_back()
        with torch.no_grad():
            for name, value in self._state():
                value.copy_(self._weights[name])
        set_seed(seed)
        owners = {name.rpartition(".")[0]: None for name in self.new_parameters}
        for name in owners:
            module = self.model.get_submodule(name)
            # On the host, for what a GPU draws depends on its kind, and seeds are compared across machines.
            drawn = copy.deepcopy(module).to("cpu")
            for parameter in drawn.parameters(recurse=False):
                parameter._is_hf_initialized = False  # type: ignore[attr-defined]
            self.model._init_weights(drawn)
            with torch.no_grad():
                for parameter, value in zip(
                    module.parameters(recurse=False), drawn.parameters(recurse=False), strict=True
                ):
                    parameter.copy_(value)
        self.model.zero_grad(set_to_none=True)

    def put_aside(self, modules: Iterable[nn.Module]) -> None:
        """Until `put_back` these frozen modules take no memory of the device and cannot run."""
        for module in modules:
            module.to("meta")

    def put_back(self) -> None:
        """Whatever is aside comes back to the device with its pretrained weights.

        It may run out of memory half-way, and is then called again once there is room.
        """
        import torch

        for prefix, module in self.model.named_modules():
            if any(value.is_meta for _, value in _own(module, prefix)):
                module.to_empty(device=self._device, recurse=False)
                with torch.no_grad():
                    for name, value in _own(module, prefix):
                        value.copy_(self._weights[name])

    @contextmanager
    def on_device(self) -> Iterator[None]:
        """While it lasts, a model kept in the host's memory is on the device, where nobody trains it."""
        self.model.to(self._device)
        try:
            yield
        finally:
            for name, value in self._state():
                value.data = self._weights[name]

    def pretrained(self, name: str) -> torch.Tensor:
        """The weight as it was loaded."""
        return self._weights[name]


def _own(module: nn.Module, prefix: str) -> Iterator[tuple[str, torch.Tensor]]:
    """What the module itself holds, without its parts, by its name in the model."""
    yield from module.named_parameters(prefix, recurse=False)
    yield from module.named_buffers(prefix, recurse=False)


def attention(config: PretrainedConfig, host: bool) -> str | None:
    """On a CPU no fused kernel drops attention weights: where they are dropped, plain products are faster."""
    names = ("attention_probs_dropout_prob", "attention_dropout", "attn_pdrop", "dropout")
    drops = any(isinstance(rate := getattr(config, name, 0), float) and rate > 0 for name in names)
    return "eager" if host and drops else None


def load_tokenizer(path: str) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError) as error:
        if Path(path).is_dir():
            raise UsageError(f"--model {path}: no usable tokenizer ({_first_line(error)})") from error
        raise HubError(unreachable(f"tokenizer {path}", error)) from error


def _set_padding(config: Any, tokenizer: PreTrainedTokenizerBase) -> None:
    """Decoders often name no padding token: their end-of-text token serves, as is usual."""
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    if getattr(config, "pad_token_id", None) is None:
        config.pad_token_id = tokenizer.pad_token_id
    if hasattr(config, "use_cache"):
        config.use_cache = False
