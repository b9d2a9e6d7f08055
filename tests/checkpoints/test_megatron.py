"""Megatron-LM's checkpoints, as torch writes them: every layout gives the same tensors to the bit, and torch reads what we write."""

import pickle
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from align_hooks.checkpoints.convert import ConversionOptions, convert_weights
from align_hooks.checkpoints.forms import open_checkpoint
from align_hooks.errors import RecordError
from checkpoints.models import UNSIGNED, Sizes, Tensors, assert_same, config, huggingface, peak_of_converting, read_file, record, tensors
from checkpoints.of_megatron import DTYPES, RANK_0, SIGNED, mp_rank, natives, torch_dist

DENSE = Sizes(layers=4, heads=4, groups=2, head_dim=4, hidden=8, ffn=6, vocabulary=12)
EXPERTS = Sizes(layers=2, heads=4, groups=2, head_dim=4, hidden=8, ffn=6, vocabulary=12, experts=4)
TIED = Sizes(layers=2, heads=2, groups=2, head_dim=4, hidden=8, ffn=6, vocabulary=12, tied=True)
EVERY_MODEL = pytest.mark.parametrize("sizes", [DENSE, EXPERTS, TIED], ids=["dense", "experts", "tied"])


def found(path: Path) -> Tensors:
    return {name: (tensor.kind, tensor.read().view(UNSIGNED[tensor.kind])) for name, tensor in open_checkpoint(path).tensors.items()}


LAYOUTS = {
    "one rank": (DENSE, {}),
    "two tensor-parallel ranks": (DENSE, {"tensor": 2}),
    "two stages": (DENSE, {"pipeline": 2}),
    "two ranks and two stages": (DENSE, {"tensor": 2, "pipeline": 2}),
    "two virtual stages on each of two": (DENSE, {"pipeline": 2, "virtual": 2}),
    "experts on one rank": (EXPERTS, {}),
    "experts on two ranks": (EXPERTS, {"expert": 2}),
    "experts on two ranks, cut in two, in two stages": (EXPERTS, {"expert": 2, "tensor": 2, "pipeline": 2}),
    "tied": (TIED, {"tensor": 2}),
}


@pytest.mark.parametrize("kind", ["F32", "BF16"])
@pytest.mark.parametrize(("sizes", "ranks"), LAYOUTS.values(), ids=LAYOUTS)
def test_ranks_of_every_layout_hold_the_same_model(tmp_path: Path, sizes: Sizes, ranks: dict[str, int], kind: str) -> None:
    content = tensors(sizes, kind, 3)
    assert_same(found(mp_rank(tmp_path / "iter_0000010", sizes, content, **ranks)), content)


def test_a_copy_of_a_tied_embedding_in_the_last_stage_is_passed_over(tmp_path: Path) -> None:
    def change(name: str, value: dict[str, Any]) -> None:
        if name.endswith("1"):
            value["model"]["output_layer.weight"] = torch.zeros(12, 8)

    assert_same(found(mp_rank(tmp_path / "ranks", TIED, pipeline=2, change=change)), tensors(TIED))


@pytest.mark.parametrize("common", ["common_state", "common.pt"])
@pytest.mark.parametrize("stacked", [True, False])
@pytest.mark.parametrize("tensor", [1, 2])
@EVERY_MODEL
def test_a_distributed_checkpoint_needs_no_ranks(tmp_path: Path, sizes: Sizes, tensor: int, stacked: bool, common: str) -> None:
    content = tensors(sizes, "BF16", 4)
    path = torch_dist(tmp_path / "iter_0000010", sizes, content, tensor=tensor, stacked=stacked, common=common)
    assert_same(found(path), content)
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("10")
    assert_same(found(tmp_path), content)


@EVERY_MODEL
def test_arguments_tell_the_model(tmp_path: Path, sizes: Sizes) -> None:
    told = open_checkpoint(torch_dist(tmp_path / "dist", sizes)).model.config
    assert {key: told[key] for key in config(sizes)} == config(sizes)


def test_the_metadata_of_an_older_megatron_is_a_class_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to 0.15 it is ``MCoreMetadata``, with what the others have and a dictionary."""
    place = "megatron.core.dist_checkpointing.strategies.torch"
    older_class = type("MCoreMetadata", (), {"__module__": place})
    monkeypatch.setitem(sys.modules, place, SimpleNamespace(MCoreMetadata=older_class))
    path = torch_dist(tmp_path / "dist", DENSE, common="common.pt")
    older = older_class()
    older.__dict__ |= vars(pickle.loads((path / ".metadata").read_bytes())) | {"mcore_data": {}}
    (path / ".metadata").write_bytes(pickle.dumps(older))
    assert b"MCoreMetadata" in (path / ".metadata").read_bytes()
    assert_same(found(path), tensors(DENSE))


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"vocab_size": None}, "the arguments tell no vocabulary without padding, so all 12 rows count"),
        ({"vocab_size": 11, "tokenizer_type": "NullTokenizer"}, "--config with vocab_size 12 keeps it"),
        ({"vocab_size": 11, "tokenizer_type": "HuggingFaceTokenizer"}, None),
        ({"vocab_size": 12, "tokenizer_type": "NullTokenizer"}, None),
    ],
)
def test_what_is_not_sure_of_the_vocabulary_is_said(tmp_path: Path, told: dict[str, object], said: str | None) -> None:
    opened = open_checkpoint(mp_rank(tmp_path / "ranks", DENSE, change=lambda name, value: vars(value["args"]).update(told)))
    assert opened.tensors["lm_head.weight"].shape == (told["vocab_size"] or 12, 8)
    assert said in opened.notes[0] if said else list(opened.notes) == []


def test_arguments_of_no_family_are_refused_by_what_differs(tmp_path: Path) -> None:
    path = mp_rank(tmp_path / "ranks", DENSE, change=lambda name, value: setattr(value["args"], "add_bias_linear", True))
    with pytest.raises(RecordError, match=r"arguments are of no family: .*add_bias_linear is True"):
        open_checkpoint(path)


@pytest.mark.parametrize("kind", list(DTYPES))
@pytest.mark.parametrize("sizes", [DENSE, EXPERTS], ids=["dense", "experts"])
def test_torch_reads_what_is_written_as_weights_alone(tmp_path: Path, sizes: Sizes, kind: str) -> None:
    content = tensors(sizes, kind, 5)
    convert_weights(huggingface(tmp_path / "hf", sizes, content), tmp_path / "out", "megatron", ConversionOptions(layers="local"))
    assert (tmp_path / "out" / "latest_checkpointed_iteration.txt").read_text() == "release"
    for mapped in (False, True):
        state = torch.load(tmp_path / "out" / "release" / RANK_0, weights_only=True, mmap=mapped)
        assert (state["checkpoint_version"], state["iteration"]) == (3.0, 0)
        signed = torch.from_numpy(np.zeros(1, SIGNED[kind])).dtype
        read = {name: (kind, tensor.view(signed).numpy().view(UNSIGNED[kind])) for name, tensor in state["model"].items()}
        assert all(tensor.dtype == DTYPES[kind] for tensor in state["model"].values())
        assert_same(read, natives(sizes, content))


def test_parameters_that_are_views_of_one_buffer_are_read_one_by_one(tmp_path: Path) -> None:
    def change(name: str, value: dict[str, Any]) -> None:
        named = {key: tensor for key, tensor in value["model"].items() if tensor is not None}
        buffer = torch.cat([tensor.reshape(-1) for tensor in named.values()])
        views = buffer.split([tensor.numel() for tensor in named.values()])
        value["model"] |= {key: torch.nn.Parameter(view.view(named[key].shape)) for key, view in zip(named, views, strict=True)}

    assert_same(found(mp_rank(tmp_path / "ranks", DENSE, change=change)), tensors(DENSE))


@pytest.mark.parametrize("form", ["torch_dist", "mp_rank of two"])
def test_no_more_than_a_few_of_the_largest_tensor_is_held(tmp_path: Path, form: str) -> None:
    sizes = Sizes(layers=12, heads=8, groups=2, head_dim=32, hidden=256, ffn=512, vocabulary=1024)
    source = torch_dist(tmp_path / "in", sizes) if form == "torch_dist" else mp_rank(tmp_path / "in", sizes, tensor=2)
    assert peak_of_converting(source, tmp_path / "out", "huggingface") < 3.5 * sizes.vocabulary * sizes.hidden * 4


def test_a_record_and_the_checkpoint_that_it_became_are_one(tmp_path: Path) -> None:
    content = tensors(DENSE)
    convert_weights(Path(f"{record(tmp_path / 'run', DENSE, content)}@2"), tmp_path / "out", "megatron")
    convert_weights(tmp_path / "out", tmp_path / "hf", "huggingface")
    assert_same(read_file(tmp_path / "hf" / "model.safetensors"), content)
