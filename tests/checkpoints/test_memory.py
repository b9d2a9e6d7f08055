"""What a conversion holds at once: about the largest tensor, however many there are."""

from pathlib import Path

import pytest

from align_hooks.checkpoints.convert import ConversionOptions, convert_weights
from checkpoints.models import Sizes, huggingface, peak_of_converting, record, tensors
from chosen import every

SIZES = Sizes(layers=12, heads=8, groups=2, head_dim=32, hidden=256, ffn=512, vocabulary=1024)
LARGEST = 2 * SIZES.ffn * SIZES.hidden * 4
"""Bytes of gate and up together, or of the embedding: the same."""
WHOLE = SIZES.layers * (3 * SIZES.ffn + 640) * SIZES.hidden * 4
MOST = 3.5 * LARGEST
"""The pieces of a parameter, the parameter, and what was read last."""
APART = 1.8 * LARGEST
"""What is read, and its largest piece: of a destination whose parameters are not fused."""


@pytest.fixture(scope="module")
def forms(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    where = tmp_path_factory.mktemp("forms")
    found = {"huggingface": huggingface(where / "hf", SIZES, content := tensors(SIZES)), "record": record(where / "run", SIZES, content)}
    for to, name in (("megatron", "mg"), ("mindspore", "ms"), ("mindspore-ckpt", "a.ckpt")):
        convert_weights(found["huggingface"], where / name, to, ConversionOptions(qkv_concat=to == "mindspore"))
        found[to] = where / name
    return found


TO = ("huggingface", "megatron", "mindspore", "mindspore-ckpt")
SOURCES = ("record", *TO)


@pytest.mark.parametrize(
    ("source", "to", "dtype"),
    every(4, [*((source, to, "keep") for source in SOURCES for to in TO), *((source, "megatron", "bfloat16") for source in SOURCES)]),
)
def test_no_more_than_a_few_of_the_largest_tensor_is_ever_held(
    tmp_path: Path, forms: dict[str, Path], source: str, to: str, dtype: str
) -> None:
    assert WHOLE > 6 * MOST
    path = Path(f"{forms['record']}@2") if source == "record" else forms[source]
    peak = peak_of_converting(path, tmp_path / "out.ckpt", to, ConversionOptions(dtype), forms["huggingface"])
    most = APART if to == "huggingface" and source != "record" else MOST
    assert peak < most, f"{peak / LARGEST:.2f} of the largest tensor"
