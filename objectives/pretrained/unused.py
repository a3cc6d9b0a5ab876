"""Parameters that a model owns and no forward pass uses, such as XLNet's mask embedding.

Processes that exchange gradients would wait for theirs for ever, or search every step's graph for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def unused_parameters(model: torch.nn.Module, inputs: Mapping[str, torch.Tensor]) -> frozenset[str]:
    """Names of those that the outputs for these inputs do not depend on; no gradient is computed."""
    trained = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    training = model.training
    model.eval().requires_grad_(True)
    try:
        used = _leaves(model(**inputs).logits.grad_fn)
        return frozenset(name for name, parameter in model.named_parameters() if id(parameter) not in used)
    finally:
        model.train(training)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(trained[name])


def _leaves(root: Any) -> set[int]:
    """Ids of the tensors at the ends of a graph of operations."""
    seen, waiting, found = {root}, [root], set()
    while waiting:
        node = waiting.pop()
        if hasattr(node, "variable"):
            found.add(id(node.variable))
        new = {after for after, _ in node.next_functions if after is not None} - seen
        seen |= new
        waiting += new
    return found
