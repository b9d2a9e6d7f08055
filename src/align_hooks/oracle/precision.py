"""The precisions in which the model is run: fp64 for the truth, and the run's compute type for how far an honest run is from it.

``transformers`` computes norms, softmax, rotary angles and routers in fp32, in a model of fp64 too; of DeepSeek-V3's experts fp64 is then
added to fp32, which torch refuses. In :class:`Doubled` whatever would become fp32 becomes fp64.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

DTYPES: dict[str, torch.dtype] = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
"""The name of a compute type, as records have it, to torch's."""
TRUTH = "float64"


class Doubled(TorchFunctionMode):
    """Within it fp32 is fp64, in every call of torch that names the one."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        func = torch.Tensor.double if func is torch.Tensor.float else func
        return func(*map(doubled, args), **{name: doubled(value) for name, value in (kwargs or {}).items()})


def doubled(value: Any) -> Any:
    """An argument of torch, fp64 in the place of fp32."""
    return torch.float64 if value is torch.float32 else value


@contextmanager
def computing_in(name: str) -> Iterator[None]:
    """Within it the model computes in the type of this name, as ``transformers`` does; in fp64 throughout where that is the type."""
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
