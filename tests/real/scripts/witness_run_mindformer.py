"""A repository's own ``run_mindformer.py``, run as it is, and a witness: every raw loss and the final parameters, to the bit.

``python witness_run_mindformer.py PATH/run_mindformer.py …`` writes them into WITNESS. The YAML names the callback
``Witness``, which is registered here as anyone's own callback is.
"""

import os
import runpy
import sys
from pathlib import Path

import numpy as np

script = Path(sys.argv[1]).resolve()
sys.argv = sys.argv[1:]
sys.path[0] = str(script.parent)

from mindformers.tools.register import MindFormerModuleType, MindFormerRegister  # noqa: E402
from mindspore.train.callback import Callback  # noqa: E402


@MindFormerRegister.register(MindFormerModuleType.CALLBACK)
class Witness(Callback):
    def __init__(self):
        self.losses = []

    def on_train_step_end(self, run_context):
        self.losses.append(run_context.original_args().net_outputs[0].asnumpy())

    def on_train_end(self, run_context):
        cell = run_context.original_args().train_network
        parameters = {f"parameter {parameter.name}": parameter.asnumpy() for parameter in cell.trainable_params()}
        saved = sorted(cell.parameters_dict())  # what a checkpoint of this cell would hold
        np.savez(os.environ["WITNESS"], **parameters, losses=np.array(self.losses), saved=saved)


runpy.run_path(str(script), run_name="__main__")
