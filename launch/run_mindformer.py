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
    config = MindFormerConfig(parser.parse_args().config)
    build_context(config)
    Trainer(config).train()
