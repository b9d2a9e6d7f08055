"""Files of strangers, and files that are not whole: one line that names the thing, and nothing of them is ever run."""

import builtins
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from align_hooks.checkpoints.convert import ConversionOptions, convert_weights
from align_hooks.checkpoints.forms import open_checkpoint
from align_hooks.checkpoints.huggingface import write_huggingface
from align_hooks.checkpoints.pickles import read_pickle
from align_hooks.checkpoints.torch_dist import _refuse_gaps
from align_hooks.errors import AlignHooksError, RecordError
from checkpoints.models import DENSE, Calls, Sizes, config, huggingface, read_file, tensors, write_file
from checkpoints.of_megatron import RANK_0, mp_rank, torch_dist

MEGATRON = Sizes(layers=2, heads=4, groups=2, head_dim=4, hidden=8, ffn=6, vocabulary=12)


def read_all(path: Path, config: Path | None = None) -> None:
    for tensor in open_checkpoint(path, config).tensors.values():
        tensor.read()


def refused(path: Path, config: Path | None = None) -> str:
    """What is said of a source, in one line, with exit code 3."""
    with pytest.raises(RecordError) as caught:
        read_all(path, config)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value) or str(path.parent) in str(caught.value)
    return str(caught.value)


def weapons(mark: Path) -> dict[str, tuple[object, str]]:
    """Pickles that would make a file, each with the name that a refusal must have."""
    code = f"open({str(mark)!r}, 'w').close()"
    return {
        "os.system": (Calls(os.system, f"touch {mark}"), "posix.system"),
        "eval": (Calls(builtins.eval, code), "builtins.eval"),
        "exec": (Calls(builtins.exec, code), "builtins.exec"),
        "getattr": (Calls(getattr, Calls(__import__, "os"), "system"), "builtins.getattr"),
        "nested": ({"a": [({"b": Calls(tuple, [Calls(os.system, f"touch {mark}")])},)]}, "posix.system"),
        "in the arguments of an allowed class": (Calls(torch.Size, Calls(os.system, f"touch {mark}")), "posix.system"),
        "open": (Calls(open, str(mark), "w"), "io.open"),
    }


WEAPONS = list(weapons(Path("x")))


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("weapon", WEAPONS)
def test_no_pickle_is_run(tmp_path: Path, weapon: str, protocol: int) -> None:
    value, named = weapons(tmp_path / "mark")[weapon]
    with pytest.raises(RecordError) as caught:
        read_pickle(pickle.dumps(value, protocol), ("torch.Size", "megatron.*"), "a file")
    words = str(caught.value)
    assert named in words or "builtins.tuple" in words or "__builtin__" in words or "opcode" in words
    assert not (tmp_path / "mark").exists()
    pickle.loads(pickle.dumps(Calls(os.system, f"touch {tmp_path / 'mark'}")))  # the weapon is sharp
    assert (tmp_path / "mark").exists()


def metadata_of(path: Path, change: Callable[[Any], object]) -> Path:
    metadata = pickle.loads((path / ".metadata").read_bytes())
    change(metadata)
    (path / ".metadata").write_bytes(pickle.dumps(metadata))
    return path


@pytest.mark.parametrize("where", [".metadata", "mp_rank", "common.pt", "a chunk"])
@pytest.mark.parametrize("weapon", ["os.system", "eval", "getattr"])
def test_nothing_in_a_checkpoint_is_run(tmp_path: Path, where: str, weapon: str) -> None:
    value, named = weapons(tmp_path / "mark")[weapon]

    def in_its_first_chunk(metadata: Any) -> None:
        place = next(iter(metadata.storage_data.values()))
        with (path / place.relative_path).open("ab") as file:
            place.offset = file.tell()
            torch.save(value, file)
            place.length = file.tell() - place.offset

    if where == "mp_rank":
        path = mp_rank(tmp_path / "in", MEGATRON, change=lambda name, state: setattr(state["args"], "hostile", value))
    else:
        path = torch_dist(tmp_path / "in", MEGATRON, common="common.pt")
    if where == "common.pt":
        torch.save({"args": value}, path / "common.pt")
    elif where == ".metadata":
        metadata_of(path, lambda metadata: setattr(metadata, "planner_data", value))
    elif where == "a chunk":
        metadata_of(path, in_its_first_chunk)
    assert named in refused(path)
    assert not (tmp_path / "mark").exists()


HAND_MADE = {
    "a dotted name": (b"\x80\x04\x8c\x05torch\x8c\x0cSize.mro.pop\x93.", "torch.Size.mro.pop"),
    "a dotted name of a package that is allowed": (b"\x80\x04\x8c\x0dmegatron.core\x8c\x07os.path\x93.", "megatron.core.os.path"),
    "a package that begins alike": (b"\x80\x04\x8c\x09megatron2\x8c\x01a\x93.", "megatron2.a"),
    "an instance": (b"(ios\nsystem\n.", "opcode INST"),
    "an extension": (b"\x80\x02\x82\x01.", "opcode EXT1"),
    "new with keywords": (b"\x80\x04\x8c\x05torch\x8c\x04Size\x93)}\x92.", "opcode NEWOBJ_EX"),
    "a call of a value": (b"\x80\x02K\x01)R.", "calls what is no class"),
    "a memo of the far end": (b"\x80\x02r\xff\xff\xff\xff.", "no whole pickle"),
    "a text longer than the file": (b"\x80\x02X\xff\xff\xff\x7fabc.", "no whole pickle"),
    "bytes longer than any": (b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7fabc.", "no whole pickle"),
    "nothing": (b"", "no whole pickle"),
    "no end": (b"\x80\x02K\x01", "no whole pickle"),
    "no value": (b"\x80\x02.", "no whole pickle"),
    "no mark": (b"\x80\x02K\x01t.", "no whole pickle"),
    "keys that cannot be": (b"\x80\x02}}K\x01s.", "no whole pickle"),
    "a list that holds itself, added to a set": (b"\x80\x04\x8f(]q\x00h\x00a\x90.", "no whole pickle"),
    "not a pickle": (b"PK\x03\x04 something else", "no whole pickle"),
}


@pytest.mark.parametrize(("content", "said"), HAND_MADE.values(), ids=HAND_MADE)
def test_an_odd_pickle_is_refused(content: bytes, said: str) -> None:
    with pytest.raises(RecordError, match="a file") as caught:
        read_pickle(content, ("torch.Size", "megatron.*"), "a file")
    assert said in str(caught.value)


@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_checkpoint_is_refused_or_read_and_never_anything_else(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    config, ckpt = huggingface(tmp_path / "hf", MEGATRON), tmp_path / "a.ckpt"
    convert_weights(config, ckpt, "mindspore-ckpt")
    dist, ranks = torch_dist(tmp_path / "dist", MEGATRON), mp_rank(tmp_path / "ranks", MEGATRON)
    for source, path in ((dist, dist / ".metadata"), (ranks, ranks / RANK_0), (ckpt, ckpt)):
        whole = path.read_bytes()
        for _ in range(40):
            damaged = bytearray(whole)
            for at in random.integers(0, min(len(whole), 20000), 3):
                damaged[at] = random.integers(256)
            path.write_bytes(damaged[: random.integers(1, len(whole))] if random.integers(3) == 0 else damaged)
            with suppress(AlignHooksError):
                read_all(source, config if source is ckpt else None)
        path.write_bytes(whole)


def of(metadata: Any, end: str) -> Any:
    return next(value for name, value in metadata.state_dict_metadata.items() if name.endswith(end))


def place(metadata: Any, end: str) -> Any:
    return next(value for index, value in metadata.storage_data.items() if index.fqn.endswith(end))


OUTPUT, NORM, QKV = "output_layer.weight", "final_layernorm.weight", "linear_qkv.weight"
BENT: dict[str, tuple[Callable[[Any], object], str]] = {
    "a chunk is missing": (lambda m: of(m, QKV).chunks.pop(), "overlap or are not all there"),
    "two chunks overlap": (lambda m: setattr(of(m, OUTPUT).chunks[1], "offsets", torch.Size((0, 0))), "overlap or are not all there"),
    "a chunk is outside": (lambda m: setattr(of(m, OUTPUT).chunks[1], "offsets", torch.Size((9, 0))), "is outside it"),
    "a chunk has no place": (lambda m: m.storage_data.clear(), "does not say where the chunk"),
    "a path leads out": (lambda m: setattr(place(m, OUTPUT), "relative_path", "../secret"), "../secret"),
    "an absolute path": (lambda m: setattr(place(m, OUTPUT), "relative_path", "/etc/passwd"), "/etc/passwd"),
    "a file is missing": (lambda m: setattr(place(m, OUTPUT), "relative_path", "__9_0.distcp"), "__9_0.distcp is missing"),
    "a chunk ends after its file": (lambda m: setattr(place(m, OUTPUT), "offset", 1 << 40), "before the chunk"),
    "a chunk is another's": (lambda m: setattr(place(m, OUTPUT), "offset", 0), "lie on the same bytes"),
    "a negative offset": (lambda m: setattr(place(m, OUTPUT), "offset", -1), "contradicts itself"),
    "a huge shape": (lambda m: setattr(of(m, QKV), "size", torch.Size((1 << 40, 32, 8))), "linear_qkv.weight"),
    "another size": (lambda m: setattr(of(m, NORM), "size", torch.Size((9,))), "overlap or are not all there"),
    "an unknown name": (lambda m: m.state_dict_metadata.update({"decoder.odd": of(m, NORM)}), "decoder.odd"),
    "a parameter is missing": (lambda m: m.state_dict_metadata.pop(f"decoder.{NORM}"), "lacks model.norm.weight"),
    "another type": (lambda m: setattr(of(m, NORM).properties, "dtype", torch.bfloat16), "is not what .metadata says"),
    "compressed": (lambda m: setattr(place(m, OUTPUT), "transform_descriptors", ["zstd"]), "is compressed"),
}


@pytest.mark.parametrize(("change", "said"), BENT.values(), ids=BENT)
def test_metadata_that_is_bent_is_refused(tmp_path: Path, change: Callable[[Any], object], said: str) -> None:
    assert said in refused(metadata_of(torch_dist(tmp_path / "in", MEGATRON, common="common.pt"), change))


def test_boxes_of_a_grid_that_overlap_are_refused_though_their_sizes_add_up(tmp_path: Path) -> None:
    corners = [(0, 0), (0, 2), (3, 0), (3, 2)]
    _refuse_gaps("a", (6, 4), [(corner, (3, 2)) for corner in corners], tmp_path)
    with pytest.raises(RecordError, match="overlap or are not all there"):
        _refuse_gaps("a", (6, 4), [(corner, (3, 2)) for corner in (*corners[1:], (3, 2))], tmp_path)


def test_another_backend_is_refused_by_name(tmp_path: Path) -> None:
    path = torch_dist(tmp_path / "in", MEGATRON)
    (path / "metadata.json").write_text('{"sharded_backend": "zarr"}')
    assert "was saved as zarr; save it with --ckpt-format torch_dist" in refused(path)


def test_without_arguments_a_configuration_is_asked_for_and_serves(tmp_path: Path) -> None:
    path = torch_dist(tmp_path / "in", MEGATRON, common="")
    assert "--config" in refused(path)
    assert len(open_checkpoint(path, huggingface(tmp_path / "hf", MEGATRON)).tensors) == 21


@pytest.mark.parametrize("odd", [torch.zeros(3), torch.float32, {"a": torch.Size((3,)), "b": torch.dtype}], ids=str)
def test_a_configuration_of_ours_that_is_no_plain_data_is_refused(tmp_path: Path, odd: object) -> None:
    convert_weights(huggingface(tmp_path / "hf", DENSE), tmp_path / "mg", "megatron")
    file = tmp_path / "mg" / "release" / RANK_0
    state = torch.load(file, weights_only=True)
    state["align_hooks"]["config"]["odd"] = odd
    torch.save(state, file)
    assert "model_optim_rng.pt" in refused(tmp_path / "mg" / "release")


def test_a_rank_that_is_missing_is_refused(tmp_path: Path) -> None:
    path = mp_rank(tmp_path / "in", MEGATRON, tensor=2, pipeline=2)
    (path / "mp_rank_01_001" / "model_optim_rng.pt").unlink()
    assert "has the files of 3 ranks, its model has 2 x 2 x 1" in refused(path)


LAYER = "decoder.layers.0"
RANKS: dict[str, tuple[str, torch.Tensor | None, str]] = {
    "an unknown name": ("decoder.odd", torch.zeros(3), "'decoder.odd' has no canonical name"),
    "a missing parameter": (f"decoder.{NORM}", None, "lacks model.norm.weight"),
    "another shape": (f"decoder.{NORM}", torch.zeros(9), "model.norm.weight is [9]"),
    "a shape of another layout": (f"{LAYER}.mlp.linear_fc1.weight", torch.zeros(10, 8), "does not have the layout"),
    "the same norm twice": (f"{LAYER}.self_attention.linear_qkv.layer_norm_weight", torch.zeros(8), "overlap or are not all there"),
    "a layer too many": ("decoder.layers.2.input_layernorm.weight", torch.zeros(8), "model.layers.2"),
    "numbers in another order": (f"{LAYER}.mlp.linear_fc2.weight", torch.zeros(6, 8).T, "do not lie one after the other"),
    "whole numbers": (f"decoder.{NORM}", torch.zeros(8, dtype=torch.int32), "is IntStorage"),
}


@pytest.mark.parametrize(("name", "tensor", "said"), RANKS.values(), ids=RANKS)
def test_a_rank_that_is_bent_is_refused(tmp_path: Path, name: str, tensor: torch.Tensor | None, said: str) -> None:
    def change(rank: str, value: dict[str, Any]) -> None:
        value["model"].pop(name) if tensor is None else value["model"].update({name: tensor})

    assert said in refused(mp_rank(tmp_path / "in", MEGATRON, change=change))


def test_archives_that_are_bent_are_refused(tmp_path: Path) -> None:
    path = mp_rank(tmp_path / "in", MEGATRON)
    file = path / RANK_0
    whole = file.read_bytes()
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}

    def refused_with(change: Callable[[str, bytes], bytes], compress: int = zipfile.ZIP_STORED) -> str:
        with zipfile.ZipFile(file, "w", compress) as archive:
            for name, content in members.items():
                archive.writestr(name, change(name, content))
        return refused(path)

    assert "is compressed or locked" in refused_with(lambda name, content: content, zipfile.ZIP_DEFLATED)
    assert "does not fit in the" in refused_with(lambda name, content: content[:-4] if "/data/" in name else content)
    further = refused_with(lambda name, content: content.replace(b"K\x00K\x08\x85", b"K\x01K\x08\x85"))  # a norm, one number further on
    assert "a tensor of shape [8] does not fit in the 32 bytes" in further
    assert "big-endian" in refused_with(lambda name, content: b"big" if name.endswith("byteorder") else content)
    for size in (0, 10, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:size])
        assert "no whole archive of torch.save" in refused(path)
    with zipfile.ZipFile(file, "w") as archive:
        for name in ("a/data.pkl", "b/data.pkl"):
            archive.writestr(name, pickle.dumps({}))
    assert "holds data.pkl twice" in refused(path)
    torch.save({"args": None}, file, _use_new_zipfile_serialization=False)
    assert "no whole archive of torch.save" in refused(path)


def test_a_size_beyond_the_file_takes_no_memory(tmp_path: Path) -> None:
    """The central directory of a zip file may promise anything."""
    path = mp_rank(tmp_path / "in", MEGATRON)
    file = path / RANK_0
    content = bytearray(file.read_bytes())
    at = content.find(b"PK\1\2")
    content[at + 20 : at + 28] = struct.pack("<2I", 0x7FFFFFFF, 0x7FFFFFFF)
    file.write_bytes(content)
    assert "is not within it" in refused(path)


def indexed(path: Path) -> Path:
    source = huggingface(path.with_name("one"), DENSE)
    opened = open_checkpoint(source)
    write_huggingface(path, opened.model, opened.tensors, largest=1500)
    return path


INDEX: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a path that leads out": (lambda homes: homes.update({"lm_head.weight": "../one/model.safetensors"}), "no file of its own directory"),
    "an absolute path": (lambda homes: homes.update({"lm_head.weight": "/etc/passwd"}), "no file of its own directory"),
    "the directory itself": (lambda homes: homes.update({"lm_head.weight": "."}), "no file of its own directory"),
    "a file that is missing": (lambda homes: homes.update({"lm_head.weight": "model-9.safetensors"}), "model-9.safetensors is not a whole"),
    "a tensor that its file lacks": (lambda homes: homes.update({"a.weight": homes["lm_head.weight"]}), "lacks a.weight"),
    "a tensor that is not listed": (lambda homes: homes.pop("model.norm.weight"), "lacks model.norm.weight"),
    "what is no name": (lambda homes: homes.update({"lm_head.weight": 7}), "has no weight_map"),
}


@pytest.mark.parametrize(("change", "said"), INDEX.values(), ids=INDEX)
def test_an_index_that_is_bent_is_refused(tmp_path: Path, change: Callable[[dict[str, Any]], object], said: str) -> None:
    index = indexed(tmp_path / "many") / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    change(content["weight_map"])
    index.write_text(json.dumps(content))
    assert said in refused(tmp_path / "many")


def test_a_tensor_in_two_files_is_refused(tmp_path: Path) -> None:
    path = indexed(tmp_path / "many")
    first, second = sorted(path.glob("*.safetensors"))[:2]
    name = next(iter(read_file(first)))
    write_file(second, read_file(second) | {name: read_file(first)[name]})
    assert f"{name} is there twice" in refused(path)


HUGGING: dict[str, tuple[dict[str, object], str]] = {
    "another family": ({"model_type": "gpt2"}, "model_type is 'gpt2', which has no family here (there are llama, "),
    "no family": ({"model_type": None}, "model_type is None"),
    "too many layers": ({"num_hidden_layers": 3}, "lacks model.layers.2"),
    "too few layers": ({"num_hidden_layers": 1}, "model.layers.1.self_attn.q_proj.weight is no tensor of a Llama of 1 layers"),
    "another vocabulary": ({"vocab_size": 12}, "model.embed_tokens.weight is [11, 8], a Llama of 2 layers has [12, 8]"),
    "a size that is a text": ({"hidden_size": "8"}, "hidden_size is 8, which is no size"),
    "a negative size": ({"hidden_size": -8}, "hidden_size is -8, which is no size"),
    "a size that is not said": ({"hidden_size": None}, "does not tell hidden_size"),
    "more layers than a list can hold": ({"num_hidden_layers": 1 << 39}, "more than any model has"),
}


@pytest.mark.parametrize(("change", "said"), HUGGING.values(), ids=HUGGING)
def test_a_configuration_that_does_not_fit_is_refused(tmp_path: Path, change: dict[str, object], said: str) -> None:
    path = huggingface(tmp_path / "hf", DENSE)
    (path / "config.json").write_text(json.dumps(config(DENSE) | change))
    assert said in refused(path)


def test_other_tensors_are_refused_by_name(tmp_path: Path) -> None:
    content = tensors(DENSE)
    odd = {"model.layers.0.self_attn.q_proj.bias": ("F32", np.zeros(16, "<u4"))}
    assert "q_proj.bias is no tensor of a Llama" in refused(huggingface(tmp_path / "more", DENSE, content | odd))
    content.pop("model.layers.1.mlp.up_proj.weight")
    assert "lacks model.layers.1.mlp.up_proj.weight" in refused(huggingface(tmp_path / "less", DENSE, content))
    path = huggingface(tmp_path / "cut", DENSE)
    file = path / "model.safetensors"
    for size in (0, 7, 100, file.stat().st_size - 1):
        file.write_bytes(file.read_bytes()[:size])
        assert "is not a whole safetensors file" in refused(path)


def test_a_type_that_no_weight_has_is_refused_by_name(tmp_path: Path) -> None:
    path = huggingface(tmp_path / "hf", DENSE, tensors(DENSE) | {"model.norm.weight": ("I32", np.zeros(8, "<u4"))})
    assert "model.norm.weight is I32; only weights in F32, F64, F16, BF16 can be converted" in refused(path)


def test_several_ranks_of_mindformers_are_refused(tmp_path: Path) -> None:
    source = huggingface(tmp_path / "hf", DENSE)
    for rank in range(2):
        convert_weights(source, tmp_path / "many" / f"rank_{rank}" / "a.ckpt", "mindspore-ckpt")
    assert "holds 2 ranks, which a strategy cuts" in refused(tmp_path / "many", source)
    (tmp_path / "many" / "rank_1" / "a.ckpt").rename(tmp_path / "many" / "rank_0" / "b.ckpt")
    (tmp_path / "many" / "rank_1").rmdir()
    assert "is there twice, in a.ckpt and in b.ckpt" in refused(tmp_path / "many", source)


def test_the_same_weights_fused_and_apart_are_refused(tmp_path: Path) -> None:
    source = huggingface(tmp_path / "hf", DENSE)
    convert_weights(source, tmp_path / "apart", "mindspore")
    convert_weights(source, tmp_path / "fused", "mindspore", ConversionOptions(qkv_concat=True))
    fused = read_file(tmp_path / "fused" / "model.safetensors")
    name = "model.layers.0.attention.w_qkv.weight"
    write_file(tmp_path / "apart" / "more.safetensors", {name: fused[name]})
    assert "model.layers.0.self_attn.q_proj.weight is there twice" in refused(tmp_path / "apart", source)


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


def value(name: bytes, dims: bytes, kind: bytes, content: bytes) -> bytes:
    return field(1, field(1, name) + field(2, dims + field(2, kind) + field(3, content)))


CKPT = {
    "a length beyond the file": (b"\x0a\xff\xff\xff\xff\x0f", "ends at byte"),
    "a field that is no value": (field(2, b"abc"), "holds what is no value"),
    "a number without end": (b"\xff" * 20, "holds no number"),
    "a value without a tensor": (field(1, field(1, b"a")), "a value is no tensor"),
    "too few bytes": (value(b"lm_head.weight", b"\x08\x02", b"Float32", b"1234"), "of shape [2] and type Float32 has 4 bytes"),
    "a huge shape": (value(b"a", b"\x08" + b"\xff" * 8 + b"\x7f", b"Float32", b"1234"), "a is no tensor"),
    "a name that is no text": (value(b"\xff\xfe", b"\x08\x01", b"Float32", b"1234"), "no whole MindSpore checkpoint"),
    "a name of another model": (value(b"decoder.odd", b"\x08\x01", b"Float32", b"1234"), "'decoder.odd' has no canonical name"),
    "the same name twice": (b"".join(value(name, b"\x08\x01", b"Float32", b"1234") for name in (b"a", b"b", b"a")), "a is there twice"),
}


@pytest.mark.parametrize(("content", "said"), CKPT.values(), ids=CKPT)
def test_a_ckpt_that_is_bent_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "a.ckpt").write_bytes(content)
    assert said in refused(tmp_path / "a.ckpt", huggingface(tmp_path / "hf", DENSE))


def test_a_ckpt_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    source = huggingface(tmp_path / "hf", DENSE)
    convert_weights(source, tmp_path / "a.ckpt", "mindspore-ckpt")
    whole = (tmp_path / "a.ckpt").read_bytes()
    for size in range(1, len(whole), len(whole) // 50):
        (tmp_path / "a.ckpt").write_bytes(whole[:size])
        refused(tmp_path / "a.ckpt", source)


def test_a_link_out_of_a_latest_iteration_is_no_path(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "latest_checkpointed_iteration.txt").write_text("../../etc")
    assert "names no iteration" in refused(tmp_path / "in")
