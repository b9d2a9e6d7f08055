"""``pretrain_gpt.py`` that notes how long our hooks hold the training thread in each step."""

from __future__ import annotations

import runpy
from pathlib import Path

from held import timed

from align_hooks.torch_side import state
from align_hooks.torch_side.hooks import gradients, norm, train_step
from align_hooks.torch_side.token_digest import TokenDigest

if __name__ == "__main__":
    timed(TokenDigest, "add")
    timed(state, "generators", "generators_at_micro_batch")
    timed(gradients, "read")
    timed(norm, "again", "places")
    timed(train_step, "close", "keep_state")
    runpy.run_path(str(Path(__file__).parents[2] / "launch" / "pretrain_gpt.py"), run_name="__main__")
