"""The training cell of a semi-automatic job, compiled and not yet run: MindSpore has cut its parameters, and says how.

Seam: the first ``on_train_step_begin``, which has the batch for which the cell is compiled. Before that, parameters have whole shapes,
and reading a parameter that is not yet initialised would give it other numbers than the run's own. The step's own call reuses the graph.
"""

from __future__ import annotations

from align_hooks.errors import RefusedRun
from align_hooks.ms_side.hooks.train_cell import announce, vocabulary
from align_hooks.ms_side.model import model_of, parameters_of
from align_hooks.ms_side.objects import RunContext
from align_hooks.ms_side.session import MsSession
from align_hooks.ms_side.shard_reducer import CaptureShards


def compile_cell(session: MsSession, run_context: RunContext) -> None:
    """Compile the cell for the first batch, and find this rank's parts of its parameters.

    Raises RefusedRun where MindSpore does not say how it cut the parameters.
    """
    loop, cell = run_context.original_args(), session.train_cell
    network, batch = loop.train_network, loop.train_dataset_element
    elements = tuple(batch) if isinstance(batch, tuple | list) else (batch,)
    network.compile(*elements)
    layouts = getattr(network, "parameter_layout_dict", None)
    if not layouts:
        raise RefusedRun(f"{type(network).__name__} was compiled without layouts of its parameters; this version cannot read them")
    session.fed = len(elements[0])
    session.parameters = parameters_of(
        cell.weights, model_of(cell), vocabulary(session), alone=False, layouts=layouts, rank=session.launch.rank
    )
    if isinstance(session.reducer, CaptureShards):
        session.reducer.bind(session.parameters)
        announce(session, session.reducer.bytes, session.reducer.inject)
