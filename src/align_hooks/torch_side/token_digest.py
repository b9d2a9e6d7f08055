"""The digest of the tokens of a step, added up on the device over its micro-batches (:mod:`align_hooks.record.token_digest`)."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch

from align_hooks.record.token_digest import BITS, POSITIONS, ROWS, multipliers
from align_hooks.torch_side.objects import Tensor

LEAST = 64
"""Multipliers that are made at once: so many, or a power of two more."""


@dataclass
class TokenDigest:
    """The ``total`` of the ``rows`` seen so far, int64, left on the device; None before the first."""

    total: Tensor | None = None
    rows: int = 0

    def add(self, tokens: object) -> None:
        """Add the tokens of a micro-batch, integers ``[rows, sequence]``; of anything else nothing is known."""
        if not isinstance(tokens, torch.Tensor) or tokens.dim() != 2 or tokens.is_floating_point():
            return
        before, self.rows = self.rows, self.rows + len(tokens)
        of_rows = (tokens.long() * first(tokens.shape[1], POSITIONS, tokens.device)).sum(1)
        number = (of_rows * first(self.rows, ROWS, tokens.device)[before:]).sum()
        self.total = number if self.total is None else self.total + number

    def upper(self) -> Tensor | None:
        """The bits of the total that fp64 holds; None where no tokens were seen."""
        return None if self.total is None else self.total >> (64 - BITS)


def first(count: int, begin: int, device: torch.device) -> Tensor:
    """The first multipliers of positions or of rows, ``[count]`` on a device."""
    return made(max(LEAST, 1 << (count - 1).bit_length()), begin, device)[:count]


@functools.cache
def made(count: int, begin: int, device: torch.device) -> Tensor:
    """Multipliers on a device, made once."""
    return torch.from_numpy(multipliers(count, begin)).to(device)
