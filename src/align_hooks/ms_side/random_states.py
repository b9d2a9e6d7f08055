"""The random generators that a MindFormers run draws from, read at the start of every step.

MindSpore's default generator seeds what it draws outside of a compiled graph, and of ``mint`` inside one; kernels of older operators keep a
state of their own, which nothing shows. Micro-batches are inside the compiled step, so none of them is seen. Reading moves nothing.
"""

from __future__ import annotations

import mindspore
import numpy as np

from align_hooks.ms_side.arrays import to_numpy
from align_hooks.record.random_states import digest, of_python_and_numpy


def at_step() -> dict[str, str]:
    """Name of each generator to the digest of its state."""
    found = of_python_and_numpy() | {"mindspore seed": digest(repr(mindspore.get_seed()).encode())}
    if hasattr(mindspore, "get_rng_state"):  # from 2.3 on
        found["mindspore"] = digest(np.ascontiguousarray(to_numpy(mindspore.get_rng_state())).tobytes())
    return found
