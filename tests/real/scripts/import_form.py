"""run_mindformer.py with the one line of the import form, after mindformers itself was imported."""

import argparse

from mindformers.core.context import build_context
from mindformers.tools.register import MindFormerConfig
from mindformers.trainer import Trainer

import align_hooks.ms_side  # noqa: F401

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    config = MindFormerConfig(parser.parse_args().config)
    build_context(config)
    Trainer(config).train()
