"""``launch/run_mindformer.py`` whose checkpoint is restored with one mistake, named by the variable PLANTED."""

import argparse
import os

from mindformers.core.context import build_context
from mindformers.tools.register import MindFormerConfig
from mindformers.trainer import Trainer
from mindspore.train.callback import Callback


def update_more(cell):
    """The optimizer counts one update more than was made."""
    count = cell.optimizer.global_step
    count.set_data(count + 1)


def moments_exchanged(cell):
    """Two layers' weights of one shape are given each other's moments."""
    for moments in (cell.optimizer.exp_avg, cell.optimizer.exp_avg_sq):
        first, second = (moment for moment in moments if moment.name.endswith("attention.wo.weight"))
        kept = first.value().copy()
        first.set_data(second.value().copy())
        second.set_data(kept)


PLANTS = {one.__name__: one for one in (update_more, moments_exchanged)}


class Planted(Callback):
    """The mistake, when training begins: by then the checkpoint is restored."""

    def on_train_begin(self, run_context):
        PLANTS[os.environ["PLANTED"]](run_context.original_args().train_network)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    config = MindFormerConfig(parser.parse_args().config)
    build_context(config)
    Trainer(config, callbacks=[Planted()]).train()
