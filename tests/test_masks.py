"""Masks that are used without being looked at: the same answers, and nothing read back."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForSequenceClassification, masking_utils

from objectives.capabilities import Capabilities
from objectives.pretrained.masks import READERS, unread_masks

GPU = Capabilities(torch.device("cuda", 0))
READS_ITS_OWN = ("deberta-v2", "xlnet")
"""Families that make their masks themselves, and read none."""


class Reads(TorchDispatchMode):
    """Counts what would make the host wait for a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.count += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


def answer(model: torch.nn.Module, padded: bool) -> tuple[torch.Tensor, int]:
    ids = torch.randint(5, 72, (4, 9), generator=torch.Generator().manual_seed(2))
    lengths = torch.tensor([9, 7, 5, 3]) if padded else torch.full((4,), 9)
    mask = (torch.arange(9) < lengths[:, None]).long()
    with torch.no_grad(), Reads() as reads:
        logits = model(input_ids=ids * mask, attention_mask=mask).logits
    return logits, reads.count


@pytest.mark.parametrize("family", sorted(set(tiny.FAMILIES) - set(READS_ITS_OWN)))
@pytest.mark.parametrize("padded", [True, False])
def test_the_answers_are_the_same_and_fewer_values_are_read(
    family: str, padded: bool, tmp_path: Path
) -> None:
    path = tiny.save_model(family, tmp_path, dropout=False)
    torch.manual_seed(1)
    model = AutoModelForSequenceClassification.from_pretrained(path).eval()
    expected, reads = answer(model, padded)
    with unread_masks(GPU):
        logits, left = answer(model, padded)
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-5)
    assert reads > left == 0


def test_the_readers_come_back_even_after_an_error() -> None:
    stock = [getattr(masking_utils, name) for name in READERS]
    with pytest.raises(KeyError), unread_masks(GPU):
        raise KeyError
    assert [getattr(masking_utils, name) for name in READERS] == stock


def test_on_a_cpu_masks_are_left_out_as_before() -> None:
    stock = [getattr(masking_utils, name) for name in READERS]
    with unread_masks(Capabilities(torch.device("cpu"))):
        assert [getattr(masking_utils, name) for name in READERS] == stock
