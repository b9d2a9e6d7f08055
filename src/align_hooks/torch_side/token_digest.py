"""The digest of a step's tokens, added up on the device over micro-batches (:mod:`align_hooks.record.format.token_digest`).

A device may add integers inexactly (an NPU that casts them to fp32 would keep 24 bits). So the device digests a known batch once, and where
the result is wrong, no digest is recorded.
"""

import functools
from dataclasses import dataclass

import numpy as np
import torch

from align_hooks.record.format.token_digest import BITS, POSITIONS, ROWS, digest, multipliers
from align_hooks.torch_side.arrays import on_device
from align_hooks.torch_side.objects import Tensor

LEAST = 64
"""Fewest multipliers made at once; more are made in powers of two."""
KNOWN = np.arange(3 * 100).reshape(3, 100) * 2_657 % 200_003
"""A batch of ids as large as those of any vocabulary."""
OF_KNOWN = digest(KNOWN)


@dataclass
class TokenDigest:
    """The digest of the rows seen so far, on the device."""

    total: Tensor | None = None
    """int64; None before the first row."""
    rows: int = 0

    def add(self, tokens: object) -> None:
        """Add the tokens of a micro-batch, integers ``[rows, sequence]``; ignore anything else."""
        if not isinstance(tokens, torch.Tensor) or tokens.dim() != 2 or tokens.is_floating_point():
            return
        before, self.rows = self.rows, self.rows + len(tokens)
        of_rows = ((tokens.long() + 1) * first(tokens.shape[1], POSITIONS, tokens.device)).sum(1)
        number = (of_rows * first(self.rows, ROWS, tokens.device)[before:]).sum()
        self.total = number if self.total is None else self.total + number

    def upper(self) -> Tensor | None:
        """Return the bits of the total that fp64 holds; None before the first row."""
        return None if self.total is None else self.total >> (64 - BITS)

    def of_known(self) -> Tensor | None:
        """Return the digest of :data:`KNOWN` on the same device."""
        if self.total is None:
            return None
        made = TokenDigest()
        made.add(on_device(torch.from_numpy(KNOWN), self.total.device))
        return made.upper()


def first(count: int, begin: int, device: torch.device) -> Tensor:
    """Return the first multipliers of positions or of rows, ``[count]`` on a device."""
    return _made(max(LEAST, 1 << (count - 1).bit_length()), begin, device)[:count]


@functools.cache
def _made(count: int, begin: int, device: torch.device) -> Tensor:
    return on_device(torch.from_numpy(multipliers(count, begin)), device)
