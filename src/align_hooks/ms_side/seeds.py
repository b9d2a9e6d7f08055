"""The guide's ``seed_all`` for MindSpore, corrected.

The guide's snippet sets PYTHONHASHSEED in a running interpreter, without effect; the launcher starts the interpreter again instead. It
seeds only python and numpy, so ``ALIGN_HOOKS_SEED`` becomes the YAML's ``seed``, from which MindFormers seeds MindSpore and its data sets.
"""

import random

import mindspore
import numpy as np


def seed_all(seed: int) -> None:
    """Seed python, numpy and MindSpore; for patches, after the last other seeding."""
    random.seed(seed)
    np.random.seed(seed)
    mindspore.set_seed(seed)


def set_deterministic() -> None:
    """Switch MindSpore's deterministic kernels on; the environment variables must have been set at start."""
    mindspore.set_context(deterministic="ON")


def read_back() -> dict[str, object]:
    """Return MindSpore's present switches."""
    return {"mindspore.get_context(deterministic)": mindspore.get_context("deterministic"), "mindspore.get_seed": mindspore.get_seed()}
