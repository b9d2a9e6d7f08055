"""The training cell of a semi-automatic job, compiled and not yet run: MindSpore has cut its parameters, and says how.

Seam: the first ``on_train_step_begin``, which has the batch that the cell is compiled for. Before compiling, parameters have whole
shapes, and reading one that is not yet initialised would give it other numbers than the run's own; the step's own call finds the graph.
"""

from __future__ import annotations

from typing import Any

from align_hooks.errors import RefusedRun
from align_hooks.ms_side.hooks.train_cell import announce, vocabulary
from align_hooks.ms_side.model import config_of, parameters_of
from align_hooks.ms_side.session import MsSession
from align_hooks.ms_side.shard_reducer import CaptureShards


def hold(session: MsSession, arguments: Any) -> None:
    """Compile the cell for the first batch and find out what this rank holds; ``arguments`` are those of the training loop.

    Raises RefusedRun where MindSpore does not say how it cut the parameters.
    """
    given = arguments.train_dataset_element
    elements = tuple(given) if isinstance(given, tuple | list) else (given,)
    network, cell = arguments.train_network, session.train_cell
    network.compile(*elements)
    layouts = getattr(network, "parameter_layout_dict", None)
    if not layouts:
        raise RefusedRun(f"{type(network).__name__} was compiled without layouts of its parameters; this version cannot read them")
    session.fed = len(elements[0])
    session.parameters = parameters_of(
        cell.weights, config_of(cell), vocabulary(session), alone=False, layouts=layouts, rank=session.launch.rank
    )
    if isinstance(session.reducer, CaptureShards):
        session.reducer.bind(session.parameters)
        announce(session, session.reducer.bytes, session.reducer.inject)
