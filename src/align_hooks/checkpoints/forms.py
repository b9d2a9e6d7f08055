"""The form of the weights at a path, and the reader of the form."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from align_hooks.checkpoints.checkpoint import Checkpoint, LazyTensor
from align_hooks.checkpoints.huggingface import INDEX, MODEL, read_huggingface, tensors_of
from align_hooks.checkpoints.megatron import FILE, LATEST, mp_ranks, read_megatron
from align_hooks.checkpoints.mindformers import ranks_of, read_mindformers
from align_hooks.checkpoints.model import model_of, open_model
from align_hooks.checkpoints.torch_dist import METADATA, read_torch_dist
from align_hooks.errors import RecordError, shown
from align_hooks.record.format import layout
from align_hooks.record.format.files import list_folder, readable
from align_hooks.record.reader import open_run
from align_hooks.regular import read_regular
from align_hooks.replay.weights import open_weights
from align_hooks.settings import Source, Steps

SUFFIXES = (".ckpt", ".safetensors", ".pt")
"""Suffixes of files of weights; any other file is a log."""
LONGEST_ITERATION = 20


def is_weights(path: Path) -> bool:
    """Return whether a path is a checkpoint, and no log, by its name and its files."""
    if path.is_dir() or path.suffix in SUFFIXES:
        return True
    return not path.exists() and path.with_name(path.name.rpartition("@")[0] or path.name).is_dir()  # RECORD@STEP


def open_checkpoint(path: Path, config: Path | None = None) -> Checkpoint:
    """Return the weights of any form at a path, or ``RECORD@STEP``, by the model's ``config``, or the checkpoint's own if that is None."""
    name, at, step = path.name.rpartition("@")
    run = path.with_name(name) if at and name and not path.exists() else path
    if run.is_dir() and layout.ranks(run):
        if at and run != path and not (step.isascii() and step.isdigit() and len(step) < 16):
            raise RecordError(f"{path}: {shown(step)} is no step; write {run}@N, the weights after N updates")
        updates = step if run != path else "0"
        weights = open_weights(Source(run, Steps.parse(updates)))
        model = open_model(config) if config is not None else model_of(open_run(run).facts.model, run / "run.json")
        tensors = {name: LazyTensor(weights.shape(name), "F32", partial(weights.__getitem__, name)) for name in weights}
        return Checkpoint(run, f"record, weights after {updates} updates", model, tensors)
    if not path.exists():
        raise RecordError(f"{path} is not there; name a record, or a checkpoint of Hugging Face, Megatron-LM or MindFormers")
    latest = path / LATEST
    if latest.is_file():  # of Megatron-LM, in whose directory each iteration has its own
        with readable(latest, "; name the directory of an iteration"):
            text = read_regular(latest, 2 * LONGEST_ITERATION, path).decode("ascii", "replace").strip()
        if text != "release" and not (text.isascii() and text.isdigit() and len(text) <= LONGEST_ITERATION):
            raise RecordError(f"{latest} names no iteration; name the directory of one, such as {path}/iter_0000010")
        path = path / (text if text == "release" else f"iter_{int(text):07}")
    return _reader(path)(path.parent.parent if path.name == FILE else path, config)


def _reader(path: Path) -> Callable[[Path, Path | None], Checkpoint]:
    if path.is_file():
        if path.suffix in SUFFIXES:
            return read_megatron if path.suffix == ".pt" else read_mindformers
        raise RecordError(f"{path} is no checkpoint; name a directory, or a file that ends in {', '.join(SUFFIXES)}")
    if (path / METADATA).exists():
        return read_torch_dist
    if mp_ranks(path):
        return read_megatron
    if (path / INDEX).exists():
        return read_huggingface
    if (path / MODEL).exists() and (path / "config.json").exists():
        model = open_model(path)  # MindFormers' directories of the same files have names of their own
        if model.shape(model.family.embedding) is not None and model.family.embedding in tensors_of(path):
            return read_huggingface
    if ranks_of(path) or any(file.suffix in SUFFIXES[:2] for file in list_folder(path)):
        return read_mindformers
    raise RecordError(
        f"{path} holds no weights: neither manifest/rank_0.json nor model.safetensors, .metadata, mp_rank_00 or a .ckpt is there"
    )
