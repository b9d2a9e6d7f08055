"""Weights to start from, under canonical names: a recorded run's, or those of a Hugging Face directory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from align_hooks.errors import RecordError, RefusedRun
from align_hooks.families.registry import embeddings, outputs
from align_hooks.messages import rendered
from align_hooks.names.blocks import PADDING
from align_hooks.names.fused import Fused
from align_hooks.record.format.files import TensorFile
from align_hooks.record.format.layout import Array
from align_hooks.record.format.stored_tensor import FLOATING
from align_hooks.record.reader import OptimizerState, Run, open_run
from align_hooks.regular import read_regular
from align_hooks.replay.perturb import EPS, Perturbed, Weights
from align_hooks.replay.unfit import refuse_unfit
from align_hooks.settings import Source

REMEDY = "load a whole checkpoint of floating-point weights: copy it again, or save it in bf16"
"""The way out of a Hugging Face checkpoint that cannot be read."""


class SafetensorsFolder(Mapping[str, Array]):
    """A Hugging Face safetensors directory, one file or an index over several; tensors are read as fp32 one by one."""

    def __init__(self, path: Path) -> None:
        index = path / "model.safetensors.index.json"
        try:
            listed = json.loads(read_regular(index, within=path))["weight_map"] if index.exists() else {"": "model.safetensors"}
            names = sorted({str(name) for name in dict(listed).values()})
            files = [TensorFile(path / name, types=tuple(FLOATING), remedy=REMEDY, within=path) for name in names]
            self._file_of = {name: file for file in files for name in file}
            if not self._file_of:
                raise ValueError("it holds no tensor")
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise RecordError(f"{path} is no whole Hugging Face checkpoint ({error}); it needs model.safetensors or an index") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._file_of)

    def __len__(self) -> int:
        return len(self._file_of)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor, without reading it."""
        return self._file_of[name].shape(name)

    def __getitem__(self, name: str) -> Array:
        return self._file_of[name].read(name)


def is_checkpoint(path: Path) -> bool:
    """Return whether a directory is a Hugging Face checkpoint."""
    return (path / "model.safetensors").exists() or (path / "model.safetensors.index.json").exists()


def open_weights(source: Source) -> Weights:
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


class Loader:
    """A reader of native tensors from canonical weights, which are first checked to fit the model."""

    def __init__(
        self,
        source: Source,
        wanted: Mapping[str, tuple[int, ...]],
        *,
        elsewhere: Callable[[str], bool] = lambda name: False,
        perturb: tuple[int, str] | None = None,
    ) -> None:
        """``wanted`` and ``elsewhere`` are as in :func:`refuse_unfit`; ``perturb`` is a seed and the compute type, see :data:`EPS`."""
        self.source = source
        self._weights = open_weights(source)
        if perturb is not None:
            self._weights = Perturbed(self._weights, EPS[perturb[1]], perturb[0])
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
        return fused.join(tensors)
