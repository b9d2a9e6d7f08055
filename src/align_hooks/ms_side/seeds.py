"""The guide's ``seed_all`` for MindSpore, corrected.

The guide's snippet sets PYTHONHASHSEED in a running interpreter, where it does nothing (the launcher starts it again
instead), and seeds python and numpy while MindFormers seeds MindSpore from the YAML's ``seed`` later.
``ALIGN_HOOKS_SEED`` therefore becomes that ``seed``, which MindFormers also gives to its data sets.
"""

from __future__ import annotations

import random
from typing import Any

import mindspore
import numpy as np


def seed_all(seed: int) -> None:
    """Seed python, numpy and MindSpore. For patches; call it where nothing seeds again afterwards."""
    random.seed(seed)
    np.random.seed(seed)
    mindspore.set_seed(seed)


def set_deterministic() -> None:
    """Ask MindSpore for deterministic kernels; the environment variables must have been there at start."""
    mindspore.set_context(deterministic="ON")


def read_back() -> dict[str, Any]:
    """The switches as MindSpore holds them now."""
    return {"mindspore.get_context(deterministic)": mindspore.get_context("deterministic"), "mindspore.get_seed": mindspore.get_seed()}
