"""Loading of recorded weights, and of the optimizer's state beside them, in the same way on both sides."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from align_hooks.errors import RefusedRun
from align_hooks.names.fused import Fused
from align_hooks.names.table import any_layer
from align_hooks.record.reader import OptimizerState
from align_hooks.replay.weights import EPS, Loader, open_optimizer_state
from align_hooks.session.session import Session
from align_hooks.settings import PREFIX

ADD_A_FAMILY = 'a family gives them names that both frameworks know (CONTRIBUTING, "A new model family")'


def say_own_names(session: Session, family: str, misfits: Sequence[str], parameters: Iterable[Fused]) -> None:
    """Print, on rank 0, how a model differs from its nearest ``family``, and which tensors keep the framework's own names."""
    if session.launch.rank > 0:
        return
    own = [fused.native for fused in parameters if any(piece.own for piece in fused.parts)]
    if misfits:
        session.say(f"the model is {f'no {family}' if family else 'of no family'}: {'; '.join(misfits)}")
    if own:
        session.say(f"recorded under the framework's own names: {len(own)} tensors, first {own[0]}; {ADD_A_FAMILY}")


def layer_facts(modules: Iterable[tuple[str, int, str, str]], names: Mapping[int, Iterable[str]]) -> dict[str, dict[str, str]]:
    """Map canonical names, ``*`` for the layer, to the module's class and the types of weight and computation, for the CheckList.

    ``modules`` are a class with the id of a weight and these types each, ``names`` the canonical names of a weight by its id.
    """
    facts: dict[str, dict[str, str]] = {}
    for kind, weight, dtype, compute in modules:
        for name in names.get(weight, ()):
            facts.setdefault(any_layer(name), {"class": kind, "weight": dtype, "compute": compute})
    return facts


def load_state(
    session: Session, compute_type: str | None, load_moments: Callable[[OptimizerState], None], *, stateful: bool = False
) -> None:
    """Load the weights that the settings name, and with ``load_moments`` the optimizer's state where the source recorded one.

    ``stateful``: whether the optimizer had a state before, which was cleared.
    """
    source, parameters = session.settings.load_weights, session.parameters
    assert source is not None and parameters is not None
    seed = session.settings.perturb
    perturb = None
    if seed is not None:
        if compute_type is None or compute_type not in EPS:
            raise RefusedRun(
                f"{PREFIX}PERTURB moves weights by a rounding step of the type in which the model computes, which is unknown; unset it"
            )
        perturb, moved = (seed, compute_type), f"moved by {EPS[compute_type]:.3g} of themselves"
        session.override("loaded weights", "as they are", moved, f"{PREFIX}PERTURB={seed}")
    parameters.load(Loader(source, parameters.wanted(), elsewhere=parameters.elsewhere(), perturb=perturb).read)
    session.override("weights", "the framework's own", source, f"{PREFIX}LOAD_WEIGHTS")
    state = open_optimizer_state(source)
    if state is not None:
        load_moments(state)
        session.override("optimizer state", "the framework's own", f"{source}, {state.updates} updates", f"{PREFIX}LOAD_WEIGHTS")
    elif source.steps.single() != 0 or stateful:
        before = "kept" if stateful else f"of step {source.steps.text}"
        session.override("optimizer state", before, "reset", "weights were loaded without the optimizer's state")
