"""The CPU's dropout: the right share, the right scale, the same mask backward, and stock again afterwards."""

from __future__ import annotations

from contextlib import suppress

import pytest
import torch
from torch import nn

from objectives.capabilities import Capabilities
from objectives.pretrained.dropout import fast_dropout

CPU = Capabilities(torch.device("cpu"))


@pytest.mark.parametrize("rate", [0.1, 0.25, 0.5, 0.9])
def test_share_and_scale_are_those_of_dropout(rate: float) -> None:
    torch.manual_seed(0)
    with fast_dropout(CPU):
        dropped = nn.Dropout(rate)(torch.ones(1_000_003))
    zero = float((dropped == 0).float().mean())
    # Five standard errors of a share of a million draws.
    assert zero == pytest.approx(rate, abs=5 * (rate * (1 - rate) / 1e6) ** 0.5)
    assert torch.unique(dropped).tolist() == pytest.approx([0, 1 / (1 - rate)])


def test_draws_are_independent_of_their_neighbours() -> None:
    torch.manual_seed(1)
    with fast_dropout(CPU):
        kept = (nn.Dropout(0.5)(torch.ones(400_000)) != 0).double()
    for lag in (1, 2, 3, 4):
        both = torch.corrcoef(torch.stack([kept[:-lag], kept[lag:]]))[0, 1]
        assert abs(float(both)) < 0.01


def test_the_gradient_passes_where_the_value_did() -> None:
    values = torch.ones(10, 7, requires_grad=True)
    with fast_dropout(CPU):
        dropped = nn.Dropout(0.3)(values)
    dropped.sum().backward()
    assert values.grad is not None
    assert torch.equal(values.grad, dropped.detach())


def test_a_seed_fixes_it_and_evaluation_drops_nothing() -> None:
    layer = nn.Dropout(0.5)

    def two_draws(seed: int) -> torch.Tensor:
        with fast_dropout(CPU):
            torch.manual_seed(seed)
            return torch.stack([layer(torch.ones(100)), layer(torch.ones(100))])

    first = two_draws(3)
    assert torch.equal(two_draws(3), first)
    assert not torch.equal(two_draws(4), first)
    assert not torch.equal(first[0], first[1])
    with fast_dropout(CPU):
        assert torch.equal(layer.eval()(torch.ones(100)), torch.ones(100))


def test_it_stands_in_only_while_it_lasts() -> None:
    stock = nn.functional.dropout
    with suppress(RuntimeError), fast_dropout(CPU):
        assert nn.functional.dropout is not stock
        raise RuntimeError
    assert nn.functional.dropout is stock
    with fast_dropout(Capabilities(torch.device("cuda", 0))):
        assert nn.functional.dropout is stock
