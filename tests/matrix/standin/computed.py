"""Print what each operator makes of given inputs, as JSON: ``computed.py [FAULT]``, with a fault of ``planted.py``."""

import json
import sys

import numpy as np
import planted
import torch
import torch_npu

HEADS, GROUPS, SIZE = 4, 2, 6
LAYOUTS = {"SBH": (1, 0, 2, 3), "BSND": (0, 1, 2, 3), "BNSD": (0, 2, 1, 3)}
"""Layout to the order of its axes from batch, sequence, heads, size."""


def drawn(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def attended(layout, **options):
    """Attend in a layout; return ``[batch, sequence, heads, size]``."""
    parts = [drawn(2, 5, heads, SIZE, seed=seed) for seed, heads in enumerate((HEADS, GROUPS, GROUPS))]
    order = LAYOUTS[layout]
    given = [part.permute(order) for part in parts]
    given = [part.flatten(2) for part in given] if layout == "SBH" else given
    made = torch_npu.npu_fusion_attention(*given, HEADS, layout, scale=0.3, **options)[0]
    made = made.unflatten(-1, (HEADS, SIZE)) if layout == "SBH" else made
    return made.permute([order.index(axis) for axis in range(4)])


def results():
    x, gamma, angle = drawn(3, 8), drawn(8, seed=2), drawn(3, 8, seed=3)
    half = torch.cat([angle[:, :4]] * 2, -1)
    pairs = angle[:, :4].repeat_interleave(2, -1)
    yield "npu_rms_norm", torch_npu.npu_rms_norm(x, gamma, 1e-2)[0]
    yield "npu_swiglu", torch_npu.npu_swiglu(x)
    yield "npu_rotary_mul", torch_npu.npu_rotary_mul(x, half.cos(), half.sin())
    yield "npu_rotary_position_embedding", torch_npu.npu_rotary_position_embedding(x, half.cos(), half.sin())
    if len(sys.argv) == 1:
        yield "interleaved", torch_npu.npu_rotary_position_embedding(x, pairs.cos(), pairs.sin(), 1)
    yield "npu_scaled_masked_softmax", torch_npu.npu_scaled_masked_softmax(x, x > 0.5, 0.7)
    for layout in LAYOUTS:
        yield f"npu_fusion_attention {layout}", attended(layout, sparse_mode=2)
    weight, first, second = (drawn(4, seed=seed).abs() for seed in (4, 5, 6))
    yield (
        "npu_apply_adam_w",
        torch_npu.npu_apply_adam_w(0.9, 0.95, 0.1, 0.2, 0.9, 0.95, 1e-8, drawn(4), None, False, False, (weight, first, second))[0],
    )


if __name__ == "__main__":
    for fault in sys.argv[1:]:
        vars(torch_npu).update(planted.FAULTS[fault])
    print(json.dumps({name: made.tolist() for name, made in results()}))
