"""The random generators from which a MindFormers run draws, read at the start of every step.

MindSpore's default generator seeds all draws outside of a compiled graph, and those of ``mint`` inside it. Kernels of older operators keep
a state of their own, which cannot be read. Micro-batches are inside the compiled step, so their states cannot be read either. Reading
moves no generator.
"""

from __future__ import annotations

import mindspore
import numpy as np

from align_hooks.ms_side.arrays import to_numpy
from align_hooks.record.random_states import digest, of_python_and_numpy


def at_step() -> dict[str, str]:
    """Name of each generator to the digest of its state."""
    digests = of_python_and_numpy() | {"mindspore seed": digest(repr(mindspore.get_seed()).encode())}
    if hasattr(mindspore, "get_rng_state"):  # from 2.3 on
        digests["mindspore"] = digest(np.ascontiguousarray(to_numpy(mindspore.get_rng_state())).tobytes())
    return digests
