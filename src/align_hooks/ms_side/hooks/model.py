"""Model and optimizer, built and about to be trained: loading into them, and their facts for ``run.json``.

:mod:`align_hooks.ms_side.hooks.training` calls these functions when training begins, with checkpoints loaded and nothing compiled; where
MindSpore cuts parameters, when the first step begins.
"""

from collections.abc import Iterator

import mindspore
from mindspore import nn

from align_hooks._version import __version__
from align_hooks.hooking.attach import installed_version, versions_beside
from align_hooks.hooking.commits import commits
from align_hooks.ms_side.arrays import number
from align_hooks.ms_side.devices import device_name
from align_hooks.ms_side.hooks.config import flat, get
from align_hooks.ms_side.model import Model, built_class, is_per_token
from align_hooks.ms_side.objects import Cell, Optimizer
from align_hooks.ms_side.optimizer import Shifted, clip_norm, load_moments, moment_dtypes, moments, optimizer_facts, updates_made
from align_hooks.ms_side.place import summed
from align_hooks.ms_side.seeds import read_back
from align_hooks.ms_side.session import MsSession
from align_hooks.record.reader import OptimizerState
from align_hooks.replay.weights import vocabulary_fed
from align_hooks.session.loading import layer_facts, load_state
from align_hooks.session.step import Moments

COMPUTE = "model.model_config.compute_dtype"
BESIDE = ("hyper_parallel", "ms_custom_ops")
"""Packages beside MindFormers that change numbers, by the names of their modules."""
COMPUTES_IN = ("compute_dtype", "compute_type", "dtype")
"""Attributes of cells that name the type to which they cast their weight; a cell without any computes in the weight's own."""


def load(session: MsSession) -> None:
    """Load the weights that the settings name, and the recorded optimizer state, if any."""

    def load_optimizer(state: OptimizerState) -> None:
        assert session.parameters is not None
        load_moments(session.train_cell.optimizer, session.parameters, state)
        if session.sizes is None:
            keep_schedule(session, state)

    load_state(session, compute_type(session.model, get(session.config, COMPUTE)), load_optimizer)


def keep_schedule(session: MsSession, state: OptimizerState | None) -> None:
    """Keep the learning-rate schedule at its own position, although updates are loaded. Call it before the schedule is compiled in."""
    cell = session.train_cell
    if state is not None and state.updates and cell.optimizer.dynamic_lr:
        for owner in (cell.optimizer, cell):  # the cell shows the rate by a copy of the schedule
            rate, updates = owner.learning_rate, state.updates
            parts = isinstance(rate, nn.CellList)  # a schedule for each group
            owner.learning_rate = nn.CellList([Shifted(part, updates) for part in rate]) if parts else Shifted(rate, updates)


def vocabulary(session: MsSession) -> int | None:
    """Return the rows of the vocabulary without padding, which only the replayed run knows."""
    runs = [None if source is None else source.run for source in (session.replay, session.injection)]
    return vocabulary_fed(session.settings.load_weights, *runs)


def compute_type(model: Model | None, configured: object = None) -> str | None:
    """Return the type in which a built model computes, else the ``configured`` one; None where unknown."""
    dtype = (None if model is None else getattr(model.config, "compute_dtype", None)) or configured
    return None if dtype is None else str(dtype).removeprefix("mindspore.").lower()


def facts(session: MsSession) -> dict[str, object]:
    """Return the facts of a MindFormers run for ``run.json``."""
    config, cell, parameters = session.config, session.train_cell, session.parameters
    assert parameters is not None
    sizes, rows = session.sizes, get(config, "train_dataset.batch_size")
    return {
        "framework": "MindFormers",
        **stands_on(),
        "model": session.model_config,
        "padded_vocabulary": parameters.dims.padded or None,
        "optimizer": optimizer_facts(cell.optimizer, clip_norm(cell), parameters) | {"loss_scale": number(cell.scale_sense)},
        "training": {
            "micro_batch_size": rows if sizes is None else sizes.batch_size(sizes.rows(session.rank_rows), "the data set"),
            "global_batch_size": (rows and rows * session.launch.world_size) if sizes is None else sizes.rows(session.rank_rows),
            "sequence_length": get(config, "model.model_config.seq_length"),
            "train_steps": get(config, "lr_schedule.total_steps"),
            "per_token_loss": is_per_token(cell),
            "compute_type": compute_type(session.model, get(config, COMPUTE)),
            "products": {"format": ""},  # nothing in its training quantises
            "gradients_summed_over_ranks": summed(session.launch),
        },
        "determinism": read_back() | {"config.seed": get(config, "seed")},
        "layers": layer_facts(typed(cell.network), {id(parameter.model): parameter.fused.pieces for parameter in parameters}),
        "classes": sorted({type(part).__name__ for _, part in cell.network.cells_and_names()}),
        "arguments": flat(config),
    }


def stands_on() -> dict[str, object]:
    """Return the versions of this package, of the frameworks, and of the packages that change numbers, their commits, and the device."""
    frameworks = {"mindformers": installed_version("mindformers"), "mindspore": mindspore.__version__}
    versions = {"align_hooks": __version__, **frameworks, **versions_beside(BESIDE)}
    return {"versions": versions, "commits": commits(("mindformers", *BESIDE)), "device": device_name()}


def typed(network: Cell) -> Iterator[tuple[str, int, str, str]]:
    """Yield the class of each Cell with the id of a weight, and the types of weight and computation."""
    for _, cell in network.cells_and_names():
        for weight in cell.get_parameters(expand=False):
            dtype = str(weight.dtype).lower()
            compute = next((kind for kind in (getattr(cell, name, None) for name in COMPUTES_IN) if kind is not None), dtype)
            yield built_class(cell).__name__, id(weight), dtype, str(compute).lower()


def optimizer_state(session: MsSession, optimizer: Optimizer) -> Moments:
    """Return Adam's moments, its count of updates, and the moments' types, between two updates."""
    assert session.parameters is not None
    return moments(optimizer, session.parameters), updates_made(optimizer), moment_dtypes(optimizer)
