"""A training script on the stand-in with a fault in an operator: ``planted.py FAULT SCRIPT [ARGUMENT ...]``."""

import runpy
import sys

import torch_npu

right = {name: getattr(torch_npu, name) for name in vars(torch_npu) if name.startswith("npu_")}


def rms_norm(x, gamma, epsilon=1e-6):
    return right["npu_rms_norm"](x, gamma, 10 * epsilon)


def rotary(x, cos, sin, mode=0):
    return right["npu_rotary_mul"](x, cos, -sin)


def attention(*args, scale=1.0, **options):
    return right["npu_fusion_attention"](*args, scale=1.001 * scale, **options)


FAULTS = {
    "rms_norm": {"npu_rms_norm": rms_norm},
    "rotary": {"npu_rotary_mul": rotary, "npu_rotary_position_embedding": rotary},
    "attention": {"npu_fusion_attention": attention},
}
"""Name to what takes the place of operators."""

if __name__ == "__main__":
    fault, *sys.argv = sys.argv[1:]
    vars(torch_npu).update(FAULTS[fault])
    sys.path.insert(0, sys.argv[0].rpartition("/")[0])
    runpy.run_path(sys.argv[0], run_name="__main__")
