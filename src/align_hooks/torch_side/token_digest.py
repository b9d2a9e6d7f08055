"""The digest of a step's tokens, made on their device (:mod:`align_hooks.record.format.token_digest`).

The writing thread digests copies of tokens on the host. A device may add integers inexactly (an NPU that casts them to fp32 would keep 24
bits), so it digests a known batch once, and where the result is wrong, no digest is recorded.
"""

import functools

import numpy as np
import torch
from msgspec import Struct, field

from align_hooks.record.format.token_digest import BITS, POSITIONS, ROWS, digest, multipliers
from align_hooks.torch_side.arrays import on_device
from align_hooks.torch_side.objects import Tensor

LEAST = 64
"""Fewest multipliers made at once; more are made in powers of two."""
KNOWN = np.arange(3 * 100).reshape(3, 100) * 2_657 % 200_003
"""A batch of ids as large as those of any vocabulary."""
OF_KNOWN = digest(KNOWN)


class TokenDigest(Struct):
    """The digest of the rows seen so far, on the device."""

    of_rows: list[Tensor] = field(default_factory=list)
    """int64 ``[rows]`` of each micro-batch on the device."""
    on_host: list[Tensor] = field(default_factory=list)
    """The tokens of each micro-batch on the host."""

    def add(self, tokens: object) -> None:
        """Add the tokens of a micro-batch, integers ``[rows, sequence]``; ignore anything else."""
        if not isinstance(tokens, torch.Tensor) or tokens.dim() != 2 or tokens.is_floating_point():
            return
        if tokens.is_cpu:
            self.on_host.append(tokens.clone())  # a loader may fill its memory again
        else:
            self.of_rows.append(sums_of_rows(tokens))

    def upper(self) -> Tensor | None:
        """Return the bits of the total that fp64 holds; None without rows on the device."""
        if not self.of_rows:
            return None
        of_rows = self.of_rows[0] if len(self.of_rows) == 1 else torch.cat(self.of_rows)
        return (of_rows * first(len(of_rows), ROWS, of_rows.device)).sum() >> (64 - BITS)

    def of_known(self) -> Tensor | None:
        """Return the digest of :data:`KNOWN` on the same device."""
        if not self.of_rows:
            return None
        return TokenDigest([sums_of_rows(on_device(torch.from_numpy(KNOWN), self.of_rows[0].device))]).upper()


def sums_of_rows(tokens: Tensor) -> Tensor:
    """Return the sum of each row of tokens, int64 ``[rows]`` on their device."""
    of_positions = first(tokens.shape[1], POSITIONS, tokens.device)
    return torch.addcmul(of_positions, tokens.long(), of_positions).sum(1)


def first(count: int, begin: int, device: torch.device) -> Tensor:
    """Return the first multipliers of positions or of rows, ``[count]`` on a device."""
    return _made(max(LEAST, 1 << (count - 1).bit_length()), begin, device)[:count]


@functools.cache
def _made(count: int, begin: int, device: torch.device) -> Tensor:
    return on_device(torch.from_numpy(multipliers(count, begin)), device)
