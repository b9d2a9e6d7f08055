"""run_mindformer.py with a fault planted in the model: labels one position late."""

from __future__ import annotations

import runpy
from pathlib import Path

from mindformers.models.llama import llama
from mindspore import nn, ops

Original = llama.CrossEntropyLoss


class ShiftedLoss(nn.Cell):
    def __init__(self, *args, **kwargs):
        super().__init__()
        self.loss = Original(*args, **kwargs)
        self.concat = ops.Concat()  # an attribute: run_path hides this module's globals from the compiler

    def construct(self, logits, labels, mask):
        return self.loss(logits, self.concat((labels[1:], labels[:1])), mask)


llama.CrossEntropyLoss = ShiftedLoss

runpy.run_path(str(Path(__file__).parents[3] / "launch" / "run_mindformer.py"), run_name="__main__")
