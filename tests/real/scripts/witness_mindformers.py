"""launch/run_mindformer.py with a witness of its own: every loss and the final parameters, to the bit, into WITNESS.

Its data are made here, so that nothing of align_hooks feeds the run that has none of it.
"""

import argparse
import os

import numpy as np
from mindformers.core.context import build_context
from mindformers.tools.register import MindFormerConfig, MindFormerModuleType, MindFormerRegister
from mindformers.trainer import Trainer
from mindspore.dataset import GeneratorDataset
from mindspore.train.callback import Callback


@MindFormerRegister.register(MindFormerModuleType.DATASET)
class WitnessDataset:
    def __new__(cls, dataset_config=None, **options):
        steps = int(os.environ.get("WITNESS_STEPS", 3))
        samples = np.random.RandomState(7).randint(0, 256, (steps, 4, 129)).astype(np.int32)
        rows = [(sample,) for sample in samples]
        if len(dataset_config.input_columns) > 1:
            rows = [(sample[:, :-1], sample[:, 1:], np.ones((4, 128), np.float32)) for sample in samples]
        return GeneratorDataset(rows, column_names=list(dataset_config.input_columns), shuffle=False)


class Witness(Callback):
    def __init__(self):
        self.losses = []

    def on_train_step_end(self, run_context):
        self.losses.append(run_context.original_args().net_outputs[0].asnumpy())

    def on_train_end(self, run_context):
        cell = run_context.original_args().train_network
        kept = [*cell.trainable_params(), *(one for one in cell.get_parameters() if one.name.endswith("expert_bias"))]
        parameters = {parameter.name: parameter.asnumpy() for parameter in kept}
        saved = sorted(cell.parameters_dict())  # what a checkpoint of this cell would hold
        np.savez(os.environ["WITNESS"], **parameters, losses=np.array(self.losses), saved=saved)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    config = MindFormerConfig(parser.parse_args().config)
    build_context(config)
    Trainer(config, callbacks=[Witness()]).train()
