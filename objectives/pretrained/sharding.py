"""`--shard`: the processes of a trial share out its weights, gradients and optimiser state (PyTorch's FSDP2).

Each process keeps a part of every parameter. A layer is put together when it runs, forward or backward, and
given up again. What is computed is the same.

FSDP2 changes a model for good, so every trial shards a copy; its weights are those of the one that all trials
start from until they are cut. Accelerate's own way to it does nothing on CPU processes, where it could not be
tried; so its units are chosen here, and Accelerate does the rest: group, backward pass, clipping, optimiser.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from objectives.capabilities import capabilities
from objectives.pretrained.vocabulary import is_shared

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from objectives.pretrained.stack import LayerStack

Parts = TypeVar("Parts")


def copied(parts: Parts, model: nn.Module) -> Parts:
    """A copy of all that refers to this model, with the same weights in the same memory."""
    memo: dict[int, Any] = {
        id(p): nn.Parameter(p.detach(), requires_grad=p.requires_grad) for p in model.parameters()
    }
    memo |= {id(buffer): buffer.detach() for buffer in model.buffers()}
    return copy.deepcopy(parts, memo)


@dataclass(frozen=True)
class Sharding:
    device: torch.device
    processes: int

    def shard(self, model: PreTrainedModel, stack: LayerStack, cached: int) -> None:
        """Cut the model in place, a layer at a time, and move this process's part to the device.

        The first `cached` layers, whose states are stored, stay whole where they are, and never run.
        """
        mesh = init_device_mesh(capabilities(self.device).kind, (self.processes,))
        left_out = {p for layer in list(stack.layers)[:cached] for p in layer.parameters()}
        units: list[nn.Module] = list(stack.layers)[cached:]
        words = model.get_input_embeddings()
        if isinstance(words, nn.Embedding) and not is_shared(words, model):
            units.append(words)
        for unit in units:
            fully_shard(unit, mesh=mesh)
        fully_shard(model, mesh=mesh, reshard_after_forward=True, ignored_params=left_out)


def whole(value: Any) -> Any:
    """Nested state with every sharded tensor put together in the first process's host; None in the others.

    All processes must ask for it.
    """
    if isinstance(value, DTensor):
        found = value.full_tensor().detach()
        return found.cpu() if value.device_mesh.get_rank() == 0 else None
    if isinstance(value, Mapping):
        return {key: whole(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(whole(item) for item in value)
    return value


def like(value: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """A whole tensor as the parameter is kept: on its device, and this process's part where it is sharded."""
    if not isinstance(parameter, DTensor):
        return value.to(parameter.device)
    if value.shape != parameter.shape:
        return value
    mesh = parameter.device_mesh
    # All processes have read the same value: nobody need send it.
    return distribute_tensor(value.to(mesh.device_type), mesh, parameter.placements, src_data_rank=None)
