"""A record's weights: canonical already, in fp32, put together from the ranks that wrote them."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from align_hooks.checkpoints.checkpoint import Checkpoint, Stored
from align_hooks.checkpoints.model import Model, model_of, open_model
from align_hooks.record.reader import open_run
from align_hooks.replay.weights import open_weights
from align_hooks.settings import Source, Steps


def read_record(path: Path, step: str, config: Path | None) -> Checkpoint:
    """The weights of a run after ``step`` updates; raises RecordError where it has none, or is not whole."""
    weights = open_weights(Source(path, Steps.parse(step)))
    model: Model = open_model(config) if config is not None else model_of(open_run(path).facts.model, path / "run.json")
    tensors = {name: Stored(weights.shape(name), "F32", partial(weights.__getitem__, name)) for name in weights}
    return Checkpoint(path, f"record, weights after {step} updates", model, tensors)
