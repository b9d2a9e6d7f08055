"""The guide's ``seed_all`` for MindSpore, corrected.

The guide's snippet sets PYTHONHASHSEED in a running interpreter, where it has no effect; the launcher starts the interpreter again
instead. The snippet seeds python and numpy, and MindFormers seeds MindSpore later from the YAML's ``seed``.
``ALIGN_HOOKS_SEED`` therefore becomes that ``seed``, which MindFormers also gives to its data sets.
"""

from __future__ import annotations

import random

import mindspore
import numpy as np


def seed_all(seed: int) -> None:
    """Seed python, numpy and MindSpore. For patches; call it where nothing seeds again afterwards."""
    random.seed(seed)
    np.random.seed(seed)
    mindspore.set_seed(seed)


def set_deterministic() -> None:
    """Ask MindSpore for deterministic kernels; the environment variables must have been set at start."""
    mindspore.set_context(deterministic="ON")


def read_back() -> dict[str, object]:
    """The switches as MindSpore holds them now."""
    return {"mindspore.get_context(deterministic)": mindspore.get_context("deterministic"), "mindspore.get_seed": mindspore.get_seed()}
