"""Norms and sketches of many tensors at once, held against the definitions of each piece by itself."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from align_hooks.names.blocks import Blocks  # noqa: E402
from align_hooks.names.fused import Fused  # noqa: E402
from align_hooks.record.format.shard import shards_of  # noqa: E402
from align_hooks.record.format.sketch import sketch  # noqa: E402
from align_hooks.torch_side.norms import GAP, NormPlan, spans_of  # noqa: E402
from align_hooks.torch_side.sketches import SketchPlan  # noqa: E402
from synthetic import fused as fused_of  # noqa: E402


def parameter(name: str, rows: Sequence[int], width: int | None, repeats: int = 1, flat: tuple[int, int] | None = None) -> Fused:
    """A parameter of pieces of so many rows each time; a vector where ``width`` is None."""
    shapes = {f"{name}.{index}": (repeats * size,) if width is None else (repeats * size, width) for index, size in enumerate(rows)}
    return replace(fused_of(name, shapes, Blocks(repeats, tuple(rows))), flat=flat)


def tensor_of(fused: Fused) -> torch.Tensor:
    return torch.randn(fused.flat[1] - fused.flat[0] if fused.flat else fused.shape)


def in_a_buffer(tensors: Sequence[torch.Tensor], gap: int) -> list[torch.Tensor]:
    """The same tensors as views of one buffer, with NaN between them."""
    buffer, at, views = torch.full((sum(each.numel() + gap for each in tensors),), torch.nan), 0, []
    for each in tensors:
        views.append(buffer[at : at + each.numel()].view(each.shape))
        views[-1].copy_(each)
        at += each.numel() + gap
    return views


def pieces(fused: Fused, tensor: torch.Tensor) -> dict[str, np.ndarray]:
    runs: dict[str, list[torch.Tensor]] = {}
    for name, run in fused.split(tensor):
        runs.setdefault(name, []).append(run.reshape(-1))
    return {name: torch.cat(parts).numpy() for name, parts in runs.items()}


def squares(fused: Sequence[Fused], tensors: Sequence[torch.Tensor], plan: NormPlan | None = None) -> dict[str, float]:
    """The squared norm of each piece, by a plan made anew where none is given."""
    norms = (plan or NormPlan()).norms(zip(fused, tensors, strict=True))
    return norms.named(norms.squares(norms.numbers.numpy()))


def check(fused: Sequence[Fused], tensors: Sequence[torch.Tensor]) -> None:
    """Norms within 3e-7 of the exact, and sketches those of the definition."""
    squared, sketches = squares(fused, tensors), SketchPlan().sketches(zip(fused, tensors, strict=True))
    signed = sketches.named(sketches.numbers.numpy(), squared)
    expected = {}
    for each, tensor in zip(fused, tensors, strict=True):
        alone = pieces(each, tensor)
        expected |= {shard.name: sketch(alone[shard.name], shard) for shard in shards_of(each, dtype="", counted=True)}
    assert squared.keys() == signed.keys() == expected.keys()
    for name, sums in expected.items():
        np.testing.assert_allclose(np.sqrt(squared[name]), np.sqrt(sums[0]), rtol=3e-7)
        np.testing.assert_allclose(signed[name][1:], sums[1:], rtol=1e-12, atol=1e-12)


MODEL = [
    parameter("embedding", (511, 1), 64),
    parameter("qkv", (32, 16, 16), 64, repeats=4),
    parameter("gate_up", (160, 160), 64),
    parameter("down", (64,), 160),
    parameter("norm", (64,), None),
    parameter("bias", (8, 4, 4), None, repeats=4),
    parameter("odd", (37,), 45),
    parameter("large", (1500, 36), 1024),
]


LAID_OUT: dict[str, Callable[[list[torch.Tensor]], list[torch.Tensor]]] = {
    **{f"in a buffer with gaps of {gap}": partial(in_a_buffer, gap=gap) for gap in (0, 7, 64, GAP + 1)},
    "separate": list,
    "not contiguous": lambda tensors: [each.t().contiguous().t() if each.dim() > 1 else each for each in tensors],
}


@pytest.mark.parametrize("how", LAID_OUT)
def test_a_model_however_its_tensors_lie(how: str) -> None:
    check(MODEL, LAID_OUT[how]([tensor_of(each) for each in MODEL]))


@settings(max_examples=60)
@given(
    rows=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    width=st.one_of(st.none(), st.integers(1, 80), st.sampled_from([16, 64, 128])),
    repeats=st.integers(1, 5),
    share=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    whole=st.booleans(),
)
def test_any_share_of_any_layout(rows: list[int], width: int | None, repeats: int, share: tuple[float, float], whole: bool) -> None:
    start, stop = sorted(int(part * repeats * sum(rows) * (width or 1)) for part in share)
    flat = None if whole or start == stop else (start, stop)
    some = [parameter("other", (3,), 5), parameter("x", rows, width, repeats, flat), parameter("last", (20,), None)]
    check(some, in_a_buffer([tensor_of(each) for each in some], 3))


def test_bf16_gradients_are_taken_as_fp32() -> None:
    tensors = [tensor_of(each).bfloat16() for each in MODEL]
    squared = squares(MODEL, tensors)
    for each, tensor in zip(MODEL, tensors, strict=True):
        for name, piece in pieces(each, tensor.float()).items():
            assert squared[name] == pytest.approx(float(np.square(piece.astype(np.float64)).sum()), rel=6e-7)


def test_a_constant_large_tensor_is_as_exact() -> None:
    fused = [parameter("vocabulary", (8191, 1), 64)]
    squared = squares(fused, [torch.full((8192, 64), 1e-2)])
    assert np.sqrt(squared["vocabulary.0"]) == pytest.approx(np.sqrt(8191 * 64 * np.float64(np.float32(1e-2)) ** 2), rel=3e-7)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_is_of_its_piece_alone(value: float) -> None:
    tensors = in_a_buffer([tensor_of(each) for each in MODEL], 7)
    tensors[1][40, 3] = value  # of the first group, its key
    assert [name for name, square in squares(MODEL, tensors).items() if not np.isfinite(square)] == ["qkv.1"]


def test_a_plan_follows_tensors_that_move() -> None:
    plan, signed = NormPlan(), SketchPlan()
    first = [tensor_of(each) for each in MODEL]
    for tensors in (first, in_a_buffer(first, 5), in_a_buffer(first, 0)[::-1][::-1], first):
        assert squares(MODEL, tensors, plan) == pytest.approx(squares(MODEL, first), rel=3e-7)
        assert torch.equal(
            signed.sketches(zip(MODEL, tensors, strict=True)).numbers, SketchPlan().sketches(zip(MODEL, first, strict=True)).numbers
        )


def test_a_tensor_twice_is_counted_twice() -> None:
    tensor = torch.randn(64, 64)
    assert len(spans_of([tensor, tensor])) == 2
    check([parameter("a", (64,), 64), parameter("b", (64,), 64)], [tensor, tensor])


class Calls(TorchDispatchMode):
    """Counts calls of operators, views left out."""

    def __init__(self) -> None:
        super().__init__()
        self.made: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        name = func.overloadpacket.__name__
        if name not in ("view", "as_strided", "slice", "detach", "_unsafe_view", "alias", "lift_fresh", "reshape", "_reshape_alias"):
            self.made[name] += 1
        return func(*args, **(kwargs or {}))


def test_calls_do_not_grow_with_the_number_of_tensors() -> None:
    """The first step makes a plan; later ones make as many calls for a hundred layers as for ten."""
    made = []
    for layers in (10, 100):
        kinds = {"qkv": (32, 16, 16), "down": (16,)}
        fused = [parameter(f"{layer}.{name}", rows, 16) for layer in range(layers) for name, rows in kinds.items()]
        tensors = in_a_buffer([tensor_of(each) for each in fused], 0)
        norms, sketches = NormPlan(), SketchPlan()
        for _ in range(2):
            with Calls() as calls:
                norms.norms(zip(fused, tensors, strict=True))
                sketches.sketches(zip(fused, tensors, strict=True))
        made.append(calls.made.total())
    assert made[0] == made[1] <= 12
