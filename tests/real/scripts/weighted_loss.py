"""``pretrain_gpt.py`` whose loss function weighs the later half of every sequence more than the earlier."""

import runpy
from pathlib import Path
from typing import Any

import megatron.training
import torch

PATH = Path(__file__).parents[3] / "launch" / "pretrain_gpt.py"


def weighted(loss_mask: Any, output: Any) -> Any:
    """Sum of the losses under weights of which the mask says nothing, and the number of tokens that count."""
    mask = loss_mask.float()
    weights = torch.linspace(0.9, 1.1, mask.shape[1])
    loss = torch.sum(output.float() * mask * weights)
    tokens = mask.sum().clone().detach().to(torch.int)
    return loss, tokens, {"lm loss": torch.cat([loss.clone().detach().view(1), tokens.view(1)])}


if __name__ == "__main__":
    original = megatron.training.pretrain

    def pretrain(container: Any, provider: Any, kind: Any, step: Any) -> Any:
        step.__globals__["loss_function"] = weighted
        return original(container, provider, kind, step)

    megatron.training.pretrain = pretrain
    runpy.run_path(str(PATH), run_name="__main__")
