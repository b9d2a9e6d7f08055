"""Limits of runs that multiply matrices in FP8 or FP4: against rounding by torch's own types, exact products, and planted faults.

A small decoder computes in fp64 and rounds what goes into each product of a weight, forward and backward. What is left to measure is
rounding alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from align_hooks import open_run
from align_hooks.comparison.finding import Metric
from align_hooks.comparison.metrics.limits import DEFAULTS, E2M1, E4M3, E5M2, Limits, with_products
from align_hooks.comparison.noise import why_no_repeat
from align_hooks.comparison.verdict import Verdict
from align_hooks.messages import message
from align_hooks.record.format.schema import MatrixProducts
from comparison.conftest import Compared
from comparison.test_ladder import retrained
from synthetic import Synthetic
from worded import arguments

torch = pytest.importorskip("torch")
Rounded = Callable[[Any, int], Any]
"""Rounds a factor ``[rows, columns]`` whose products are added up along an axis."""
FP64 = torch.float64
OF_E4M3, OF_E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
OF_E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=FP64)
"""Numbers of E2M1, which torch does not cast to."""


def cast(x: Any, dtype: Any) -> Any:
    return x.float().to(dtype).to(FP64)


def whole(dtype: Any, part: float = 1.0) -> Rounded:
    """One scale a tensor, by its largest value or by an older one that was so many times as large."""
    most = torch.finfo(dtype).max

    def rounded(x: Any, axis: int) -> Any:
        scale = part * most / x.abs().max()
        return cast((x * scale).clamp(-most, most), dtype) / scale

    return rounded


def in_blocks(size: int, function: Callable[[Any], Any]) -> Rounded:
    """One scale for so many numbers along the sum."""

    def rounded(x: Any, axis: int) -> Any:
        along = x.movedim(axis, -1).contiguous()
        return function(along.unflatten(-1, (-1, min(size, along.shape[-1])))).flatten(-2).movedim(-1, axis)

    return rounded


def by_power_of_two(dtype: Any) -> Callable[[Any], Any]:
    """MXFP8's scales, E8M0."""

    def function(blocks: Any) -> Any:
        scale = torch.exp2(torch.ceil(torch.log2(blocks.abs().amax(-1, keepdim=True).clamp(min=1e-30) / torch.finfo(dtype).max)))
        return cast(blocks / scale, dtype) * scale

    return function


def nvfp4(at_random: bool) -> Callable[[Any], Any]:
    """Blocks with a scale in E4M3 below one of the tensor; gradients are rounded at random."""
    generator = torch.Generator().manual_seed(3)

    def function(blocks: Any) -> Any:
        of_tensor = blocks.abs().max() / (6 * 448)
        scale = cast(blocks.abs().amax(-1, keepdim=True) / 6 / of_tensor, OF_E4M3).clamp(min=2.0**-9) * of_tensor
        size = (blocks / scale).abs().clamp(max=6)
        below = (torch.bucketize(size, OF_E2M1, right=True) - 1).clamp(max=6)
        low, high = OF_E2M1[below], OF_E2M1[below + 1]
        threshold = torch.rand(size.shape, generator=generator, dtype=FP64) if at_random else 0.5
        return torch.copysign(torch.where((size - low) / (high - low) > threshold, high, low), blocks) * scale

    return function


def exact(x: Any, axis: int) -> Any:
    return x


MX = by_power_of_two(OF_E4M3)
RECIPES: dict[str, tuple[str, Rounded, Rounded]] = {
    "tensorwise": ("e4m3", whole(OF_E4M3), whole(OF_E4M3)),
    "delayed": ("hybrid", whole(OF_E4M3, 0.37), whole(OF_E5M2, 0.37)),
    "tensorwise hybrid": ("hybrid", whole(OF_E4M3), whole(OF_E5M2)),
    "blockwise": ("e4m3", in_blocks(128, MX), in_blocks(128, MX)),
    "mxfp8": ("e4m3", in_blocks(32, MX), in_blocks(32, MX)),
    "nvfp4": ("e2m1", in_blocks(16, nvfp4(False)), in_blocks(16, nvfp4(True))),
}
"""Name to Megatron-LM's format, and what rounds weights and activations, and gradients."""


class Product(torch.autograd.Function):
    """Products with a weight, of rounded factors."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, forth: Rounded, back: Rounded) -> Any:
        ctx.save_for_backward(x, weight)
        ctx.rounded = forth, back
        return forth(x, 1) @ forth(weight, 1).T

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (x, weight), (forth, back) = ctx.saved_tensors, ctx.rounded
        return back(gradient, 1) @ forth(weight, 0), back(gradient, 0).T @ forth(x, 0), None, None


@dataclass
class Passed:
    """The losses of tokens, and the gradients of weights."""

    losses: Any
    gradients: dict[str, Any]


class Decoder:
    """Random layers with attention and a gated MLP, of which a fault may be one product: ``layers.1.down``, say."""

    def __init__(self, seed: int, layers: int, size: int = 64, std: float = 0.1, length: int = 128) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.layers, self.weights = layers, {}
        sizes = {"q": (size, size), "k": (size // 2, size), "v": (size // 2, size), "o": (size, size)}
        sizes |= {"gate": (2 * size, size), "up": (2 * size, size), "down": (size, 2 * size)}
        shapes = {f"{layer}.{name}": shape for layer in range(layers) for name, shape in sizes.items()}
        for name, shape in ({"embedding": (256, size), "head": (256, size)} | shapes).items():
            self.weights[name] = (std * torch.randn(*shape, generator=self.generator, dtype=FP64)).requires_grad_()
        norms = [f"{layer}.{name}" for layer in range(layers) for name in ("before", "between")]
        self.weights |= {name: torch.ones(size, dtype=FP64).requires_grad_() for name in (*norms, "norm")}
        self.ids = torch.randint(0, 256, (2, length + 1), generator=self.generator)

    def passed(
        self, forth: Rounded = exact, back: Rounded = exact, faults: dict[str, Callable[[Any, Any, Any], Any]] | None = None
    ) -> Passed:
        """Make a forward and a backward pass; a fault gets a product's input, its weight and how it would be made."""
        weights, planted = self.weights, faults or {}

        def product(x: Any, name: str) -> Any:
            def plain(x: Any, weight: Any) -> Any:
                return Product.apply(x.flatten(0, 1), weight, forth, back).unflatten(0, x.shape[:2])

            return planted[name](x, weights[name], plain) if name in planted else plain(x, weights[name])

        def normed(x: Any, name: str) -> Any:
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weights[name]

        x = weights["embedding"][self.ids[:, :-1]]
        for layer in range(self.layers):
            y = normed(x, f"{layer}.before")
            q, k, v = (product(y, f"{layer}.{name}") for name in "qkv")
            q = q.unflatten(-1, (4, -1)).transpose(1, 2)
            k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2).repeat_interleave(2, 1) for part in (k, v))
            attended = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + product(attended.transpose(1, 2).flatten(2), f"{layer}.o")
            y = normed(x, f"{layer}.between")
            x = x + product(torch.nn.functional.silu(product(y, f"{layer}.gate")) * product(y, f"{layer}.up"), f"{layer}.down")
        logits = (normed(x, "norm") @ weights["head"].T).flatten(0, 1)
        losses = torch.nn.functional.cross_entropy(logits, self.ids[:, 1:].flatten(), reduction="none")
        gradients = torch.autograd.grad(losses.mean(), [*weights.values()])
        return Passed(losses.detach(), dict(zip(weights, gradients, strict=True)))


def beyond(ours: Passed, theirs: Passed, limits: Limits) -> Iterator[tuple[float, str]]:
    """Yield each error in units of its limit, with what it is an error of."""
    yield float((ours.losses - theirs.losses).norm() / ours.losses.norm()) / limits.tokens, "tokens"
    yield abs(float(theirs.losses.mean() / ours.losses.mean() - 1)) / limits.loss, "loss"
    for name, gradient in ours.gradients.items():
        other = theirs.gradients[name]
        yield float((gradient - other).norm() / gradient.norm()) / limits.gradient, f"gradient of {name}"
        yield abs(float(other.norm() / gradient.norm() - 1)) / limits.norm, f"norm of {name}"


def limits_of(kind: str, layers: int = 2) -> Limits:
    return with_products(DEFAULTS["bfloat16"], MatrixProducts(kind)).deep(layers)


@pytest.mark.parametrize(("dtype", "eps"), [(OF_E4M3, E4M3), (OF_E5M2, E5M2)])
def test_the_error_of_a_rounded_factor_and_of_a_product_is_what_the_limits_assume(dtype: Any, eps: float) -> None:
    """0.2 eps and 0.28 eps of the norm, however many terms a product has."""
    assert torch.finfo(dtype).eps == eps
    generator = torch.Generator().manual_seed(0)
    for terms in (32, 512, 4096):
        one, two = (torch.randn(64, terms, generator=generator, dtype=FP64) for _ in range(2))
        rounded = whole(dtype)
        assert float((rounded(one, 1) - one).norm() / one.norm()) == pytest.approx(0.2 * eps, rel=0.15)
        error = rounded(one, 1) @ rounded(two, 1).T - one @ two.T
        assert float(error.norm() / (one @ two.T).norm()) == pytest.approx(0.28 * eps, rel=0.15)


def test_blocks_of_numbers_with_one_bit_of_mantissa_are_as_far_off() -> None:
    x = torch.randn(64, 512, generator=torch.Generator().manual_seed(0), dtype=FP64)
    assert float((in_blocks(16, nvfp4(False))(x, 1) - x).norm() / x.norm()) == pytest.approx(0.2 * E2M1, rel=0.15)
    assert float((in_blocks(16, nvfp4(True))(x, 1) - x).norm() / x.norm()) == pytest.approx(0.2 * math.sqrt(2) * E2M1, rel=0.15)


@pytest.mark.parametrize(("layers", "std"), [(2, 0.1), (2, 0.02), (8, 0.1)])
@pytest.mark.parametrize("recipe", RECIPES)
def test_rounded_passes_are_within_the_limits_of_exact_ones(recipe: str, layers: int, std: float) -> None:
    kind, forth, back = RECIPES[recipe]
    for seed in range(3):
        decoder = Decoder(seed, layers, std=std)
        worst, of = max(beyond(decoder.passed(), decoder.passed(forth, back), limits_of(kind, layers)))
        assert worst <= 1, of


@pytest.mark.parametrize(("layers", "std"), [(2, 0.1), (8, 0.1), (16, 0.05)])
@pytest.mark.parametrize(("one", "other", "kind"), [("mxfp8", "tensorwise", "e4m3"), ("delayed", "tensorwise hybrid", "hybrid")])
def test_two_honest_runs_that_scale_differently_are_within_the_limits_and_beyond_those_of_bfloat16(
    one: str, other: str, kind: str, layers: int, std: float
) -> None:
    for seed in range(3 if layers < 16 else 1):
        decoder = Decoder(seed, layers, std=std)
        passes = [decoder.passed(*RECIPES[name][1:]) for name in (one, other)]
        worst, of = max(beyond(*passes, limits_of(kind, layers)))
        assert worst <= 1, of
        assert max(beyond(*passes, DEFAULTS["bfloat16"].deep(layers)))[0] > 2


FAULTS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "a scale of twice the size": lambda x, weight, plain: plain(x, 2 * weight),
    "a transposed factor": lambda x, weight, plain: plain(x, weight.T),
    "half of the terms": lambda x, weight, plain: plain(
        torch.cat([x[..., : x.shape[-1] // 2], 0 * x[..., x.shape[-1] // 2 :]], -1), weight
    ),
    "no product": lambda x, weight, plain: 0 * plain(x, weight),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("recipe", [name for name in RECIPES if name != "nvfp4"])  # whose rounding is as large as these faults
def test_a_planted_fault_is_beyond_the_limits(recipe: str, fault: str) -> None:
    kind, forth, back = RECIPES[recipe]
    for name in ("0.q", "1.o"):
        decoder = Decoder(0, 2)
        errors = beyond(decoder.passed(), decoder.passed(forth, back, {name: FAULTS[fault]}), limits_of(kind))
        assert max(errors)[0] > 1.1, name


def test_a_format_without_a_stated_eps_is_judged_by_the_coarsest() -> None:
    half = DEFAULTS["bfloat16"]
    coarsest = with_products(half, MatrixProducts("e2m1", "nvfp4"))
    for products in (MatrixProducts("hif8", "tensorwise"), MatrixProducts("e4m3", "custom")):
        assert with_products(half, products) == coarsest
    assert with_products(half, None) == with_products(half, MatrixProducts()) == half
    of_fp8 = with_products(half, MatrixProducts("hybrid", "delayed"))
    assert (of_fp8.eps, of_fp8.weights, of_fp8.clear) == (half.eps, half.weights, half.clear)
    assert half.gradient < of_fp8.gradient < coarsest.gradient
    assert with_products(DEFAULTS["float32"], MatrixProducts("hybrid", "delayed")).clear == half.clear


# ---- runs


DELAYED = {"format": "hybrid", "recipe": "delayed"}
BF16: dict[str, object] = {"format": ""}


def made(products: dict[str, object] | None) -> Synthetic:
    return Synthetic(compute_type="bfloat16", products=products)


def test_formats_of_products_that_differ_are_named_and_never_aligned(compared: Compared) -> None:
    outcome = compared(made(DELAYED), against=made(BF16))
    (finding,) = outcome.first.findings
    assert (outcome.verdict, finding.what, finding.quantity) == (Verdict.INCONCLUSIVE, message("settings.products"), Metric.MODEL_SETTING)
    assert (finding.reference, finding.candidate) == ("bfloat16", "hybrid delayed")
    assert arguments("notes.compute_types", outcome.notes)["coarser"] == "bfloat16 (hybrid delayed)"
    assert compared(made(DELAYED), against=made(None)).verdict is Verdict.ALIGNED  # a side that does not say
    assert compared(made(DELAYED), against=made(DELAYED)).verdict is Verdict.ALIGNED
    blocks = compared(made(DELAYED | {"recipe": "mxfp8", "exempt_layers": [1, 2], "weight_gradients": False}), against=made(DELAYED))
    assert blocks.first.findings[0].candidate == "hybrid mxfp8 --no-fp8-wgrad --first-last-layers-bf16 1+2"


def test_products_of_the_compute_type_are_no_coarser_type(compared: Compared) -> None:
    outcome = compared(made(BF16), against=Synthetic(compute_type="float32", products=BF16))
    assert arguments("notes.compute_types", outcome.notes)["coarser"] == "bfloat16"


@pytest.mark.parametrize(("products", "verdict"), [(DELAYED, Verdict.ALIGNED), (BF16, Verdict.DIVERGED)])
def test_limits_follow_the_format_of_products(compared: Compared, products: dict[str, object], verdict: Verdict) -> None:
    reference, candidate = made(products), made(products)
    retrained(candidate, 0, 1.1)
    outcome = compared(candidate, against=reference)
    assert outcome.verdict is verdict
    kind = "bfloat16 (hybrid delayed)" if products is DELAYED else "bfloat16"
    assert arguments("notes.default_limits", outcome.notes)["type"] == kind


def test_a_repeat_in_another_format_measures_nothing(tmp_path: Path) -> None:
    runs = [open_run(made(products).write(tmp_path / str(number))) for number, products in enumerate((DELAYED, DELAYED, BF16))]
    why = message("noise.compute_type", reference="bfloat16 (hybrid delayed)", candidate="bfloat16")
    assert [why_no_repeat(runs[0], run, 2.0**-7) for run in runs[1:]] == [None, why]
