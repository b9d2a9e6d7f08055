"""From every form to every other and back: the same names, types, shapes and bits."""

import itertools
import json
import os
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from align_hooks.checkpoints.checkpoint import LazyTensor
from align_hooks.checkpoints.convert import ConversionOptions, convert_weights
from align_hooks.checkpoints.forms import open_checkpoint
from align_hooks.checkpoints.huggingface import write_huggingface
from align_hooks.checkpoints.mindspore import ckpt_tensors, write_ckpt
from align_hooks.checkpoints.torch_zip import TorchArchive, TorchTensor
from align_hooks.names.blocks import PADDING
from checkpoints.models import DENSE, EXPERTS, MODELS, Sizes, Tensors, assert_same, bits, config, huggingface, read_file, record, tensors
from checkpoints.models import write_file as write_safetensors
from checkpoints.of_megatron import RANK_0

FORMS: dict[str, tuple[str, ConversionOptions]] = {
    "huggingface": ("huggingface", ConversionOptions()),
    "megatron, Transformer Engine": ("megatron", ConversionOptions()),
    "megatron, local": ("megatron", ConversionOptions(layers="local")),
    "megatron, grouped experts": ("megatron", ConversionOptions(grouped_experts=True)),
    "mindspore": ("mindspore", ConversionOptions()),
    "mindspore, qkv_concat": ("mindspore", ConversionOptions(qkv_concat=True)),
    "mindspore-ckpt": ("mindspore-ckpt", ConversionOptions()),
}
ON_BOTH_SIDES = list(FORMS)
IN_MEGATRON = [form for form in FORMS if not form.startswith("mindspore")]


def converted(source: Path, form: str, where: Path, *, model: Path | None = None) -> Path:
    to, choices = FORMS[form]
    destination = where / ("out.ckpt" if to == "mindspore-ckpt" else "out")
    convert_weights(source, destination, to, choices, model)
    return destination


def assert_converts_into(content: Tensors, source: Path, where: Path, model: Path | None = None) -> None:
    """What is converted into Hugging Face's form has these tensors."""
    assert_same(read_file(converted(source, "huggingface", where, model=model) / "model.safetensors"), content)


@pytest.mark.parametrize("kind", ["F32", "BF16", "F16"])
@pytest.mark.parametrize(
    ("model", "form"), [*itertools.product(("Llama", "tied Llama"), ON_BOTH_SIDES), *itertools.product(("Mixtral",), IN_MEGATRON)]
)
def test_there_and_back_is_what_it_was(tmp_path: Path, model: str, form: str, kind: str) -> None:
    content = tensors(MODELS[model], kind)
    source = huggingface(tmp_path / "hf", MODELS[model], content)
    assert_converts_into(content, converted(source, form, tmp_path / "there"), tmp_path / "back", source)


@pytest.mark.parametrize(("first", "second"), list(itertools.permutations(ON_BOTH_SIDES[1:], 2)))
def test_from_every_form_to_every_other(tmp_path: Path, first: str, second: str) -> None:
    content = tensors(DENSE, "BF16", 1)
    source = huggingface(tmp_path / "hf", DENSE, content)
    one = converted(source, first, tmp_path / "1")
    two = converted(one, second, tmp_path / "2", model=source)
    assert_converts_into(content, two, tmp_path / "3", source)


@pytest.mark.parametrize(("sizes", "form"), [*((DENSE, form) for form in ON_BOTH_SIDES), *((EXPERTS, form) for form in IN_MEGATRON)])
def test_a_record_becomes_any_form(tmp_path: Path, sizes: Sizes, form: str) -> None:
    content = tensors(sizes, "F32", 2)
    there = converted(Path(f"{record(tmp_path / 'run', sizes, content)}@2"), form, tmp_path / "there")
    assert_converts_into(content, there, tmp_path / "back", huggingface(tmp_path / "hf", sizes))
    assert json.loads((tmp_path / "back" / "out" / "config.json").read_text())["num_hidden_layers"] == sizes.layers


def test_of_a_record_the_first_weights_are_meant_unless_others_are_named(tmp_path: Path) -> None:
    zeros = {name: (kind, np.zeros_like(numbers)) for name, (kind, numbers) in tensors(DENSE).items()}
    assert_converts_into(zeros, record(tmp_path / "run", DENSE, tensors(DENSE)), tmp_path / "out")


@pytest.mark.parametrize("form", ["megatron, local", "mindspore", "mindspore, qkv_concat", "mindspore-ckpt"])
def test_rows_of_a_padded_vocabulary_go_along(tmp_path: Path, form: str) -> None:
    content, random = tensors(DENSE), np.random.default_rng(5)
    padding = {name: bits(random, (5, DENSE.hidden)) for name in ("model.embed_tokens.weight", "lm_head.weight")}
    source = huggingface(tmp_path / "hf", DENSE)
    there = converted(Path(f"{record(tmp_path / 'run', DENSE, content, padding)}@2"), form, tmp_path / "there")
    found = open_checkpoint(there, source).tensors
    for name, rows in padding.items():
        np.testing.assert_array_equal(found[name + PADDING].read().view("<u4"), rows, strict=True)
        np.testing.assert_array_equal(found[name].read().view("<u4"), content[name][1], strict=True)
    done = convert_weights(there, tmp_path / "back", "huggingface", config=source)
    assert_same(read_file(tmp_path / "back" / "model.safetensors"), content)
    assert sorted(done.notes) == [f"{name}: 5 rows of padding left out" for name in sorted(padding)]


def test_a_vocabulary_is_padded_with_zeros_where_that_is_asked_for(tmp_path: Path) -> None:
    source = huggingface(tmp_path / "hf", DENSE)
    done = convert_weights(source, tmp_path / "mg", "megatron", ConversionOptions(rows=16))
    assert done.notes[:2] == [
        "model.embed_tokens.weight: filled up to 16 rows with zeros",
        "lm_head.weight: filled up to 16 rows with zeros",
    ]
    found = open_checkpoint(tmp_path / "mg").tensors
    assert found["lm_head.weight"].shape == (11, 8)
    assert not found["lm_head.weight" + PADDING].read().any()
    assert found["lm_head.weight" + PADDING].shape == (5, 8)


@st.composite
def sizes_of_models(draw: st.DrawFn) -> Sizes:
    groups, experts = draw(st.integers(1, 3)), draw(st.sampled_from((0, 0, 1, 3)))
    return Sizes(
        layers=draw(st.integers(1, 3)),
        groups=groups,
        heads=groups * draw(st.integers(1, 3)),
        head_dim=2 * draw(st.integers(1, 2)),
        hidden=draw(st.integers(1, 5)),
        ffn=draw(st.integers(1, 5)),
        vocabulary=draw(st.integers(1, 7)),
        experts=experts,
        tied=draw(st.booleans()),
    )


@settings(max_examples=25)
@given(sizes=sizes_of_models(), kind=st.sampled_from(("F32", "BF16")), seed=st.integers(0, 99))
def test_whatever_the_sizes(tmp_path_factory: pytest.TempPathFactory, sizes: Sizes, kind: str, seed: int) -> None:
    where = tmp_path_factory.mktemp("sizes")
    content = tensors(sizes, kind, seed)
    path = source = huggingface(where / "hf", sizes, content)
    for number, form in enumerate(IN_MEGATRON[1:] if sizes.experts else ON_BOTH_SIDES[1:]):
        path = converted(path, form, where / str(number), model=source)
    assert_converts_into(content, path, where / "back", source)


def outputs(content: Tensors) -> dict[str, LazyTensor]:
    return {name: LazyTensor(numbers.shape, kind, lambda numbers=numbers: numbers) for name, (kind, numbers) in content.items()}  # type: ignore[misc]


@pytest.mark.parametrize("largest", [1, 300, 1500])
def test_files_are_cut_at_a_size_and_read_through_their_index(tmp_path: Path, largest: int) -> None:
    source = huggingface(tmp_path / "hf", DENSE, content := tensors(DENSE))
    write_huggingface(tmp_path / "many", open_checkpoint(source).model, outputs(content), largest=largest)
    files = sorted((tmp_path / "many").glob("*.safetensors"))
    assert len(files) > 1
    for own in map(read_file, files):
        assert len(own) == 1 or sum(numbers.nbytes for _, numbers in own.values()) <= largest
    index = json.loads((tmp_path / "many" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(numbers.nbytes for _, numbers in content.values())
    assert_converts_into(content, tmp_path / "many", tmp_path / "one")


@pytest.mark.parametrize("slice_", [1, 5, 64, 1 << 20])
def test_a_large_tensor_is_several_values_of_a_ckpt(tmp_path: Path, slice_: int) -> None:
    content = tensors(DENSE, "BF16")
    write_ckpt(tmp_path / "a.ckpt", outputs(content), slice_=slice_)
    found = {name: (tensor.kind, tensor.read()) for name, tensor in ckpt_tensors(tmp_path / "a.ckpt").items()}
    assert_same(found, content)


def test_mindformers_files_lie_in_the_folder_of_their_rank_and_may_be_several(tmp_path: Path) -> None:
    source = huggingface(tmp_path / "hf", DENSE, content := tensors(DENSE))
    whole = read_file(converted(source, "mindspore", tmp_path / "there") / "model.safetensors")
    folder = tmp_path / "checkpoint" / "rank_0"
    folder.mkdir(parents=True)
    beside = {"adam_m.lm_head.weight": ("F32", np.zeros(2, "<u4")), "global_step": ("F32", np.zeros((), "<u4"))}
    for number, own in enumerate((dict([*whole.items()][::2]), dict([*whole.items()][1::2]) | beside)):
        write_safetensors(folder / f"llama-{number}.safetensors", own)
    assert_converts_into(content, tmp_path / "checkpoint", tmp_path / "back", source)


def test_config_goes_through_megatron_as_it_was(tmp_path: Path) -> None:
    source = huggingface(tmp_path / "hf", EXPERTS)
    back = converted(converted(source, "megatron, local", tmp_path / "there"), "huggingface", tmp_path / "back")
    assert json.loads((back / "config.json").read_text()) == config(EXPERTS) | {"torch_dtype": "float32"}


def test_a_tied_model_with_a_copy_of_its_embedding_is_converted_without_it(tmp_path: Path) -> None:
    content = tensors(MODELS["tied Llama"])
    copy = {"lm_head.weight": content["model.embed_tokens.weight"]}
    source = huggingface(tmp_path / "hf", MODELS["tied Llama"], content | copy)
    assert_converts_into(content, source, tmp_path / "out")


def test_a_parameter_that_is_taken_apart_is_read_once(tmp_path: Path) -> None:
    source = converted(huggingface(tmp_path / "hf", DENSE), "megatron, local", tmp_path / "there")
    with mock.patch.object(TorchTensor, "read", autospec=True, side_effect=TorchTensor.read) as read:
        converted(source, "mindspore", tmp_path / "apart")
    starts = [call.args[0].start for call in read.call_args_list]
    assert len(starts) == len(set(starts)) == 15


def saved_by_a_rank(path: Path) -> dict[str, TorchTensor]:
    return TorchArchive(path / "release" / RANK_0, ()).value["model"]


def test_names_are_those_of_the_layers_that_were_asked_for(tmp_path: Path) -> None:
    """A norm stands within a linear layer of Transformer Engine where there is one behind it: not before experts."""
    dense, experts = huggingface(tmp_path / "dense", DENSE), huggingface(tmp_path / "experts", EXPERTS)
    layer = "decoder.layers.1"
    within, apart = f"{layer}.self_attention.linear_qkv.layer_norm_weight", f"{layer}.input_layernorm.weight"
    before, above = f"{layer}.mlp.linear_fc1.layer_norm_weight", f"{layer}.pre_mlp_layernorm.weight"
    one_by_one, grouped = f"{layer}.mlp.experts.local_experts.2.linear_fc1.weight", f"{layer}.mlp.experts.linear_fc1.weight2"
    for source, form, there in (
        (dense, "Transformer Engine", {within, before}),
        (dense, "local", {apart, above}),
        (experts, "Transformer Engine", {within, above, one_by_one}),
        (experts, "grouped experts", {within, above, grouped}),
    ):
        names = saved_by_a_rank(converted(source, f"megatron, {form}", tmp_path / f"{source.name}, {form}"))
        assert names.keys() & {within, apart, before, above, one_by_one, grouped} == there


def test_a_ckpt_with_a_checksum_is_read(tmp_path: Path) -> None:
    write_ckpt(tmp_path / "a.ckpt", outputs(tensors(DENSE)))
    with (tmp_path / "a.ckpt").open("ab") as file:
        file.write(b"crc_num" + bytes(10))
    assert ckpt_tensors(tmp_path / "a.ckpt").keys() == tensors(DENSE).keys()


def test_what_a_killed_conversion_left_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / f".out.{os.getpid()}.tmp").mkdir()
    (tmp_path / f".out.{os.getpid()}.tmp" / "half").touch()
    convert_weights(huggingface(tmp_path / "hf", DENSE), tmp_path / "out", "huggingface")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hf", "out"]
    assert not (tmp_path / "out" / "half").exists()


def test_numbers_are_aligned(tmp_path: Path) -> None:
    source = huggingface(tmp_path / "hf", DENSE)
    with (converted(source, "huggingface", tmp_path / "1") / "model.safetensors").open("rb") as file:
        assert int.from_bytes(file.read(8), "little") % 8 == 0
    starts = [tensor.start for tensor in saved_by_a_rank(converted(source, "megatron, local", tmp_path / "2")).values()]
    assert [start for start in starts if start % 64] == []
