"""Documents of packed samples, as ``PackedSeqParams`` tell them, and attention a document at a time."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("megatron.training")

from megatron.core.packed_seq_params import PackedSeqParams  # noqa: E402

from align_hooks.torch_side import packing  # noqa: E402
from align_hooks.torch_side.engine_twins import by_document  # noqa: E402
from align_hooks.torch_side.packing import spans_of  # noqa: E402


def packed(ends: list[int], padded: list[int] | None = None, keys: list[int] | None = None, **given: Any) -> PackedSeqParams:
    queries, of_keys, places = (None if of is None else torch.tensor(of, dtype=torch.int32) for of in (ends, keys or ends, padded))
    cut = {"cu_seqlens_q": queries, "cu_seqlens_kv": of_keys, "cu_seqlens_q_padded": places, "cu_seqlens_kv_padded": places}
    return PackedSeqParams(qkv_format="thd", **cut, **given)


@pytest.mark.parametrize(
    ("params", "spans"),
    [
        (packed([0, 3, 8]), [(0, 3), (3, 8)]),
        (packed([0, 3, 8, 8, 8]), [(0, 3), (3, 8)]),
        (packed([0, 3, 5], [0, 4, 8]), [(0, 3), (4, 6)]),
        (packed([0, 3, 8], keys=[0, 4, 8]), None),
        (packed([0, 3, 8], [0, 8]), None),
        (packed([0, 3, 8], local_cp_size=2), None),
        (PackedSeqParams(qkv_format="thd"), None),
    ],
    ids=["plain", "filled up", "padded", "other keys", "other padding", "hybrid", "empty"],
)
def test_spans_of_documents(params: PackedSeqParams, spans: list[tuple[int, int]] | None) -> None:
    assert spans_of(params) == spans


PLACE = {"cp": 0, "cp_size": 1}
ARGUMENTS = SimpleNamespace(micro_batch_size=2, seq_length=4, reset_attention_mask=True)


@pytest.mark.parametrize(
    ("ends", "documents"),
    [([3, 4, 8], [[0, 0, 0, 1], [0, 0, 0, 0]]), ([3, 6, 8], None), ([3, 4], None)],
    ids=["rows", "over rows", "a part"],
)
def test_documents_that_mindspeed_keeps_elsewhere(
    monkeypatch: pytest.MonkeyPatch, ends: list[int], documents: list[list[int]] | None
) -> None:
    monkeypatch.setattr(packing, "get_args", lambda: ARGUMENTS)
    assert packing.packed_by_mindspeed() is None
    monkeypatch.setitem(sys.modules, "mindspeed.utils", SimpleNamespace(get_actual_seq_len=lambda: torch.tensor(ends)))
    made = packing.documents(PLACE, packing.packed_by_mindspeed())
    assert documents == (None if made is None else made.tolist())


def test_rows_are_those_of_the_run_or_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "get_args", lambda: ARGUMENTS)
    tokens = torch.arange(8)[None]
    assert packing.unfolded(PLACE, tokens).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert packing.unfolded(PLACE, tokens[:, :6]).shape == (1, 6)
    assert packing.unfolded(PLACE, tokens.reshape(2, 4)).shape == (2, 4)


def test_documents_are_attended_to_one_by_one_and_nothing_between_them() -> None:
    query, key, value = (torch.randn(8, 2, size) for size in (4, 4, 4))

    def attend(query: Any, key: Any, value: Any) -> Any:
        assert value.shape[1:] == (1, 2, 3)  # latent attention has filled it up
        return value.flatten(2).cumsum(0)

    made = by_document(attend, 6, packed([0, 3, 5], [0, 4, 8]), (query, key, value)).unflatten(1, (2, 4))
    assert not made[[3, 6, 7]].any() and not made[..., 3].any()
    assert torch.equal(made[:3, :, :3], value[:3, :, :3].cumsum(0))
    assert torch.equal(made[4:6, :, :3], value[4:6, :, :3].cumsum(0))
