"""Where a model keeps its layers: the stack, what comes before it, what comes after; and freezing.

Works for any sequence-classification model with one list of layers; refuses shared layers and none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from objectives.contract import UsageError

if TYPE_CHECKING:
    from torch import nn
    from transformers import PretrainedConfig, PreTrainedModel


@dataclass(frozen=True)
class LayerStack:
    """A model's parameters in three groups: embeddings, layers, and the head with pooler and final norm."""

    embeddings: dict[str, nn.Parameter]
    """Everything the layers stand on: embeddings, and biases or norms that all layers share."""
    layers: nn.ModuleList
    layer_names: tuple[str, ...]
    head: dict[str, nn.Parameter]
    """Everything that runs after the last layer; always trained."""
    classifier: dict[str, nn.Parameter]
    """The part of the head that maps to the labels."""

    @property
    def total_layers(self) -> int:
        return len(self.layers)

    def freeze(self, frozen_layers: int) -> None:
        """Turn `requires_grad` off for what this depth freezes and on for the rest; train/eval likewise."""
        for parameter in self.embeddings.values():
            parameter.requires_grad_(frozen_layers == 0)
        for number, layer in enumerate(self.layers):
            layer.requires_grad_(number >= frozen_layers)
        for parameter in self.head.values():
            parameter.requires_grad_(True)


def count_layers(config: PretrainedConfig, model: str) -> int:
    """From the configuration alone; refuses what cannot be frozen layer by layer."""
    if config.model_type == "albert" or getattr(config, "num_hidden_groups", None):
        raise UsageError(
            f"--model {model}: {config.model_type} shares one layer's weights; none can be frozen alone"
        )
    if getattr(config, "is_encoder_decoder", False):
        raise UsageError(
            f"--model {model}: {config.model_type} is an encoder-decoder; it has no one list of layers"
        )
    layers = getattr(config, "num_hidden_layers", None)
    if not isinstance(layers, int) or layers < 1:
        raise UsageError(f"--model {model}: its configuration names no number of layers")
    return layers


def find_layers(model: PreTrainedModel) -> LayerStack:
    from torch import nn

    total = count_layers(model.config, model.config._name_or_path or model.config.model_type)
    base = model.base_model
    lists = [(n, m) for n, m in base.named_modules() if isinstance(m, nn.ModuleList) and len(m) == total]
    # The stack is the outermost such list: a layer may hold lists of its own.
    lists.sort(key=lambda item: item[0].count("."))
    if not lists:
        raise UsageError(f"no list of {total} layers found in {type(model).__name__}; it cannot be studied")
    path, layers = lists[0]
    if len({id(layer) for layer in layers}) != total:
        raise UsageError(f"{type(model).__name__} shares its layers; none can be frozen alone")
    prefix = next(name for name, module in model.named_modules() if module is layers)
    groups: dict[str, dict[str, nn.Parameter]] = {"embeddings": {}, "head": {}}
    for name, parameter in model.named_parameters():
        if not name.startswith(f"{prefix}."):
            after = _runs_after(name, model, base, path)
            groups["head" if after else "embeddings"][name] = parameter
    names = tuple(f"{prefix}.{number}" for number in range(total))
    head = groups["head"]
    return LayerStack(groups["embeddings"], layers, names, head, _classifier(model, head))


def _runs_after(name: str, model: PreTrainedModel, base: nn.Module, stack_path: str) -> bool:
    """Modules run in the order in which they are made: what follows the stack in the base model is head.

    What stands beside the list inside an encoder module (relative position biases) is shared by all layers.
    """
    base_name = next(n for n, module in model.named_modules() if module is base)
    if base_name and not name.startswith(f"{base_name}."):
        return True
    child = name.removeprefix(f"{base_name}.").partition(".")[0]
    order = [n for n, _ in base.named_children()]
    return child in order and order.index(child) > order.index(stack_path.partition(".")[0])


def _classifier(model: Any, head: dict[str, nn.Parameter]) -> dict[str, nn.Parameter]:
    """The last linear map to the labels, by its width."""
    from torch import nn

    for name, module in reversed(list(model.named_modules())):
        if isinstance(module, nn.Linear) and module.out_features == model.config.num_labels:
            found = {n: p for n, p in head.items() if n.startswith(f"{name}.")}
            if found:
                return found
    raise UsageError(f"{type(model).__name__} has no linear classifier of {model.config.num_labels} labels")
