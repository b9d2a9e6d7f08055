"""Layouts of Megatron that cannot be read are refused by the flag that makes them; in a process of its own, for it imports Megatron."""

import subprocess
import sys

import pytest

CASES = """
from types import SimpleNamespace
from align_hooks.errors import RefusedRun
from align_hooks.torch_side.place import SINGLE_RANK, cut, refuse_layouts

def said(world=1, sizes={}, **args):
    try:
        refuse_layouts(SINGLE_RANK | sizes, world, SimpleNamespace(**args))
    except RefusedRun as error:
        return str(error)
    return ""

assert said() == ""
assert "--optimizer-cpu-offload" in said(optimizer_cpu_offload=True)
assert "--optimizer dist_muon" in said(optimizer="dist_muon")
assert "--num-distributed-optimizer-instances above 1" in said(num_distributed_optimizer_instances=2)
assert "a CUDA graph of the whole iteration" in said(cuda_graph_impl="full_iteration")
assert "--swap-optimizer, --tp-2d" in said(swap_optimizer=True, tp_2d=True, layerzero=False)
assert "--schedules-method dualpipev" in said(schedules_method="dualpipev")
assert said(2, {"cp_size": 2}, reset_position_ids=True, context_parallel_size=2) == ""
mindspeed = {"context_parallel_size": 2, "context_parallel_algo": "ulysses_cp_algo"}
assert "--reset-position-ids" in said(2, {"cp_size": 2}, reset_position_ids=True, **mindspeed)
assert said(2, {"cp_size": 2}, **mindspeed) == ""
assert "hybrid_cp_algo was never tried" in said(2, {"cp_size": 2}, **mindspeed | {"context_parallel_algo": "hybrid_cp_algo"})
second = SINGLE_RANK | {"tp": 1, "tp_size": 2}
assert (part := cut("decoder.layers.0.self_attention.core_attention.softmax_offset", None, second)).index == 1 and part.count == 2
assert cut("decoder.layers.0.self_attention.linear_proj.bias", None, second).count == 1
assert "Megatron's groups make 2" in said(world=4, sizes={"dp_size": 2})
"""


@pytest.mark.slow
def test_layouts_that_cannot_be_read_are_refused_by_name() -> None:
    done = subprocess.run([sys.executable, "-c", CASES], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
