"""``pretrain_gpt.py`` whose model has a parameter of its own in every layer: a scale of what the layer puts out."""

import runpy
from pathlib import Path
from typing import Any

import torch
from megatron.core.models.gpt.gpt_model import GPTModel

PATH = Path(__file__).parents[3] / "launch" / "pretrain_gpt.py"


def scaled(layer: Any, inputs: Any, output: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a layer puts out, scaled."""
    return (output[0] * layer.learned_scale, *output[1:])


def with_scales(original: Any) -> Any:
    """An initialisation that adds the scales behind everything else."""

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        for layer in self.decoder.layers:
            layer.learned_scale = torch.nn.Parameter(torch.ones(self.config.hidden_size))
            layer.register_forward_hook(scaled)

    return init


if __name__ == "__main__":
    GPTModel.__init__ = with_scales(GPTModel.__init__)
    runpy.run_path(str(PATH), run_name="__main__")
