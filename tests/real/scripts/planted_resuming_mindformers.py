"""launch/run_mindformer.py whose optimizer counts one update more than was made, once training begins."""

from __future__ import annotations

import argparse

from mindformers.core.context import build_context
from mindformers.tools.register import MindFormerConfig
from mindformers.trainer import Trainer
from mindspore.train.callback import Callback


class OneMore(Callback):
    def on_train_begin(self, run_context):
        count = run_context.original_args().train_network.optimizer.global_step
        count.set_data(count + 1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    config = MindFormerConfig(parser.parse_args().config)
    build_context(config)
    Trainer(config, callbacks=[OneMore()]).train()
