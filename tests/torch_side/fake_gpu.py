"""A GPU of tensors without values: a read of one is an error, and what crosses to the host is counted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from align_hooks.torch_side import norms, probe_recorder, token_digest

CACHES = (probe_recorder.rows_on, probe_recorder.columns_on, token_digest._made)


class Transfers(TorchDispatchMode):
    """Counts copies to the host, which are ones, and lets the host compute with its own tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.made = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = [value for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
        fake = any(isinstance(value, FakeTensor) for value in given)
        if not fake and torch.device(kwargs.get("device") or "cpu").type == "cpu":
            with unset_fake_temporarily():
                return func(*args, **kwargs)
        result = func(*args, **kwargs)
        there = any(value.device.type == "cuda" for value in given)
        return tree_map(self.crossed, result) if there else result

    def crossed(self, value: Any) -> Any:
        """Return ones for what has left the device."""
        if not isinstance(value, FakeTensor) or value.device.type == "cuda":
            return value
        self.made += 1
        with unset_fake_temporarily():
            return torch.ones(value.shape, dtype=value.dtype)


@contextmanager
def fake_gpu() -> Iterator[Transfers]:
    """Run on a GPU that is not there; tensors are nowhere in memory, and each is a stretch of its own."""

    def each(tensors: list[Any]) -> tuple[norms.ContiguousSpan, ...]:
        one = ((index, tensor.numel(), tensor.dtype) for index, tensor in enumerate(tensors))
        return tuple(norms.ContiguousSpan(0, size, ((index, 0),), kind) for index, size, kind in one)

    transfers = Transfers()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(norms, "spans_of", each)
        patch.setattr(torch.Tensor, "data_ptr", lambda tensor: id(tensor))
        patch.setattr(torch.cuda, "current_stream", lambda device: None)
        patch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)  # which asks for a driver
        for cache in CACHES:
            cache.cache_clear()
        try:
            with FakeTensorMode(allow_non_fake_inputs=True), transfers:
                yield transfers
        finally:
            for cache in CACHES:  # none of it is kept for a later test
                cache.cache_clear()
