"""CaptureThenClip as MFPipelineWithLossScaleCell compiles it: in the place of MindFormers' clipping, in graph mode."""

import json
import sys
from pathlib import Path

import numpy as np
from doors import Cell, all_equal, clipped, near, parameter, same, zeros
from mindspore import nn

from align_hooks.ms_side import model
from align_hooks.ms_side.reducer import CaptureGradients, CaptureThenClip, Tasks
from align_hooks.names.blocks import Dims

random = np.random.default_rng(0)
pair = parameter(zeros("w_gate", 6, 4), ("gate", "up"), (2, 4)), parameter(zeros("norm", 5), ("norm",), (5,))
parameters = model.CellParameters(pair, Dims(1, 1, 1, 1, 1, 1))
own = [random.standard_normal(each.model.shape).astype(np.float32) for each in parameters]
injected = {each.fused.native: random.standard_normal(each.model.shape).astype(np.float32) for each in parameters}
plain, cell = Cell(), Cell()
capture = CaptureGradients(nn.Identity(), parameters, Tasks(norms=True, gradients=True, inject=True))
cell.clip_grad_norm = CaptureThenClip(capture, cell.clip_grad_norm)


def captured() -> bool:
    """Whether the run's own gradients are on record."""
    return all_equal([buffer.asnumpy() for buffer in capture.buffers], own)


checks = {"untouched": same(clipped(plain, own), clipped(cell, own))}
checks["captured"] = captured()
checks["norms"] = near(capture.squared_sums(), {"gate": own[0][:2], "up": own[0][2:], "norm": own[1]})
capture.fill(lambda fused: injected[fused.native])
checks["injected"] = same(clipped(plain, list(injected.values())), clipped(cell, own))
checks["own on record"] = captured()
capture.fill(None)
checks["own again"] = same(clipped(plain, own), clipped(cell, own))
checks["clip norm shown"] = float(cell.clip_grad_norm.clip_norm.asnumpy().reshape(())) == 1.0
Path(sys.argv[2]).write_text(json.dumps(checks))
