"""The state that a run starts from: recorded weights, and the optimizer's state beside them. Both sides load it here, so alike."""

from __future__ import annotations

from collections.abc import Callable

from align_hooks.record.reader import OptimizerState
from align_hooks.replay.perturb import EPS
from align_hooks.replay.weights import Loader, open_optimizer_state
from align_hooks.session.session import Session
from align_hooks.settings import PREFIX


def load_state(session: Session, compute_type: str, load_moments: Callable[[OptimizerState], None], *, stateful: bool = False) -> None:
    """Load the weights that the settings name, and the optimizer's state where that run recorded it.

    ``load_moments`` sets the optimizer's state; ``stateful`` says that the optimizer had a state, which was cleared.
    """
    source, parameters = session.settings.load_weights, session.parameters
    assert source is not None and parameters is not None
    seed = session.settings.perturb
    if seed is not None:
        moved = f"moved by {EPS[compute_type]:.3g} of themselves"
        session.override("loaded weights", "as they are", moved, f"{PREFIX}PERTURB={seed}")
    perturb = None if seed is None else (seed, compute_type)
    parameters.load(Loader(source, parameters.wanted(), elsewhere=parameters.elsewhere(), perturb=perturb).read)
    session.override("weights", "the framework's own", source, f"{PREFIX}LOAD_WEIGHTS")
    state = open_optimizer_state(source)
    if state is not None:
        load_moments(state)
        session.override("optimizer state", "the framework's own", f"{source}, {state.updates} updates", f"{PREFIX}LOAD_WEIGHTS")
    elif source.steps.single() != 0 or stateful:
        before = "kept" if stateful else f"of step {source.steps.text}"
        session.override("optimizer state", before, "reset", "weights were loaded without the optimizer's state")
