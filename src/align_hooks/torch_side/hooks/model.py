"""Model and optimizer, built and not yet trained.

Seam: the return of ``setup_model_and_optimizer``. Checkpoints have been loaded by then, nothing has been evaluated, and
every later seam needs the parameter table made here. All refusals that need the built objects happen here too, before
the data is opened and long before the first step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import megatron.core.package_info
import torch
from megatron.training import get_args, get_tokenizer

from align_hooks import __version__
from align_hooks.errors import RefusedRun
from align_hooks.hooking.attach import installed_version
from align_hooks.quantities.optimizer_state import OPTIMIZER_STATE
from align_hooks.replay.perturb import perturbation
from align_hooks.replay.weights import Loader, open_optimizer_state
from align_hooks.session.step import record_state
from align_hooks.settings import PREFIX
from align_hooks.torch_side.layers import classes, layers
from align_hooks.torch_side.model import Array, Parameters, huggingface_config, parameters_of, unwrap
from align_hooks.torch_side.optimizer import leaf_optimizers, load_moments, moment_dtypes, moments, optimizer_facts, updates_made
from align_hooks.torch_side.place import place, refuse_layouts
from align_hooks.torch_side.seeds import read_back
from align_hooks.torch_side.session import TorchSession

DRAWING = ("hidden_dropout", "attention_dropout", "moe_input_jitter_eps")
"""Arguments with which the model draws random numbers."""


def wrap(session: TorchSession) -> Callable[..., Any]:
    """A wrapper of ``setup_model_and_optimizer`` that loads weights, describes the run and records the initial weights."""

    def around(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        built = wrapped(*args, **kwargs)
        model, optimizer = built[0], built[1]
        prepare(session, model, optimizer)
        return built

    return around


def prepare(session: TorchSession, model: list[Any], optimizer: Any) -> None:
    """Everything between building and training."""
    args = get_args()
    where = place()
    refuse_layouts(where, session.launch.world_size, args, megatron.core.package_info.__version__)
    leaves = leaf_optimizers(optimizer)
    parameters = parameters_of(model, get_tokenizer().vocab_size, where, leaves)
    session.parameters, session.place, session.chunks = parameters, where, tuple(map(unwrap, model))
    if session.settings.load_weights is not None:
        load(session, parameters, optimizer, args)
    if session.replay is not None:
        session.replay.first = args.iteration
        session.replay.ranks = (where["dp"], where["dp_size"])
        session.replay.check(
            sequence=args.seq_length,
            vocabulary=parameters.dims.padded,
            rows=None if getattr(args, "rampup_batch_size", None) else args.global_batch_size,
            every=session.launch.rank == 0,
        )
        session.override("training data", "the script's data set", session.replay.source, f"{PREFIX}REPLAY_BATCHES")
    gpt = unwrap(model[0])
    session.model_config = huggingface_config(gpt, parameters, args)
    if session.settings.steps(OPTIMIZER_STATE) and any("Adam" not in type(leaf.optimizer).__name__ for leaf in leaves):
        kind = optimizer_facts(optimizer, parameters)["type"]
        raise RefusedRun(f"{PREFIX}OPTIMIZER_STATE records Adam's moments, this optimizer is {kind}; unset it")
    session.describe(
        place=where,
        shards=parameters.shards(),
        facts=facts(session, gpt, optimizer, parameters, args),
        steps=range(args.iteration, intended(args)),
        wanted=parameters.wanted(trainable=True),
        elsewhere=parameters.elsewhere(),
    )
    if session.settings.deterministic and not torch.are_deterministic_algorithms_enabled():
        raise RefusedRun(f"{PREFIX}DETERMINISTIC=1: the script switched torch's deterministic algorithms off again; remove that call")
    session.optimizer = optimizer
    record_state(session, args.iteration, Built(session))


def intended(args: Any) -> int:
    """The iteration at which the run ends as planned: ``--train-iters``, or earlier with ``--exit-interval``."""
    if args.exit_interval:
        return int(min(args.train_iters, (args.iteration // args.exit_interval + 1) * args.exit_interval))
    return int(args.train_iters)


def load(session: TorchSession, parameters: Parameters, optimizer: Any, args: Any) -> None:
    """Start from given weights, model and main parameters both."""
    source = session.settings.load_weights
    assert source is not None
    perturb = perturbation(session, compute_type(args))
    parameters.load(Loader(source, parameters.wanted(), elsewhere=parameters.elsewhere(), perturb=perturb).read)
    session.override("weights", "the framework's own", source, f"{PREFIX}LOAD_WEIGHTS")
    state, stateful = open_optimizer_state(source), any(leaf.optimizer.state for leaf in leaf_optimizers(optimizer))
    for leaf in leaf_optimizers(optimizer):
        leaf.optimizer.state.clear()
    if state is not None:
        load_moments(optimizer, parameters, state)
        session.override("optimizer state", "the framework's own", f"{source}, {state.updates} updates", f"{PREFIX}LOAD_WEIGHTS")
    elif source.steps.single() != 0 or stateful:
        before = "kept" if stateful else f"of step {source.steps.text}"
        session.override("optimizer state", before, "reset", "weights were loaded without the optimizer's state")


def compute_type(args: Any) -> str:
    """What the model computes in."""
    return "bfloat16" if args.bf16 else "float16" if args.fp16 else "float32"


def facts(session: TorchSession, gpt: Any, optimizer: Any, parameters: Parameters, args: Any) -> dict[str, Any]:
    """What ``run.json`` says about a Megatron run."""
    return {
        "framework": "Megatron-LM",
        "versions": {
            "align_hooks": __version__,
            "megatron-core": installed_version("megatron-core"),
            "torch": torch.__version__,
        },
        "model": session.model_config,
        "padded_vocabulary": parameters.dims.padded,
        "optimizer": optimizer_facts(optimizer, parameters) | {"loss_scale": float(optimizer.get_loss_scale())},
        "training": {
            "micro_batch_size": args.micro_batch_size,
            "global_batch_size": args.global_batch_size,
            "sequence_length": args.seq_length,
            "train_steps": args.train_iters,
            "per_token_loss": bool(gpt.config.calculate_per_token_loss),
            "compute_type": compute_type(args),
            "draws": any(getattr(args, name, None) for name in DRAWING),
        },
        "determinism": read_back() | {"model.config.deterministic_mode": gpt.config.deterministic_mode, "args.seed": args.seed},
        "layers": layers(session.chunks, parameters),
        "classes": classes(session.chunks),
        "arguments": {name: str(value) for name, value in sorted(vars(args).items())},
    }


@dataclass(frozen=True)
class Built:
    """The model and its optimizer between two updates, as :class:`align_hooks.session.step.State` asks for them."""

    session: TorchSession

    @property
    def parameters(self) -> Parameters:
        """The parameter table, which stands since the model was built."""
        assert self.session.parameters is not None
        return self.session.parameters

    def weight_sketches(self) -> dict[str, list[float]]:
        """Signed sums of the main parameters."""
        return self.parameters.weight_sketches()

    def weights(self) -> tuple[dict[str, Array], dict[str, Any], dict[str, float]]:
        """Main parameters, configuration, squared sums."""
        return self.parameters.weights(), self.session.model_config, self.parameters.weight_squares()

    def moments(self) -> tuple[dict[str, dict[str, Array]], int, dict[str, str]]:
        """Adam's moments, its count of updates, its types."""
        optimizer = self.session.optimizer
        return moments(optimizer, self.parameters), updates_made(optimizer), moment_dtypes(optimizer)
