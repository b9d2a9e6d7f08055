"""launch/run_mindformer.py with data of its own, read by two workers that are started as START says."""

import argparse
import os

import mindspore.dataset as ds
import numpy as np
from mindformers.core.context import build_context
from mindformers.tools.register import MindFormerConfig, MindFormerModuleType, MindFormerRegister
from mindformers.trainer import Trainer
from mindspore.dataset import GeneratorDataset


class Rows:
    def __init__(self):
        self.samples = np.random.RandomState(7).randint(0, 256, (3, 4, 129)).astype(np.int32)

    def __getitem__(self, index):
        return (self.samples[index],)

    def __len__(self):
        return len(self.samples)


@MindFormerRegister.register(MindFormerModuleType.DATASET)
class OwnData:
    def __new__(cls, dataset_config=None, **options):
        ds.config.set_multiprocessing_start_method(os.environ["START"])
        return GeneratorDataset(Rows(), column_names=["input_ids"], shuffle=False, num_parallel_workers=2, python_multiprocessing=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    config = MindFormerConfig(parser.parse_args().config)
    build_context(config)
    Trainer(config).train()
