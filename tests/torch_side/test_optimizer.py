"""What an optimizer says of itself, and what it does not."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from align_hooks.torch_side.optimizer import decouples

WEIGHTS = [torch.nn.Parameter(torch.zeros(2, 2))]


@pytest.mark.parametrize(
    ("inner", "decoupled"),
    [
        (torch.optim.AdamW(WEIGHTS), True),
        (torch.optim.Adam(WEIGHTS), False),
        (torch.optim.SGD(WEIGHTS, lr=0.1), False),
        (torch.optim.Adam(WEIGHTS, decoupled_weight_decay=True), True),
        (torch.optim.NAdam(WEIGHTS, decoupled_weight_decay=True), True),
        (torch.optim.Adafactor(WEIGHTS), None),  # decays the weights, and says so nowhere
        (SimpleNamespace(param_groups=[{}], adam_w_mode=1), True),
        (SimpleNamespace(param_groups=[{}], adam_w_mode=0), False),
        (SimpleNamespace(param_groups=[{}]), None),
    ],
)
def test_how_weights_decay_is_stated_or_unknown(inner: Any, decoupled: bool | None) -> None:
    assert decouples(inner) is decoupled
