"""Largest differences of honest runs: stated defaults by compute type.

fp32 is measured on CPU pairs of a small Llama: on equal weights losses are within 3.4e-7, gradients within 1.6e-6, norms within 3.6e-7.
Free-running gradients differ by up to 9.3e-5, because Adam magnifies the rounding of near-zero gradients. bf16 and fp16 follow honest
variants of one framework (1.5 to 4.2 eps a gradient tensor). A verdict that depends on defaults says so.

Factors of matrix products in FP8 or FP4 are scaled and rounded to nearest, an error of 0.2 eps of their norm (a uniform error in each
binade, weighted by squares), and in a product of many terms the errors of both factors add up like its terms: 0.28 eps of its norm, for
any number of terms and any size of scaled blocks. A gradient of two layers has up to 17 products of weights behind it: 8 forward and 8
backward, and its own. That is 1.2 eps from the exact gradient, and 1.7 eps between two runs whose scales differ; sharp attention makes
2.5 eps of it, and the limit is 4 eps. Losses and norms follow the worst pairs of ``tests/comparison/test_products.py``, of 2 to 16 layers.
Weights, reductions and updates are in no such format, and keep their limits."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from align_hooks.record.format.schema import MatrixProducts

if TYPE_CHECKING:  # pages of two files need no reader of records
    from align_hooks.record.reader import Run


class Limits(Struct, frozen=True):
    """Largest honest relative errors."""

    eps: float
    """Of the compute type."""
    loss: float
    """Of the mean loss on equal weights."""
    tokens: float
    """Of all tokens' losses together."""
    norm: float
    """Of a tensor's gradient norm on equal weights."""
    gradient: float
    """Of a tensor's gradient on equal weights."""
    free: float
    """Of a gradient or a norm at a free-running step."""
    weights: float
    """Of a weight at a free-running step."""
    update: float
    """Of what an update changes: Adam makes the whole rate of a gradient near zero (fp32 6e-5, bf16 0.25 on honest pairs)."""
    ties: float
    """Share of tokens that a router may give to other experts (bf16 0.05 with every weight moved by one eps)."""
    clear: float = 100.0
    """Times its limit up to which a free-running step is inconclusive."""
    clear_update: float = 5.0
    """Times its limit up to which an update is inconclusive."""

    def deep(self, layers: int) -> Limits:
        """Widen the limits for a model of so many layers: rounding grows with their fourth root (``docs/zoo.md``, from 2 to 32)."""
        times = max(1.0, layers / MEASURED_ON) ** 0.25
        return replace(self, **{name: times * getattr(self, name) for name in ("tokens", "norm", "gradient", "free", "weights", "update")})

    def coarse(self, losses: float, norms: float) -> Limits:
        """Widen the limits by the relative rounding of printed losses and local norms."""
        return replace(self, loss=self.loss + losses, norm=self.norm + norms)

    def free_loss(self, step: int) -> float:
        """Return the limit of a free-running step's loss: rounding grows with the updates (8.4e-7 seen over 20)."""
        return 2 * self.loss * max(1.0, step / 20)


MEASURED_ON = 2
"""Layers of the models that the defaults were measured on."""


def _of_half(eps: float, **others: float) -> Limits:
    return Limits(eps, norm=2 * eps, gradient=8 * eps, free=32 * eps, weights=32 * eps, **others)


DEFAULTS = {
    "float32": Limits(eps=2.0**-23, loss=1e-6, tokens=3e-6, norm=1e-5, gradient=1e-5, free=3e-4, weights=3e-4, update=3e-3, ties=1e-4),
    "float16": _of_half(2.0**-10, loss=1e-4, tokens=4e-3, update=0.1, ties=2e-2, clear=10.0, clear_update=4.0),
    "bfloat16": _of_half(2.0**-7, loss=2.5e-4, tokens=1.6e-2, update=0.4, ties=0.125, clear=4.0, clear_update=1.25),
}
E4M3, E5M2, E2M1 = 2.0**-3, 2.0**-2, 2.0**-1
"""The eps of formats with 3, 2 and 1 bits of mantissa."""
COARSEST = "e2m1"
FORMATS = {"e4m3": (E4M3, E4M3), "hybrid": (E4M3, E5M2), COARSEST: (E2M1, math.sqrt(2) * E2M1)}
"""Megatron-LM's name of a format to the eps of what is multiplied forward, and of gradients, which NVFP4 rounds at random."""
FACTORS, GRADIENTS = 34, 9
"""Rounded factors behind a gradient of two layers, and how many of these are gradients themselves."""
CLIPPING = 0.05
"""Global norms as each framework takes them: Megatron's fallback is an fp32 ``torch.norm``, 2e-2 off at 155 M elements."""
UPDATE = 1e-6
"""Weights after an injected update: 1.5e-8 to 4e-8 on honest fp32 pairs, which is the rounding of the weights themselves."""
SKETCHED = 2.0
"""Times a tensor's limit for an error estimated from sketches: 0.4 to 1.9 times the true one (:mod:`align_hooks.record.format.sketch`)."""
SAME_SKETCH = 1e-12
"""Sketches of equal tensors, which were added up in another order."""
ROUNDED = 6e-7
"""Norms of two sketches of equal tensors: each recorder's own is within 3e-7 (:mod:`align_hooks.record.format.sketch`)."""
SETTING = 1e-6
"""Hyper-parameters are equal within this: one side keeps them as fp32, the other as fp64."""


def limits_for(*compute_types: str | None) -> tuple[str, Limits]:
    """Return the coarsest of some compute types and its limits; fp32 where none is known."""
    known = [name for name in compute_types if name in DEFAULTS] or ["float32"]
    coarsest = max(known, key=lambda name: DEFAULTS[name].eps)
    return coarsest, DEFAULTS[coarsest]


def with_products(limits: Limits, products: MatrixProducts | None) -> Limits:
    """Widen the limits of a compute type for products in a format of their own; by the coarsest format where it has no stated eps."""
    if products is None or not products.format:
        return limits
    forward, backward = FORMATS[products.format if products.format in FORMATS and products.recipe != "custom" else COARSEST]
    eps = math.sqrt(((FACTORS - GRADIENTS) * forward**2 + GRADIENTS * backward**2) / FACTORS)
    half = DEFAULTS["bfloat16"]
    wider = {
        "loss": forward / 20,
        "tokens": forward / 2,
        "norm": 1.5 * eps,
        "gradient": 4 * eps,
        "free": 8 * eps,
        # Adam's first updates are signs, and the share of other signs is the gradient's error over pi; independent signs are at sqrt(2)
        "update": min(math.sqrt(2), 1.6 * math.sqrt(4 * eps)),
        "ties": 1 - (1 - half.ties) ** (forward / half.eps),
    }
    clear = {"clear": min(limits.clear, half.clear), "clear_update": min(limits.clear_update, half.clear_update)}
    return replace(limits, **{name: max(getattr(limits, name), limit) for name, limit in wider.items()}, **clear)


def weights_eps(run: Run) -> float:
    """Return eps of the type in which the optimizer keeps weights."""
    # Megatron's main parameters are fp32, MindFormers updates the model's own
    types = {shard.dtype for rank in run.manifests for shard in run.shards(rank)} if run.facts.side == "ms" else set()
    return limits_for(*types)[1].eps
