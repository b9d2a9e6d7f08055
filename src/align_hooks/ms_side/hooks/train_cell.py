"""The training cell, built and not yet compiled.

Patch point: the return of ``__init__`` of ``MFTrainOneStepCell`` and ``MFPipelineWithLossScaleCell``, which runs in Python. Their
``construct`` is compiled from its text later, with the cell's attributes, among them the Cell that :mod:`align_hooks.ms_side.reducer`
replaces. Under semi-automatic parallelism buffers are made before ``__init__`` (:class:`.CaptureShards`), and parameters are known once the
cell is compiled, at the first ``on_train_step_begin``, which has the batch of the graph.
"""

import inspect
from collections.abc import Callable

from mindspore import nn
from msgspec.structs import replace

from align_hooks.errors import RefusedRun
from align_hooks.families.own import refuse_without_sizes
from align_hooks.hooking.hook import Args, Function, Kwargs
from align_hooks.ms_side.catalogue import training
from align_hooks.ms_side.devices import refuse_large
from align_hooks.ms_side.hooks.model import vocabulary
from align_hooks.ms_side.model import model_of, parameters_of
from align_hooks.ms_side.objects import Cell, RunContext
from align_hooks.ms_side.place import refuse_layouts, refuse_shards, semi_auto_sizes
from align_hooks.ms_side.reducer import CaptureGradients, CaptureShards, CaptureThenClip, Tasks, capture_bytes
from align_hooks.ms_side.session import MsSession
from align_hooks.quantities.local_norms import POINT
from align_hooks.session.loading import say_own_names
from align_hooks.settings import PREFIX


def wrap(session: MsSession, wrapped: Function, instance: Cell, args: Args, kwargs: Kwargs) -> None:
    """Call the training cell's ``__init__``, and prepare the cell for the settings."""
    shards = before(session, wrapped, args, kwargs)
    wrapped(*args, **kwargs)
    prepare(session, instance, shards)


def before(session: MsSession, wrapped: Function, args: Args, kwargs: Kwargs) -> CaptureShards | None:
    """Make the capturing Cell of a semi-automatic job, before the training cell is built; None where it is not needed."""
    settings = session.settings
    if settings.run is not None or session.replay is not None:
        refuse_shards(session.launch)
    session.sizes = semi_auto_sizes(session.launch, session.config) if training(settings) else None
    if session.sizes is None:
        return None
    call = inspect.signature(wrapped).bind(*args, **kwargs)
    tasks = Tasks.of(settings, inject=session.injection is not None)
    return CaptureShards(call.arguments["optimizer"], tasks) if tasks else None


def prepare(session: MsSession, cell: Cell, shards: CaptureShards | None) -> None:
    """Find the cell's model and parameters, and put the capturing Cell in place, before the cell is compiled."""
    settings = session.settings
    if settings.device == "cpu":
        # On an unknown device MindFormers takes the overflow operator of Ascend 910A; this path has CPU kernels.
        cell.ascend_910b_target, cell.enable_allfinite = True, False
    session.train_cell = cell
    if not training(settings):
        return
    model, rows = model_of(cell), vocabulary(session)
    session.model = model
    with refuse_without_sizes():
        session.model_config = model.facts(rows)
    if session.sizes is not None:
        refuse_layouts(settings, session.sizes, model.config)
        if shards is not None:
            install(session, cell, shards.around)
        return
    launch = session.launch
    session.parameters = parameters_of(cell.weights, model, rows, counted=launch.rank == 0, single_rank=launch.world_size == 1)
    fused = (parameter.fused for parameter in session.parameters.state)
    say_own_names(session, model.family.name if model.family else "", model.misfits, fused)
    tasks = Tasks.of(settings, inject=session.injection is not None)
    if settings.run is not None and not cell.use_clip_grad:  # then MindFormers takes no global norm, and ours is recorded
        tasks = replace(tasks, norms=True)
    if tasks:
        announce(session, capture_bytes(session.parameters, tasks), tasks.inject)
        parameters, point = session.parameters, settings.choice(POINT)
        install(session, cell, lambda reducer: CaptureGradients(reducer, parameters, tasks, point=point))


def install(session: MsSession, cell: Cell, capture: Callable[[Cell], CaptureGradients | CaptureShards]) -> None:
    """Put the capturing Cell where the training cell's gradients are reduced and unscaled and not yet clipped."""
    if "Pipeline" not in type(cell).__name__:
        session.reducer = cell.grad_reducer = capture(cell.grad_reducer)
        return
    if session.settings.choice(POINT) == "local":
        raise RefusedRun(f"{PREFIX}LOCAL_NORMS_POINT=local: {type(cell).__name__} reduces while it accumulates; unset it")
    if not cell.use_clip_grad:
        raise RefusedRun(
            f"{type(cell).__name__} shows its unscaled gradients only to its clipping; set runner_wrapper.use_clip_grad: True, "
            f"with a max_grad_norm that no step reaches where nothing shall be clipped"
        )
    session.reducer = capture(nn.Identity())  # the patch point is behind the real reducer
    cell.clip_grad_norm = CaptureThenClip(session.reducer, cell.clip_grad_norm)


def compile_cell(session: MsSession, run_context: RunContext) -> None:
    """Compile the cell of a semi-automatic job for the first batch, and find this rank's parts of its parameters.

    Raises RefusedRun where MindSpore does not say how it cut the parameters."""
    # uncompiled parameters have global shapes, and reading one early would change its numbers; the step reuses the graph
    loop, cell = run_context.original_args(), session.train_cell
    network, batch = loop.train_network, loop.train_dataset_element
    elements = tuple(batch) if isinstance(batch, tuple | list) else (batch,)
    network.compile(*elements)
    layouts = getattr(network, "parameter_layout_dict", None)
    if not layouts:
        raise RefusedRun(f"{type(network).__name__} was compiled without layouts of its parameters; this version cannot read them")
    session.rank_rows = len(elements[0])
    whole = {"single_rank": False, "layouts": layouts, "rank": session.launch.rank}
    session.parameters = parameters_of(cell.weights, model_of(cell), vocabulary(session), **whole)
    if isinstance(session.reducer, CaptureShards):
        session.reducer.bind(session.parameters)
        announce(session, session.reducer.bytes, session.reducer.inject)


def announce(session: MsSession, needed: int, injects: bool) -> None:
    """Print the ``needed`` bytes of device memory for capturing and injecting; refuse a run in which they do not fit."""
    what = "capturing and injecting" if injects else "capturing"
    session.say(f"{what} gradients takes {needed / 1e6:.1f} MB of device memory in every step")
    if session.sizes is None:
        way_out = f"unset {PREFIX}GRADIENTS and keep {PREFIX}SKETCHES and {PREFIX}LOCAL_NORMS, which need little of it"
    else:
        way_out = f"unset {PREFIX}GRADIENTS, {PREFIX}SKETCHES and {PREFIX}LOCAL_NORMS"
    refuse_large(f"{what} gradients needs", needed, way_out)
