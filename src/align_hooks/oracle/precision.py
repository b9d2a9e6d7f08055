"""The precisions of the model: fp64 for the truth, and the run's compute type for the distance of an honest run from it.

``transformers`` computes norms, softmax, rotary angles and routers in fp32 even in an fp64 model, and DeepSeek-V3's experts then add fp64
to fp32, which torch refuses. Under :class:`Doubled` fp64 takes the place of fp32.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

DTYPES: dict[str, torch.dtype] = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
"""The name of a compute type in records to torch's type."""
TRUTH = "float64"


class Doubled(TorchFunctionMode):
    """A mode in which every call of torch that names fp32 computes in fp64."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        func = torch.Tensor.double if func is torch.Tensor.float else func
        return func(*map(doubled, args), **{name: doubled(value) for name, value in (kwargs or {}).items()})


def doubled(value: Any) -> Any:
    """Return an argument of torch, with fp64 in the place of fp32."""
    return torch.float64 if value is torch.float32 else value


@contextmanager
def computing_in(name: str) -> Iterator[None]:
    """Have the model compute in the named type as ``transformers`` does; fp64 is used throughout where it is the type."""
    if name != TRUTH:
        yield
        return
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with Doubled():
            yield
    finally:
        torch.set_default_dtype(before)
