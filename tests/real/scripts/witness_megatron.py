"""launch/pretrain_gpt.py with a witness of its own: every raw loss and the final parameters, to the bit, into WITNESS, a rank."""

import os
import sys
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[3] / "launch"))

import pretrain_gpt as script
from megatron.training.argument_utils import hybrid_config_from_args

seen: dict = {"losses": [], "chunks": []}


def loss_function(mask, output):
    result = script.loss_function(mask, output)
    seen["losses"].append(float(result[0].detach()))
    return result


def local(tensor):
    """A shard of fully sharded data parallelism, or all of a tensor."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def forward_step(data_iterator, model):
    if not any(model is chunk for chunk in seen["chunks"]):
        seen["chunks"].append(model)
    output, loss = script.forward_step(data_iterator, model)
    return output, partial(loss_function, *loss.args)


if __name__ == "__main__":
    script.datasets_provider.is_distributed = True
    arguments = script.parse_and_validate_args()
    config_of = hybrid_config_from_args if getattr(arguments, "hybrid_layer_pattern", None) else script.gpt_config_from_args
    container = script.pretrain_cfg_container_from_args(arguments, config_of(arguments))
    script.pretrain(container, script.datasets_provider, script.ModelType.encoder_or_decoder, forward_step)
    parameters = {}
    for number, chunk in enumerate(seen["chunks"]):
        tensors = (*chunk.named_parameters(), *chunk.named_buffers())  # biases of experts are buffers
        parameters |= {f"{number}.{name}": local(tensor).detach().float().cpu().numpy() for name, tensor in tensors}
    np.savez(os.environ["WITNESS"].format(rank=os.environ.get("RANK", 0)), **parameters, losses=np.array(seen["losses"]))
