"""MindFormers' checkpoints of one rank: parameters in safetensors or in a ``.ckpt``.

Only a ``config.json`` beside them names the model. Files of several ranks are refused, for only MindSpore can undo the strategy that cut
them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace

from align_hooks.checkpoints.checkpoint import Checkpoint, FrameworkTensor, LazyTensor, joined, merged
from align_hooks.checkpoints.huggingface import open_safetensors, write_config, write_safetensors
from align_hooks.checkpoints.mindspore import ckpt_tensors
from align_hooks.checkpoints.model import NAME_THE_CONFIGURATION, ConfiguredModel, open_model
from align_hooks.errors import AlignHooksError, RecordError, RefusedRun, shown
from align_hooks.names.blocks import rows_and_columns
from align_hooks.names.table import NameTable
from align_hooks.record.format.files import is_folder_in, list_folder

NO_WEIGHT = re.compile(
    r"(adam_[mv]|exp_avg|exp_avg_sq|moment[12]|muon_m|accu_grads|fp32_master_params|main_param)\..*|[^.]+|"
    r".*\.(expert_load|fi_accu|tokens_per_expert|global_tokens_per_expert|ga_steps|max_logits_val)"
)
"""Names of other content of a checkpoint than weights: optimizer's state, numbers (without a dot), statistics of experts."""
SUFFIXES = (".safetensors", ".ckpt")
RANK = re.compile(r"rank_(\d+)")
LAYOUTS = {"use_contiguous_weight_layout_attention": False, "use_interleaved_weight_layout_mlp": True}
"""Options of a newer model on which only the order of rows depends, with their defaults; no file has them."""
NOTE = f"rows lie as of {', '.join(f'{name}: {value}' for name, value in LAYOUTS.items())}, the defaults; no other order is converted"


def ranks_of(path: Path) -> list[Path]:
    """Return the folders of ranks in a directory."""
    return [folder for folder in (list_folder(path) if path.is_dir() else ()) if RANK.fullmatch(folder.name) and is_folder_in(folder, path)]


def read_mindformers(path: Path, config: Path | None) -> Checkpoint:
    """Read a file, a directory of files, or the directory of ``rank_0``; raises RecordError for several ranks, or a file cut short."""
    folder = path
    if ranks := ranks_of(path):
        if len(ranks) > 1:
            way = "join them with MindFormers' own transform_checkpoint.py or mindspore.load_distributed_checkpoint and convert that"
            raise RecordError(f"{path} holds {len(ranks)} ranks, which a strategy cuts; {way}")
        (folder,) = ranks
    files = [folder] if folder.is_file() else [file for file in list_folder(folder) if file.suffix in SUFFIXES]
    if {file.suffix for file in files} > {".ckpt"}:
        raise RecordError(f"{folder} holds files of both .ckpt and .safetensors; name the one that you mean")
    if not files:
        raise RecordError(f"{path} holds no .ckpt and no .safetensors; name the directory that has them")
    opened = {file.name: ckpt_tensors(file) if file.suffix == ".ckpt" else open_safetensors(file) for file in files}
    weights = {name: tensor for name, tensor in merged(opened, path).items() if not NO_WEIGHT.fullmatch(name)}
    beside = path if path.is_dir() else path.parent
    if config is None and not (beside / "config.json").exists():
        raise AlignHooksError(f"{path} does not say which model it is; {NAME_THE_CONFIGURATION}")
    model = open_model(beside if config is None else config)
    form = "MindSpore .ckpt" if files[0].suffix == ".ckpt" else "MindFormers safetensors"
    refused: RefusedRun | None = None
    for table, notes in tables(model, path):  # the first class that has all parameters
        try:
            return Checkpoint(path, form, model, joined(list(_parameters(table, weights, model)), path), notes)
        except RefusedRun as error:
            refused = refused or error
    raise RecordError(f"{path}: {refused}")


def _parameters(table: NameTable, tensors: Mapping[str, LazyTensor], model: ConfiguredModel) -> Iterator[FrameworkTensor]:
    embedding = tensors.get(table.native(model.family.embedding))
    dims = model.dims(embedding.shape[0] if embedding is not None and embedding.shape else None)
    for native, tensor in tensors.items():
        fused = table.fused(native, rows_and_columns(native, tensor.shape), dims)
        if fused is not None and not (model.tied and fused.pieces[:1] == (model.family.output,)):
            yield FrameworkTensor(fused, tensor.kind, tensor.read, shown(native))


def tables(model: ConfiguredModel, path: Path) -> list[tuple[NameTable, list[str]]]:
    """Return the names of each of MindFormers' classes of a model with notes, the written ones first; raises RefusedRun without a class."""
    sides = model.family.mindformers
    if not sides:
        raise RefusedRun(f"{path}: {model.family.name} has no names in MindFormers here; convert it between the other forms")
    layout = SimpleNamespace(**LAYOUTS, mla_qkv_concat=False)
    variants = [(side.variant(layout), [NOTE]) for side in sides if side.variant is not None]
    pynative: list[tuple[NameTable, list[str]]] = [(side.table, []) for side in model.family.pynative]
    return [*((side.table, [] if side.legacy else [NOTE]) for side in sides), *variants, *pynative]


def write_mindformers(path: Path, model: ConfiguredModel, tensors: Mapping[str, LazyTensor]) -> None:
    """Write one safetensors file and a ``config.json`` into a new directory."""
    path.mkdir()
    write_safetensors(path / "model.safetensors", tensors, {"format": "ms"})
    write_config(path, model, tensors)
