"""Types: every bit kept, widening exact, narrowing as torch does it, and from fp64 rounded once."""

from pathlib import Path

import numpy as np
import pytest
import torch

from align_hooks.checkpoints.checkpoint import BLOCK, KINDS, TORCH_NAMES, cast
from align_hooks.checkpoints.convert import ConversionOptions, convert_weights
from align_hooks.errors import AlignHooksError
from checkpoints.models import DENSE, assert_same, bits, huggingface, read_file, tensors

WIDER = [("BF16", "F32"), ("F16", "F32"), ("F32", "F64"), ("BF16", "F64"), ("F16", "F64")]
NARROWER = [("F32", "BF16"), ("F32", "F16"), ("F16", "BF16"), ("BF16", "F16"), ("F64", "F32"), ("F64", "F16")]


def as_torch(array: np.ndarray, kind: str) -> torch.Tensor:
    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16) if kind == "BF16" else torch.from_numpy(array)


def drawn(kind: str, count: int = 200_000) -> np.ndarray:
    """Numbers of every size, half of them at or beside the middle between two of a narrower type."""
    unsigned = bits(np.random.default_rng(3), (count,), kind)
    if kind in ("F32", "F64"):
        low = {"F32": 16, "F64": 29}[kind]
        unsigned[::2] = (unsigned[::2] >> low << low) | (1 << low - 1)
        unsigned[::4] += np.random.default_rng(4).integers(-1, 2, unsigned[::4].shape).astype(unsigned.dtype)
    return unsigned.view(KINDS[kind])


@pytest.mark.parametrize(("kind", "to"), WIDER + NARROWER)
def test_a_cast_is_torchs(kind: str, to: str) -> None:
    array = drawn(kind)
    ours, _ = cast(array, kind, to)
    theirs = as_torch(array, kind).to(getattr(torch, TORCH_NAMES[to]))
    same = as_torch(ours, to) == theirs
    assert bool((same | (as_torch(ours, to).isnan() & theirs.isnan())).all())
    assert bool((as_torch(ours, to).signbit() == theirs.signbit())[~theirs.isnan()].all())  # of zeros too
    assert bool((theirs.isnan() == as_torch(array, kind).isnan()).all())


def test_fp64_is_rounded_to_bf16_once() -> None:
    """Just above the middle between two bf16, and by less than fp32 can tell: rounded to fp32 first, it would fall to the even one."""
    middle = 1 + 2.0**-8
    ours, _ = cast(np.array([middle, middle + 2.0**-40, middle - 2.0**-40, -middle - 2.0**-40]), "F64", "BF16")
    assert ours.tolist() == [0x3F80, 0x3F81, 0x3F80, 0xBF81]


@pytest.mark.parametrize("kind", ["F64", "F32", "F16", "BF16"])
def test_what_is_kept_is_the_very_array(kind: str) -> None:
    array = drawn(kind, 100)
    assert cast(array, kind, kind)[0] is array


def test_blocks_meet_without_a_gap() -> None:
    array = bits(np.random.default_rng(1), (BLOCK + 3,)).view("<f4")
    array[np.isnan(array)] = 1
    ours, _ = cast(array, "F32", "BF16")
    assert bool((as_torch(ours, "BF16") == torch.from_numpy(array).bfloat16()).all())


def test_numbers_beyond_the_largest_are_counted_and_said(tmp_path: Path) -> None:
    content = {name: ("F32", np.full(numbers.shape, 0x3F800001, "<u4")) for name, (_, numbers) in tensors(DENSE).items()}
    content["lm_head.weight"][1][0, :3] = np.array([1e5, -1e5, np.inf], "<f4").view("<u4")
    done = convert_weights(huggingface(tmp_path / "hf", DENSE, content), tmp_path / "out", "huggingface", ConversionOptions("float16"))
    assert done.notes == [
        f"rounded to float16, to nearest, ties to even: {len(content)} tensors",
        "2 numbers are beyond the largest float16 and became infinite, the first in lm_head.weight",
    ]
    assert {kind for kind, _ in read_file(tmp_path / "out" / "model.safetensors").values()} == {"F16"}


def test_widening_says_nothing_and_the_configuration_has_the_type(tmp_path: Path) -> None:
    source = huggingface(tmp_path / "hf", DENSE, tensors(DENSE, "BF16"))
    assert convert_weights(source, tmp_path / "out", "huggingface", ConversionOptions("float32")).notes == []
    wide = read_file(tmp_path / "out" / "model.safetensors")
    assert all((numbers == tensors(DENSE, "BF16")[name][1].astype("<u4") << 16).all() for name, (_, numbers) in wide.items())
    assert '"torch_dtype": "float32"' in (tmp_path / "out" / "config.json").read_text()


def test_pieces_of_several_types_are_refused_unless_one_is_chosen(tmp_path: Path) -> None:
    content = tensors(DENSE)
    name = "model.layers.1.self_attn.k_proj.weight"
    content[name] = ("BF16", bits(np.random.default_rng(0), content[name][1].shape, "BF16"))
    source = huggingface(tmp_path / "hf", DENSE, content)
    with pytest.raises(AlignHooksError, match=r"linear_qkv\.weight are BF16 and F32; choose one type with --dtype"):
        convert_weights(source, tmp_path / "no", "megatron")
    convert_weights(source, tmp_path / "out", "megatron", ConversionOptions("float32"))
    convert_weights(tmp_path / "out", tmp_path / "back", "huggingface")
    back = read_file(tmp_path / "back" / "model.safetensors")
    assert (back[name][1] == content[name][1].astype("<u4") << 16).all()
    convert_weights(source, tmp_path / "same", "huggingface")
    assert_same(read_file(tmp_path / "same" / "model.safetensors"), content)
