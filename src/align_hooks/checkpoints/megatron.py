"""Megatron-LM's ``mp_rank_00/model_optim_rng.pt``: a file for each tensor-, pipeline- and expert-parallel rank, each with the arguments.

A file has the parameters of its rank, in as many parts (``model0``, ``model1``, …) as the rank has virtual pipeline stages. The first layer
of a stage is counted, not computed: stages may differ in length.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from msgspec import Struct

from align_hooks.checkpoints.checkpoint import Checkpoint, FrameworkTensor, LazyTensor, joined
from align_hooks.checkpoints.model import ConfiguredModel, model_of, of_arguments, open_model
from align_hooks.checkpoints.pickles import classes, plain
from align_hooks.checkpoints.torch_zip import TorchArchive, TorchTensor, arguments, write_archive
from align_hooks.errors import RecordError, RefusedRun, shown
from align_hooks.names.blocks import Cut, Dims
from align_hooks.names.fused import Fused
from align_hooks.record.format.files import is_folder_in, list_folder
from align_hooks.record.write import atomic

FILE, LATEST, RELEASE = "model_optim_rng.pt", "latest_checkpointed_iteration.txt", "release"
OURS = "align_hooks"
"""Key of ``config.json`` in a file that we wrote: Megatron-LM's arguments are a class, which torch reads only on trust."""
ALLOWED = classes("training")
LAYER = re.compile(r"\.layers\.(\d+)\.")
FOLDER = re.compile(r"mp_rank_(\d{2,5})(?:_(\d{3,5}))?(?:_(\d{3,5}))?")
AXES = ("tensor", "pipeline", "expert")


class _Rank(Struct, frozen=True):
    path: Path
    tensor: int
    pipeline: int
    expert: int
    stages: Sequence[Mapping[str, Any]]
    """The parameters of each virtual pipeline stage."""


def mp_ranks(path: Path) -> list[Path]:
    """Return the files of a checkpoint's ranks."""
    folders = [folder for folder in (list_folder(path) if path.is_dir() else ()) if folder.name.startswith("mp_rank_")]
    return [folder / FILE for folder in folders if is_folder_in(folder, path) and (folder / FILE).exists()]


def read_megatron(path: Path, config: Path | None) -> Checkpoint:
    """Read a checkpoint of ``mp_rank_*`` folders; raises RecordError for a missing rank, or a file cut short."""
    archives = [TorchArchive(file, ALLOWED) for file in mp_ranks(path)]
    if not all(isinstance(archive.value, dict) for archive in archives):
        raise RecordError(f"{path} holds no model; convert a checkpoint that Megatron-LM saved")
    args = arguments(archives[0].value.get("args")) or {}
    ranks = [_rank(archive, args) for archive in archives]
    counts = tuple(1 + max(getattr(rank, axis) for rank in ranks) for axis in AXES)
    _refuse_missing(ranks, counts, args, path)
    parameters = (parameter for rank in ranks for stage in rank.stages for parameter in stage.items())
    embeddings = (value for name, value in parameters if name.endswith("word_embeddings.weight"))
    shapes = [value.shape for value in embeddings if isinstance(value, TorchTensor) and value.shape]
    rows = shapes[0][0] * counts[0] if shapes else None
    model = _model(archives[0], args, rows, path, config)
    cut = [f"{count} {axis}-parallel ranks" for count, axis in zip(counts, AXES, strict=True) if count > 1]
    tensors = joined(_parameters(ranks, counts, model, rows), path)
    return Checkpoint(path, ", ".join(["Megatron-LM, mp_rank", *cut]), model, tensors, notes_of(args, model, config))


def notes_of(args: Mapping[str, Any], model: ConfiguredModel, config: Path | None) -> list[str]:
    """Return what a person should know of a model by its arguments."""
    if config is not None or not args:
        return []
    own, rows = args.get("vocab_size"), args.get("padded_vocab_size")
    if not own:
        count = f"all {model.sizes['vocabulary']} rows count"
        return [f"the arguments tell no vocabulary without padding, so {count}; --config tells how many do"]
    if args.get("tokenizer_type") == "NullTokenizer" and isinstance(rows, int) and own < rows:
        older = f"before 0.18 Megatron-LM had one more, the end of a document: --config with vocab_size {own + 1} keeps it"
        return [f"rows from {own} on count as padding, as --vocab-size of the NullTokenizer says; {older}"]
    return []


def _model(first: TorchArchive, args: Mapping[str, Any], rows: int | None, path: Path, config: Path | None) -> ConfiguredModel:
    if config is not None:
        return open_model(config)
    ours = first.value.get(OURS)
    if isinstance(ours, dict) and isinstance(ours.get("config"), dict):
        try:
            return model_of(plain(ours["config"]), path)
        except ValueError:
            why = "its configuration is no plain data; convert it again, or name another with --config"
            raise RecordError(f"{first.path}: {why}") from None
    return of_arguments(args, rows, path)


def _rank(archive: TorchArchive, args: Mapping[str, Any]) -> _Rank:
    """Return the rank of a file; only the arguments show whether a second number is the pipeline's or the experts' rank."""
    match = FOLDER.fullmatch(archive.path.parent.name)
    if match is None:
        raise RecordError(f"{archive.path.parent} is no folder of a rank; keep mp_rank_00, mp_rank_00_000 and the like there")
    value = archive.value
    keys = ["model"] if "model" in value else [f"model{stage}" for stage in range(sum(key.startswith("model") for key in value))]
    stages = [value.get(key) for key in keys]
    if not stages or not all(isinstance(stage, dict) and all(isinstance(name, str) for name in stage) for stage in stages):
        raise RecordError(f"{archive.path} holds no model; convert a checkpoint of Megatron-LM's GPT models on megatron-core")
    tensor, second, third = (None if number is None else int(number) for number in match.groups())
    of_experts = third is None and args.get("pipeline_model_parallel_size", 1) == 1 and (args.get("expert_model_parallel_size") or 1) > 1
    pipeline, expert = (0, second) if of_experts else (second, third)
    return _Rank(archive.path, tensor or 0, pipeline or 0, expert or 0, stages)


def _refuse_missing(ranks: Sequence[_Rank], counts: Sequence[int], args: Mapping[str, Any], path: Path) -> None:
    wanted = tuple(args.get(f"{axis}_model_parallel_size") or count for axis, count in zip(AXES, counts, strict=True))
    there = {(rank.tensor, rank.pipeline, rank.expert) for rank in ranks}
    if wanted != tuple(counts) or len(there) != math.prod(counts):
        words = f"{' x '.join(map(str, wanted))} (tensor x pipeline x expert)"
        raise RecordError(f"{path} has the files of {len(there)} ranks, its model has {words}; copy all of them")
    if counts[0] > 1 and (args.get("num_experts") or 0) and args.get("expert_tensor_parallel_size", counts[0]) not in (None, counts[0]):
        why = "experts are cut otherwise (expert_tensor_parallel_size) than the rest"
        raise RecordError(f"{path}: {why}; save it as torch_dist and convert that")


def _parameters(ranks: Sequence[_Rank], counts: Sequence[int], model: ConfiguredModel, rows: int | None) -> Iterator[FrameworkTensor]:
    dims, begins = model.dims(rows), _first_layers(ranks)
    for rank in ranks:
        is_last = counts[1] > 1 and rank.pipeline == counts[1] - 1  # which has a copy of a tied model's embedding
        copies = {model.family.output, *([model.family.embedding] if is_last else [])} if model.tied else set()
        for number, stage in enumerate(rank.stages):
            for native, value in stage.items():
                of_expert = ".experts." in native
                if not isinstance(value, TorchTensor) or (rank.expert and not of_expert):
                    continue  # other expert-parallel ranks have copies of the first rank's parameters
                expert = model.experts // counts[2] * rank.expert if of_expert else 0
                try:
                    fused = _placed(model, native, value.shape, dims, (rank.tensor, counts[0]), begins[number, rank.pipeline], expert)
                except RefusedRun as error:
                    raise RecordError(f"{rank.path}: {error}") from None
                if fused is not None and not copies & {*fused.pieces[:1]}:
                    is_uncut = all(part.box == tuple((0, size) for size in part.shape) for part in fused.parts)
                    if not (is_uncut and rank.tensor):  # every tensor-parallel rank has all of a norm
                        yield FrameworkTensor(fused, value.kind, value.read, f"{rank.path.parent.name} {shown(native)}")


def _placed(
    model: ConfiguredModel, native: str, shape: Sequence[int], dims: Dims, rank: tuple[int, int], layer: int, expert: int
) -> Fused | None:
    """Return the pieces of a parameter of tensor-parallel rank ``rank[0]`` of ``rank[1]``; None for a name of no parameter."""
    first: Fused | None = None
    for cut in dict.fromkeys((Cut(None, *rank), Cut())):  # a rank has a part, or all, as of a norm: the model's shapes show which
        try:
            fused = model.family.megatron.fused(native, shape, dims, cut=cut, first_layer=layer, first_expert=expert)
        except RefusedRun:
            if cut.count == 1 and first is None:
                raise
            continue
        if fused is None or all(model.allows(part.name, part.shape) for part in fused.parts):
            return fused
        first = first or fused
    return first


def _first_layers(ranks: Sequence[_Rank]) -> dict[tuple[int, int], int]:
    """Return virtual stage and pipeline rank to the number of the stage's first layer in the model."""
    layers: dict[tuple[int, int], int] = {}
    for rank in ranks:
        for number, stage in enumerate(rank.stages):
            found = {int(match[1]) for name in stage if name.startswith("decoder.") and (match := LAYER.search(name))}
            layers[number, rank.pipeline] = max(layers.get((number, rank.pipeline), 0), max(found, default=-1) + 1)
    stages = sorted(layers)
    return dict(zip(stages, accumulate((layers[stage] for stage in stages), initial=0), strict=False))


def write_megatron(path: Path, model: ConfiguredModel, tensors: Mapping[str, LazyTensor]) -> None:
    """Write the checkpoint of one rank, for ``--load PATH --finetune --no-load-optim --no-load-rng`` of Megatron-LM."""
    folder = path / RELEASE / "mp_rank_00"
    folder.mkdir(parents=True)
    atomic.sync_path(folder.parent)  # so that it is kept through a crash
    value = {"checkpoint_version": 3.0, "iteration": 0, "model": tensors, OURS: {"config": dict(model.config)}}
    write_archive(folder / FILE, FILE.removesuffix(".pt"), value)
    atomic.write_text(path / LATEST, RELEASE)
