"""CaptureShards in the place of MindFormers' clipping, in graph mode: what it keeps and injects, where nothing is cut.

That MindSpore cuts it as it cuts the weights needs a device; what it computes does not. Afterwards, what a semi-automatic job may not do.
"""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import mindspore
import numpy as np
from doors import Cell, all_equal, clipped, near, parameter, same, zeros
from mindformers.core.optim import AdamW
from mindspore import ParameterTuple, nn

from align_hooks.errors import RefusedRun
from align_hooks.ms_side import model
from align_hooks.ms_side.feeding import Sizes
from align_hooks.ms_side.optimizer import learning_rate
from align_hooks.ms_side.place import refuse_layouts
from align_hooks.ms_side.reducer import CaptureShards, CaptureThenClip, Tasks
from align_hooks.names.blocks import Dims
from align_hooks.settings import Settings

random = np.random.default_rng(0)
weights = [zeros("other", 3), zeros("gate", 6, 4), zeros("norm", 5)]
optimizer = AdamW(ParameterTuple(weights), learning_rate=1e-3)
shards = CaptureShards(optimizer, Tasks(norms=True, gradients=True, inject=True))
pair = parameter(weights[1], ("gate", "up"), (2, 4), True, 1), parameter(weights[2], ("norm",), (5,), False, 2)
parameters = model.CellParameters(pair, Dims(1, 1, 1, 1, 1, 1), False, 1)
own = [random.standard_normal(weight.shape).astype(np.float32) for weight in weights]
injected = [np.zeros(3, np.float32), *(random.standard_normal(weight.shape).astype(np.float32) for weight in weights[1:])]
plain, cell = Cell(), Cell()
cell.clip_grad_norm = CaptureThenClip(shards.around(nn.Identity()), cell.clip_grad_norm)


def captured() -> bool:
    """Whether the run's own gradients are on record."""
    return all_equal([buffer.asnumpy() for buffer in shards.buffers], own[1:])


checks = {"untouched": same(clipped(plain, own), clipped(cell, own))}
shards.bind(parameters)
checks["captured"] = captured()
checks["norms"] = near(shards.squared_sums(), {"gate": own[1][:2], "up": own[1][2:], "norm": own[2]})
filled = shards.fill(lambda fused: injected[1] if fused.native == "gate" else injected[2])
checks["norm of what counts"] = abs(filled - float(np.linalg.norm(injected[1]))) < 1e-5
checks["injected"] = same(clipped(plain, injected), clipped(cell, own))  # of another stage's weight the graph has no gradient: zeros here
checks["own on record"] = captured()
shards.fill(None)
checks["own again"] = same(clipped(plain, own), clipped(cell, own))
checks["memory"] = shards.bytes == 2 * 4 * (24 + 5)
checks["no checkpoint"] = not any("align_hooks" in name for name in cell.parameters_dict())


def refused(word: str, sizes: Sizes, *, tied: bool = False, **switches: str) -> bool:
    """Whether a job of these sizes is refused for what the word names."""
    settings = Settings.from_environment({f"ALIGN_HOOKS_{name}": value for name, value in switches.items()})
    try:
        refuse_layouts(settings, sizes, type("Config", (), {"tie_word_embeddings": tied}))
    except RefusedRun as error:
        return word in str(error)
    return not word


mindspore.set_auto_parallel_context(gradients_mean=True)
checks["mean"] = refused("gradients_mean", Sizes())
mindspore.set_auto_parallel_context(gradients_mean=False)
checks["plain"] = refused("", Sizes(pp=2)) and refused("", Sizes(), tied=True)
checks["tied"] = refused("tie_word_embeddings", Sizes(pp=2), tied=True)
checks["local"] = refused("LOCAL_NORMS_POINT", Sizes(), LOCAL_NORMS="all", LOCAL_NORMS_POINT="local")
os.environ["PIPELINE_SLICE_SKIP_REDISTRIBUTION"] = "1"
checks["skipped"] = refused("PIPELINE_SLICE_SKIP_REDISTRIBUTION", Sizes(pp=2))
del os.environ["PIPELINE_SLICE_SKIP_REDISTRIBUTION"]
mindspore.set_auto_parallel_context(pipeline_config={"pipeline_interleave": True, "pipeline_scheduler": "zero_bubble_v"})
checks["scheduler"] = refused("zero_bubble_v", Sizes(pp=2))
try:
    CaptureShards(nn.SGD(weights), Tasks(norms=True))
except RefusedRun as error:
    checks["optimizer"] = "clone_state" in str(error)
seen = []


def rate(step: object) -> float:
    """A schedule that only answers where MindSpore does not cut what is called."""
    seen.append(mindspore.get_auto_parallel_context("parallel_mode"))
    if len(seen) > 2:
        raise KeyError("key not found")
    return 0.5


scheduled = SimpleNamespace(learning_rate=rate, dynamic_lr=True, is_group_lr=False, global_step=0)
checks["rate"] = learning_rate(scheduled, 0) == 0.5
mindspore.set_auto_parallel_context(parallel_mode="semi_auto_parallel", full_batch=True)
checks["rate of a cut job"] = learning_rate(scheduled, 0) == 0.5
try:
    learning_rate(scheduled, 0)
except KeyError:
    checks["modes"] = seen == ["stand_alone", "data_parallel", "data_parallel"]
parallel = [mindspore.get_auto_parallel_context(name) for name in ("parallel_mode", "full_batch")]
checks["mode is kept"] = parallel == ["semi_auto_parallel", True]
Path(sys.argv[2]).write_text(json.dumps(checks))
