"""A script that builds the data set of its YAML and prints its first batch. It trains nothing. ``--own`` adds the guide's class before."""

from __future__ import annotations

import argparse

from mindformers.core.context import build_context
from mindformers.dataset import build_dataset
from mindformers.dataset.base_dataset import BaseDataset
from mindformers.tools.register import MindFormerConfig, MindFormerModuleType, MindFormerRegister

parser = argparse.ArgumentParser()
parser.add_argument("--config", required=True)
parser.add_argument("--own", action="store_true")
given = parser.parse_args()

if given.own:

    @MindFormerRegister.register(MindFormerModuleType.DATASET)
    class NumpyDataloader(BaseDataset):  # type: ignore[misc]
        """The user's own."""

        def __new__(cls, dataset_config: object = None) -> NumpyDataloader:
            raise SystemExit("the user's own")


import align_hooks.ms_side  # noqa: E402, F401

config = MindFormerConfig(given.config)
build_context(config)
config.train_dataset.pop("construct_args_key", None)  # as the Trainer does
config.train_dataset_task.dataset_config = config.train_dataset
dataset = build_dataset(config.train_dataset_task)
for batch in dataset.create_dict_iterator(num_epochs=1, output_numpy=True):
    print({name: (array.shape, int(array.sum())) for name, array in batch.items()})
    break
