"""Converted weights on the real frameworks: what these save is read to the bit, and they start from what is written."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

import align_hooks
from align_hooks.checkpoints.convert import ConversionOptions, convert_weights
from align_hooks.checkpoints.forms import open_checkpoint
from align_hooks.checkpoints.mindspore import ckpt_tensors
from checkpoints.models import DENSE, EXPERTS, Sizes, Tensors, assert_same, huggingface, read_file, tensors
from real import frameworks

SAVED = ("--save", "checkpoint", "--save-interval", "2", "--train-iters", "2")


def trained(*flags: str, ranks: int = 2) -> Path:
    """Two steps of Megatron: its own checkpoint, beside a record of the same weights."""
    given = {"RUN": "run", "WEIGHTS": "2", "BATCHES": "all"}
    return frameworks.kept(frameworks.megatron, ranks=ranks if ranks > 1 else None, flags=(*SAVED, *flags), **given).where


@pytest.fixture(scope="module")
def saved(real_corpus: Path) -> Path:
    return trained("--ckpt-format", "torch_dist", ranks=1)


def same_arrays(found: Mapping[str, np.ndarray], recorded: Mapping[str, np.ndarray]) -> None:
    assert found.keys() == recorded.keys()
    for name, array in recorded.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name, strict=True)


def assert_recorded(where: Path, source: Path) -> None:
    recorded, opened = align_hooks.open_run(where / "run"), open_checkpoint(source)
    same_arrays({name: tensor.read() for name, tensor in opened.tensors.items()}, recorded.weights(2))
    assert dict(opened.model.config) == dict(recorded.facts.model)


def test_a_distributed_checkpoint_holds_what_was_recorded(saved: Path) -> None:
    assert_recorded(saved, saved / "checkpoint")


LAYOUTS = {
    "tensor parallel": ("--tensor-model-parallel-size", "2"),
    "pipeline parallel": ("--pipeline-model-parallel-size", "2"),
    "expert parallel": ("--num-experts", "4", "--moe-router-topk", "2", "--expert-model-parallel-size", "2"),
}


@pytest.mark.slow
@pytest.mark.parametrize("form", ["torch", "torch_dist"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_two_ranks_hold_what_was_recorded(real_corpus: Path, form: str, layout: str) -> None:
    assert_recorded(where := trained("--ckpt-format", form, *LAYOUTS[layout]), where / "checkpoint")


def loading(checkpoint: Path) -> tuple[str, ...]:
    """The flags by which Megatron starts from weights alone."""
    return ("--ckpt-format", "torch", "--load", str(checkpoint), "--finetune", "--no-load-optim", "--no-load-rng")


def for_megatron(where: Path, checkpoint: Path) -> None:
    convert_weights(checkpoint, where, "megatron", ConversionOptions(layers="local"))


@pytest.mark.slow
def test_megatron_starts_from_what_is_written(saved: Path) -> None:
    converted = frameworks.derived(for_megatron, saved / "checkpoint")
    given = {"change": {"--train-iters": "1"}, "flags": loading(converted), "RUN": "run", "WEIGHTS": "0"}
    run = frameworks.kept(frameworks.megatron, **given).run
    same_arrays(align_hooks.open_run(run).weights(0), align_hooks.open_run(saved / "run").weights(2))


@pytest.mark.slow
def test_megatron_itself_makes_a_distributed_checkpoint_of_it(saved: Path, tmp_path: Path) -> None:
    convert_weights(saved / "checkpoint", tmp_path / "converted", "megatron", ConversionOptions(layers="local"))
    into = ("--ckpt-convert-format", "torch_dist", "--ckpt-convert-save", str(tmp_path / "dist"), "--no-save-optim", "--no-save-rng")
    frameworks.megatron(tmp_path, flags=(*loading(tmp_path / "converted"), *into))
    assert_recorded(saved, tmp_path / "dist" / "torch_dist")


@pytest.mark.slow
@pytest.mark.parametrize("concat", [False, True], ids=["apart", "qkv_concat"])
def test_mindformers_starts_from_what_is_written(saved: Path, tmp_path: Path, concat: bool) -> None:
    convert_weights(saved / "checkpoint", tmp_path / "a.ckpt", "mindspore-ckpt", ConversionOptions(qkv_concat=concat))
    change = {"load_checkpoint": str(tmp_path / "a.ckpt"), "model.model_config.qkv_concat": concat, "lr_schedule.total_steps": 1}
    given = {"REPLAY_BATCHES": saved / "run", "WEIGHTS": "0", "RUN": tmp_path / "run"}
    frameworks.mindformers(tmp_path, change=change, **given).succeeded()
    same_arrays(align_hooks.open_run(tmp_path / "run").weights(0), align_hooks.open_run(saved / "run").weights(2))


def mindspore(what: str, folder: Path, file: Path) -> None:
    command = [sys.executable, str(frameworks.SCRIPTS / "mindspore_checkpoints.py"), what, str(folder), str(file)]
    frameworks.program(folder, command, {}, {"PYTHONPATH": os.pathsep.join(sys.path)}).succeeded()


@pytest.mark.parametrize("kind", [pytest.param("F32", marks=pytest.mark.slow), "BF16"])
def test_mindspore_and_we_read_each_others_files(tmp_path: Path, kind: str) -> None:
    finite = np.array(0xFF7F) if kind == "BF16" else np.array(0xFF7FFFFF)
    content = {name: (kind, numbers & finite.astype(numbers.dtype)) for name, (_, numbers) in tensors(DENSE, kind).items()}
    prefix = "bf16/" * (kind == "BF16")
    source = huggingface(tmp_path / "hf", DENSE, content)
    for to, name in (("mindspore", "ms"), ("mindspore-ckpt", "a.ckpt")):
        convert_weights(source, tmp_path / name, to)
    (tmp_path / "ms" / "model.safetensors").rename(tmp_path / "a.safetensors")
    mindspore("load", tmp_path, tmp_path / "loaded.npz")
    ours = read_file(tmp_path / "a.safetensors")
    for form in ("ckpt", "safetensors"):
        loaded = np.load(tmp_path / f"{form}.npz")
        assert_same({name.removeprefix(prefix): (kind, loaded[name]) for name in loaded.files}, ours)
        (tmp_path / f"a.{form}").unlink()
    np.savez(tmp_path / "given.npz", **{prefix + name: numbers for name, (_, numbers) in ours.items()})
    mindspore("save", tmp_path, tmp_path / "given.npz")
    assert_same(as_bits(tmp_path / "a.ckpt"), ours)
    for form in ("ckpt", "safetensors"):
        convert_weights(tmp_path / f"a.{form}", tmp_path / f"hf_{form}", "huggingface", config=source)
        assert_same(read_file(tmp_path / f"hf_{form}" / "model.safetensors"), content)


def as_bits(path: Path) -> Tensors:
    read = {name: (tensor.kind, tensor.read()) for name, tensor in ckpt_tensors(path).items()}
    return {name: (kind, array.view({4: "<u4", 2: "<u2"}[array.itemsize])) for name, (kind, array) in read.items()}


@pytest.mark.parametrize("sizes", [DENSE, EXPERTS, Sizes(tied=True)], ids=["Llama", "Mixtral", "tied Llama"])
def test_transformers_loads_what_was_through_megatron(tmp_path: Path, sizes: Sizes) -> None:
    content = {name: (kind, numbers & np.uint32(0xFF7FFFFF)) for name, (kind, numbers) in tensors(sizes).items()}
    convert_weights(huggingface(tmp_path / "hf", sizes, content), tmp_path / "mg", "megatron")
    convert_weights(tmp_path / "mg", tmp_path / "back", "huggingface")
    model, loading = AutoModelForCausalLM.from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not any(loading.values())
    state = {name: ("F32", tensor.view(torch.int32).numpy().view("<u4")) for name, tensor in model.state_dict().items()}
    if sizes.tied:
        state.pop("lm_head.weight")
    assert_same(state, content)
