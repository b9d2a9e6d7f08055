"""The core of MindFormers' ``run_mindformer.py``, which stands in its repository and in no wheel.

It is what the demo and the tests train with, and holds nothing of align_hooks: the repository's own script does in its
place.
"""

from __future__ import annotations

import argparse

from mindformers.core.context import build_context
from mindformers.tools.register import MindFormerConfig
from mindformers.trainer import Trainer

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    parser.add_argument("--mode", type=int, default=0)
    given = parser.parse_args()
    if given.mode == 1:
        from mindformers.pynative.trainer import Trainer as PynativeTrainer

        PynativeTrainer(given.config).train()
    else:
        config = MindFormerConfig(given.config)
        build_context(config)
        Trainer(config).train()
