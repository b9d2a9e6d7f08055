"""``run_mindformer.py`` with a LlamaForCausalLM that is fed as that of MindFormers 1.3 is: it cuts, and it takes no mask.

It drops the last id and the first label of what it is given, and counts a token whose id is not the pad id and whose label is not the
ignored one. The rest is the installed model's own.
"""

import runpy
from pathlib import Path

from mindformers.models import llama
from mindformers.tools.register import MindFormerModuleType, MindFormerRegister
from mindspore import dtype, ops


class LlamaForCausalLM(llama.LlamaForCausalLM):
    def __init__(self, config=None):
        super().__init__(config)
        self.input_sliced_sig = True  # nothing is left to cut for the installed model
        self.counts = ops.NotEqual()
        self.float = dtype.float32  # an attribute: run_path hides this module's globals from the compiler

    def construct(self, input_ids, labels=None, input_position=None):
        tokens, labels = input_ids[:, :-1], labels[:, 1:]
        mask = self.cast(self.counts(tokens, self.pad_token_id), self.float)
        mask = mask * self.cast(self.counts(labels, self.ignore_token_id), self.float)
        return super().construct(tokens, labels, loss_mask=mask)


llama.LlamaForCausalLM = LlamaForCausalLM
MindFormerRegister.register_cls(LlamaForCausalLM, MindFormerModuleType.MODELS)

runpy.run_path(str(Path(__file__).parents[3] / "launch" / "run_mindformer.py"), run_name="__main__")
