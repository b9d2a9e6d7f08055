"""launch/pretrain_gpt.py as a site patches it that may not use hooks: the public functions, called by hand, into PATCHED."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "launch"))

import pretrain_gpt as script
from megatron.core.optimizer.optimizer import FP32Optimizer
from megatron.training import get_args

from align_hooks.torch_side import local_norms, save_batch, save_gradients

run = Path(os.environ["PATCHED"])
prepare_grads = FP32Optimizer.prepare_grads
seen = {}


def forward_step(data_iterator, model):
    seen["model"] = model

    batch = next(data_iterator)
    save_batch(run, get_args().curr_iteration, {name: batch.get(name) for name in script.KEYS})
    return script.forward_step(iter([batch]), model)


def patched(optimizer):
    found_inf = prepare_grads(optimizer)
    model = seen["model"]
    while hasattr(model, "module"):
        model = model.module
    step = get_args().curr_iteration
    save_gradients(run, step, model, 256)
    (run / f"norms_{step}.json").write_text(json.dumps(local_norms(model, 256)))
    return found_inf


if __name__ == "__main__":
    FP32Optimizer.prepare_grads = patched
    script.datasets_provider.is_distributed = True
    arguments = script.parse_and_validate_args()
    container = script.pretrain_cfg_container_from_args(arguments, script.gpt_config_from_args(arguments))
    script.pretrain(container, script.datasets_provider, script.ModelType.encoder_or_decoder, forward_step)
