"""Weights to start from, under canonical names: a recorded run's, or those of a Hugging Face directory."""

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

import numpy as np

from align_hooks.errors import RecordError, RefusedRun
from align_hooks.families.registry import embeddings, outputs, stacks
from align_hooks.messages import rendered
from align_hooks.names.blocks import PADDING
from align_hooks.names.fused import Fused
from align_hooks.names.stacks import slots
from align_hooks.record.format.files import TensorFile
from align_hooks.record.format.layout import Array
from align_hooks.record.format.stored_tensor import FLOATING
from align_hooks.record.read.tensors import Tensors
from align_hooks.record.reader import OptimizerState, Run, open_run
from align_hooks.regular import read_regular
from align_hooks.settings import Source

REMEDY = "load a whole checkpoint of floating-point weights: copy it again, or save it in bf16"
"""The way out of a Hugging Face checkpoint that cannot be read."""
ROWS_ARE_SET = "vocab_size: {rows} in MindFormers' YAML, --make-vocab-size-divisible-by in Megatron's arguments"
"""The setting of each side for the rows of its embedding."""
EPS = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""Compute type to the rounding step of the number 1."""
Shapes: TypeAlias = Mapping[str, tuple[int, ...]]
"""Canonical name to global shape."""


class SafetensorsFolder(Mapping[str, Array]):
    """A Hugging Face safetensors directory, one file or an index over several; tensors are read as fp32 one by one, of stacks too."""

    def __init__(self, path: Path) -> None:
        index = path / "model.safetensors.index.json"
        try:
            listed = json.loads(read_regular(index, within=path))["weight_map"] if index.exists() else {"": "model.safetensors"}
            names = sorted({str(name) for name in dict(listed).values()})
            files = [TensorFile(path / name, types=tuple(FLOATING), remedy=REMEDY, within=path) for name in names]
            self._file_of = {name: file for file in files for name in file}
            self._slots = slots({name: file.shape(name) for name, file in self._file_of.items()}, stacks())
            if not self._file_of:
                raise ValueError("it holds no tensor")
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise RecordError(f"{path} is no whole Hugging Face checkpoint ({error}); it needs model.safetensors or an index") from None

        self._stored = lru_cache(maxsize=1)(lambda name: self._file_of[name].read(name))  # a stack is read once for its pieces
        stacked = {slot.stack for slot in self._slots.values()}
        self._names = [name for name in self._file_of if name not in stacked] + list(self._slots)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor, without reading it."""
        slot = self._slots.get(name)
        return self._file_of[name].shape(name) if slot is None else slot.shape(self._file_of[slot.stack].shape(slot.stack))

    def __getitem__(self, name: str) -> Array:
        slot = self._slots.get(name)
        return self._file_of[name].read(name) if slot is None else slot.cut(self._stored(slot.stack))


def moved(tensor: Array, name: str, eps: float, seed: int) -> Array:
    """Return a tensor with each element moved by ``eps`` of itself, up or down as ``seed``, ``name`` and its position say."""
    # A repeated run is often equal to the bit. Moved weights give every operation other last bits, as another kernel or order of summation
    # would (TTrace; Megatron-LM's own numeric checks perturb inputs in this way): the difference that rounding alone makes.
    bits = np.random.Generator(np.random.Philox(key=[seed, zlib.crc32(name.encode())])).integers(0, 2, tensor.shape, np.int8)
    changed: Array = tensor * (1 + np.float32(eps) * (2 * bits - 1).astype(np.float32))
    return changed.astype(tensor.dtype, copy=False)


def is_checkpoint(path: Path) -> bool:
    """Return whether a directory is a Hugging Face checkpoint."""
    return (path / "model.safetensors").exists() or (path / "model.safetensors.index.json").exists()


def open_weights(source: Source) -> SafetensorsFolder | Tensors:
    """Open the weights that ``ALIGN_HOOKS_LOAD_WEIGHTS`` names; raises RecordError where there are none."""
    if is_checkpoint(source.path):
        return SafetensorsFolder(source.path)
    step, run = source.steps.single(), open_run(source.path)
    if step is None:
        raise RecordError(f"{source}: weights are those of one step; write {source.path}@N")
    if run.missing is not None:
        raise RecordError(f"{source}: {rendered(run.missing.message)}; copy or record every rank")
    if step not in run.weight_steps():
        there = ", ".join(map(str, run.weight_steps())) or "none"
        raise RecordError(f"{source.path} holds no weights of step {step} (recorded: {there}); record it with ALIGN_HOOKS_WEIGHTS={step}")
    return run.weights(step)


def open_optimizer_state(source: Source) -> OptimizerState | None:
    """Open the optimizer's state beside the weights of ``source``; None where there is none, or before the first update."""
    step = source.steps.single()
    if is_checkpoint(source.path) or step is None:
        return None
    run = open_run(source.path)
    state = run.optimizer_state(step) if step in run.optimizer_state_steps() else None
    return state if state is not None and state.updates else None


def vocabulary_fed(weights: Source | None, *runs: Run | None) -> int | None:
    """Return the rows of the embedding without padding, by the weights to load, else by the first run that knows; None if unknown."""
    if weights is not None:
        loaded = open_weights(weights)
        return next((int(loaded.shape(name)[0]) for name in embeddings() if name in loaded), None)
    sizes = (run.facts.model.get("vocab_size") for run in runs if run is not None)
    return next((size for size in sizes if isinstance(size, int)), None)


def refuse_unfit(wanted: Shapes, given: Shapes, source: str, *, elsewhere: Callable[[str], bool] = lambda name: False) -> None:
    """Raise RefusedRun unless ``source`` has exactly the tensors of a model.

    ``given`` are the source's, ``wanted`` this rank's; ``elsewhere`` says whether another rank holds a tensor.
    """
    problems = [f"{name} {list(wanted[name])} is missing" for name in sorted(wanted.keys() - given.keys())]
    problems += [f"{name} {list(given[name])} is not of this model" for name in sorted(given.keys() - wanted.keys()) if not elsewhere(name)]
    other = [name for name in sorted(wanted.keys() & given.keys()) if wanted[name] != given[name]]
    problems += [f"{name} is {list(given[name])}, this model has {list(wanted[name])}" for name in other]
    if problems:
        few = "; ".join(problems[:3]) + (f"; and {len(problems) - 3} more" if problems[3:] else "")
        raise RefusedRun(f"{source} do not fit this model: {few}; {_way_out(wanted, given)}")


def _way_out(wanted: Shapes, given: Shapes) -> str:
    """Return what to change: only the vocabulary's size, where nothing else differs."""
    differing = {name.removesuffix(PADDING) for name in wanted.keys() | given.keys() if wanted.get(name) != given.get(name)}
    ends = embeddings() | outputs()
    if not all(name in ends and name in wanted and name in given and wanted[name][1:] == given[name][1:] for name in differing):
        return "make the two models the same shape"
    rows = max(given[name][0] + given.get(name + PADDING, (0,))[0] for name in differing)
    return f"give this model their {rows} rows, padding and all: {ROWS_ARE_SET.format(rows=rows)}"


class Loader:
    """A reader of native tensors from canonical weights, which are first checked to fit the model."""

    def __init__(
        self,
        source: Source,
        wanted: Shapes,
        *,
        elsewhere: Callable[[str], bool] = lambda name: False,
        perturb: tuple[int, str] | None = None,
    ) -> None:
        """``wanted`` and ``elsewhere`` are as in :func:`refuse_unfit`; ``perturb`` is a seed and the compute type, see :data:`EPS`."""
        self.source, self._perturb = source, perturb
        self._weights = open_weights(source)
        given = {name: self._weights.shape(name) for name in self._weights if not name.endswith(".rotary_emb.inv_freq")}
        padding = {name for name in wanted if name.endswith(PADDING)} - given.keys()
        if padding:
            raise RefusedRun(
                f"{source} has no padded vocabulary rows, this model pads ({', '.join(sorted(padding))}); "
                f"its softmax includes them, so give both sides the same padded size"
            )
        for name in outputs() - wanted.keys():  # a tied model: some checkpoints keep a copy of the embedding under this name
            given.pop(name, None)
        refuse_unfit(wanted, given, f"weights of {source}", elsewhere=elsewhere)

    def read(self, fused: Fused) -> Array:
        """Read the fp32 tensor of this rank; raises RefusedRun where a weight is not finite."""
        tensors = {name: self._weights[name] for name in fused.pieces}
        for name, tensor in tensors.items():
            if not np.isfinite(tensor).all():
                raise RefusedRun(f"{self.source}: {name} holds NaN or infinity; load weights from before it went wrong")
        if self._perturb is not None:
            seed, compute_type = self._perturb
            tensors = {name: moved(tensor, name, EPS[compute_type], seed) for name, tensor in tensors.items()}
        return fused.join(tensors)
