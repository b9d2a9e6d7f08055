"""``pretrain_gpt.py`` whose model has a parameter of its own: a scale of what the decoder puts out."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import torch
from megatron.core.models.gpt.gpt_model import GPTModel

PATH = Path(__file__).parents[3] / "launch" / "pretrain_gpt.py"


def with_scale(original: Any) -> Any:
    """An initialisation that adds the scale behind everything else."""

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.decoder.learned_scale = torch.nn.Parameter(torch.ones(self.config.hidden_size))
        self.decoder.register_forward_hook(lambda decoder, inputs, hidden: hidden * decoder.learned_scale)

    return init


if __name__ == "__main__":
    GPTModel.__init__ = with_scale(GPTModel.__init__)
    runpy.run_path(str(PATH), run_name="__main__")
