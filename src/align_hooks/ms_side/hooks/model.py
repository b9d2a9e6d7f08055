"""Model and optimizer, built and about to be trained: loading into them, and their facts for ``run.json``.

:mod:`align_hooks.ms_side.hooks.training` calls these functions when training begins, with checkpoints loaded and nothing compiled; where
MindSpore cuts parameters, when the first step begins.
"""

import mindspore
from mindspore import nn

from align_hooks._version import __version__
from align_hooks.errors import RefusedRun
from align_hooks.hooking.attach import installed_version, versions_beside
from align_hooks.ms_side.arrays import number
from align_hooks.ms_side.hooks.config import flat, get
from align_hooks.ms_side.model import Parameters, is_per_token
from align_hooks.ms_side.objects import Cell, Schedule
from align_hooks.ms_side.optimizer import ADAMS, Shifted, kind_of, load_moments, moment_dtypes, moments, optimizer_facts, updates_made
from align_hooks.ms_side.place import summed
from align_hooks.ms_side.seeds import read_back
from align_hooks.ms_side.session import MsSession
from align_hooks.names.table import any_layer
from align_hooks.quantities.optimizer_state import OPTIMIZER_STATE
from align_hooks.record.reader import OptimizerState
from align_hooks.session.loading import load_state
from align_hooks.session.step import Moments
from align_hooks.settings import PREFIX

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

    load_state(session, compute_type(session), load_optimizer)


def keep_schedule(session: MsSession, state: OptimizerState | None) -> None:
    """Keep the learning-rate schedule at its own position, although updates are loaded. Call it before the schedule is compiled in."""
    cell = session.train_cell
    if state is not None and state.updates and cell.optimizer.dynamic_lr:
        for owner in (cell.optimizer, cell):  # the cell shows the rate by a copy of the schedule
            owner.learning_rate = shifted(owner.learning_rate, state.updates)


def shifted(schedule: Schedule, updates: int) -> Schedule:
    """Return a schedule, or each group's schedule, that starts ``updates`` later."""
    return nn.CellList([Shifted(part, updates) for part in schedule]) if isinstance(schedule, nn.CellList) else Shifted(schedule, updates)


def refuse_unknown(session: MsSession) -> None:
    """Refuse to record the state of an optimizer whose moments are not known."""
    optimizer = session.train_cell.optimizer
    if session.settings.steps(OPTIMIZER_STATE) and kind_of(optimizer) is None:
        raise RefusedRun(
            f"{PREFIX}OPTIMIZER_STATE records the moments of {', '.join(ADAMS)}, this optimizer is {type(optimizer).__name__}; unset it"
        )


def compute_type(session: MsSession) -> str | None:
    """Return the type in which the model computes; None where unknown."""
    built = None if session.model is None else getattr(session.model.config, "compute_dtype", None)
    dtype = built or get(session.config, "model.model_config.compute_dtype")
    return None if dtype is None else str(dtype).removeprefix("mindspore.").lower()


def facts(session: MsSession) -> dict[str, object]:
    """Return the facts of a MindFormers run for ``run.json``."""
    config, cell, parameters = session.config, session.train_cell, session.parameters
    assert parameters is not None
    sizes, rows = session.sizes, get(config, "train_dataset.batch_size")
    return {
        "framework": "MindFormers",
        "versions": {
            "align_hooks": __version__,
            "mindformers": installed_version("mindformers"),
            "mindspore": mindspore.__version__,
            **versions_beside(BESIDE),
        },
        "model": session.model_config,
        "padded_vocabulary": parameters.dims.padded or None,
        "optimizer": optimizer_facts(cell, parameters) | {"loss_scale": number(cell.scale_sense)},
        "training": {
            "micro_batch_size": rows if sizes is None else sizes.batch_size(sizes.rows(session.fed), "the data set"),
            "global_batch_size": (rows and rows * session.launch.world_size) if sizes is None else sizes.rows(session.fed),
            "sequence_length": get(config, "model.model_config.seq_length"),
            "train_steps": get(config, "lr_schedule.total_steps"),
            "per_token_loss": is_per_token(cell),
            "compute_type": compute_type(session),
            "gradients_summed_over_ranks": summed(session.launch),
        },
        "determinism": read_back() | {"config.seed": get(config, "seed")},
        "layers": layers(cell.network, parameters),
        "classes": sorted({type(part).__name__ for _, part in cell.network.cells_and_names()}),
        "arguments": flat(config),
    }


def layers(network: Cell, parameters: Parameters) -> dict[str, dict[str, str]]:
    """Map canonical names, ``*`` for the layer, to the cell's class and the types of weight and computation, for the CheckList."""
    names = {id(parameter.model): parameter.fused.pieces for parameter in parameters}
    facts: dict[str, dict[str, str]] = {}
    for _, cell in network.cells_and_names():
        for weight in cell.get_parameters(expand=False):
            dtype = str(weight.dtype).lower()
            compute = next((kind for kind in (getattr(cell, name, None) for name in COMPUTES_IN) if kind is not None), dtype)
            for name in names.get(id(weight), ()):
                facts.setdefault(any_layer(name), {"class": type(cell).__name__, "weight": dtype, "compute": str(compute).lower()})
    return facts


def optimizer_state(session: MsSession) -> Moments:
    """Return Adam's moments, its count of updates, and the moments' types, between two updates."""
    assert session.parameters is not None
    optimizer = session.train_cell.optimizer
    return moments(optimizer, session.parameters), updates_made(optimizer), moment_dtypes(optimizer)
