"""Model and optimizer, built and not yet trained.

Patch point: the return of ``setup_model_and_optimizer``. Checkpoints are loaded by then, nothing is evaluated, and every later hook needs
the parameter table made here. All refusals by the built objects happen here, before the data is opened.
"""

import functools

import torch

from align_hooks._version import __version__
from align_hooks.errors import RefusedRun
from align_hooks.families.own import refuse_without_sizes
from align_hooks.hooking.attach import installed_version, versions_beside
from align_hooks.hooking.commits import commits
from align_hooks.hooking.hook import Args, Function, Instance, Kwargs, Result
from align_hooks.quantities.activations import ACTIVATIONS
from align_hooks.quantities.optimizer_state import OPTIMIZER_STATE
from align_hooks.session.loading import layer_facts, load_state, say_own_names
from align_hooks.session.step import Moments, record_state
from align_hooks.settings import PREFIX
from align_hooks.torch_side.activations import bytes_of, check_teacher, probes_of, refuse_unmatched
from align_hooks.torch_side.arrays import dtype_of
from align_hooks.torch_side.devices import device_name
from align_hooks.torch_side.fully_sharded import install_main_weights
from align_hooks.torch_side.hooks.data import form_of, refuse_unread
from align_hooks.torch_side.hooks.forward import see_overrides
from align_hooks.torch_side.model import Parameters, model_facts, parameters_of
from align_hooks.torch_side.objects import Arguments, Module, Optimizer
from align_hooks.torch_side.optimizer import (
    leaf_optimizers,
    load_moments,
    moment_dtypes,
    moments,
    moments_of,
    optimizer_facts,
    updated_layer_wise,
    updates_made,
)
from align_hooks.torch_side.place import place, refuse_layouts
from align_hooks.torch_side.refusals import QUANTIZED
from align_hooks.torch_side.routing import are_captured, give_experts, refuse_unrouted, routers_of
from align_hooks.torch_side.run_arguments import OwnArguments, get_args, num_micro_batches, texts
from align_hooks.torch_side.seeds import read_back
from align_hooks.torch_side.sequence_sums import IS_SUMMED, refuse_unread_schedule
from align_hooks.torch_side.session import TorchSession
from align_hooks.torch_side.state import DELAYED
from align_hooks.torch_side.structure import unwrap

BESIDE = ("megatron.bridge", "mindspeed", "mindspeed_llm", "torch_npu", "transformer_engine", "apex", "flash_attn", "triton")
"""Packages beside Megatron-LM that change numbers, by the names of their modules."""
BY_LAYER = ("te_precision_config_file", "kitchen_config_file", "kitchen_recipe_number")
"""Arguments that give each layer's products a format of its own."""
DRAWING = ("hidden_dropout", "attention_dropout", "moe_input_jitter_eps")
"""Arguments with which the model draws random numbers."""


def wrap(session: TorchSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Call ``setup_model_and_optimizer``, load weights, describe the run and record the initial weights."""
    built = wrapped(*args, **kwargs)
    with session.recording.isolate_failures("what the run is"), session.beginning():
        prepare(session, built[0], built[1])
    return built


def prepare(session: TorchSession, model: list[Module], optimizer: Optimizer) -> None:
    """Load, describe, replay and record what the settings ask for, between building and training."""
    args, where = get_args(), place()
    refuse_layouts(where, session.launch.world_size, args)
    if session.settings.run is not None:
        refuse_unread_schedule(where)
    leaves, gpt = leaf_optimizers(optimizer), unwrap(model[0])
    with refuse_without_sizes():
        parameters = parameters_of(model, vocabulary(args), where, leaves, args=args, layer_wise=updated_layer_wise(optimizer))
        session.model_config = model_facts(gpt, parameters, args)
    session.parameters, session.place, session.chunks = parameters, where, tuple(map(unwrap, model))
    see_overrides(session)
    session.routers = routers_of(session.chunks, parameters)
    refuse_unrouted(session)
    if are_captured() and session.settings.run is not None:
        session.say("CUDA graphs replay the layers with experts: neither the terms that balance these nor the tokens of each are recorded")
    writer = session.recording.writer
    if session.settings.load_weights is not None and not (writer is not None and writer.resumes(args.iteration)):
        states = [leaf.optimizer.state for leaf in leaves]
        stateful = any(states)
        for state in states:
            state.clear()
        load_state(session, compute_type(args), functools.partial(load_moments, optimizer, parameters), stateful=stateful)
        for chunk in model:
            install_main_weights(chunk)
    if session.replay is not None:
        form = form_of(args)
        refuse_unread(form)
        session.replay.first = args.iteration
        session.replay.ranks = (where["dp"], where["dp_size"])
        rows, every = None if getattr(args, "rampup_batch_size", None) else args.global_batch_size, session.launch.rank == 0
        session.replay.check(sequence=args.seq_length, vocabulary=parameters.dims.padded, rows=rows, every=every, form=form)
        session.override("training data", "the script's data set", session.replay.source, f"{PREFIX}REPLAY_BATCHES")
        session.replay.say_left_out(session.say)
    planned = range(args.iteration, intended(session, args))
    give_experts(session, planned)
    if session.settings.steps(ACTIVATIONS) or session.teacher is not None:
        refuse_unmatched(session)
        session.probe_points = probes_of(session)
        check_teacher(session, planned)
        session.announce_activations(bytes_of(session, [args.micro_batch_size] * num_micro_batches()), planned)
    say_own_names(session, parameters.family.name, parameters.misfits, (parameter.whole for parameter in parameters))
    unknown = sorted({type(leaf.optimizer).__name__ for leaf in leaves if not moments_of(leaf.optimizer)})
    if unknown and (session.settings.steps(OPTIMIZER_STATE) or session.settings.load_weights is not None):
        session.say(
            f"the state of {' and '.join(unknown)} is neither recorded nor loaded: only those of Adam and Megatron's Muon are known"
        )
    session.describe(
        place=where, facts=facts(session, gpt, optimizer, parameters, args), steps=planned, is_whole=args.train_iters is not None
    )
    if session.settings.deterministic and not torch.are_deterministic_algorithms_enabled():
        raise RefusedRun(f"{PREFIX}DETERMINISTIC=1: the script switched torch's deterministic algorithms off again; remove that call")
    session.optimizer, session.leaves = optimizer, leaves
    record_state(session, args.iteration, functools.partial(optimizer_state, session))


def vocabulary(args: Arguments) -> int:
    """Return the number of tokens without padding."""
    if isinstance(args, OwnArguments):
        return int(args.vocab_size)
    from megatron.training import get_tokenizer  # not at the top: a loop of one's own may come without megatron.training

    return int(get_tokenizer().vocab_size)


def intended(session: TorchSession, args: Arguments) -> int:
    """Return the planned last iteration: ``--train-iters``, or earlier with ``--exit-interval``; where it is unknown the last asked for."""
    if args.train_iters is None:
        return 1 + max(int(args.iteration), session.last_asked())
    if args.exit_interval:
        return int(min(args.train_iters, (args.iteration // args.exit_interval + 1) * args.exit_interval))
    return int(args.train_iters)


def compute_type(args: Arguments) -> str:
    """Return the type in which the model computes."""
    return "bfloat16" if args.bf16 else "float16" if args.fp16 else "float32"


def products(args: Arguments) -> dict[str, object] | None:
    """Return the format of matrix products; None where a file sets it for each layer."""
    if any(getattr(args, name, None) is not None for name in BY_LAYER):
        return None
    eight, four = args.fp8, getattr(args, "fp4", None)
    if not (eight or four):
        return {"format": ""}
    recipe = str(args.fp8_recipe if eight else args.fp4_recipe)
    ends = ("start", "end") if args.first_last_layers_bf16 else ()

    def is_set(*names: str) -> bool:
        return any(getattr(args, name, False) for name in names)

    return {
        "format": eight or four,
        "recipe": recipe,
        "weight_gradients": is_set("fp8_wgrad") or recipe != DELAYED,  # other recipes do not read the argument
        "exempt_layers": [getattr(args, f"num_layers_at_{end}_in_bf16") for end in ends] or [0, 0],
        "attention": is_set("fp8_dot_product_attention", "fp8_multi_head_attention"),
        "output_layer": is_set("fp8_output_proj"),
        "parameters": is_set(*QUANTIZED),
    }


def draws(args: Arguments) -> bool | None:
    """Return whether the model draws random numbers; None where a deciding argument is missing."""
    asked = [bool(getattr(args, name)) if hasattr(args, name) else None for name in DRAWING]
    return True if True in asked else None if None in asked else False


def facts(session: TorchSession, gpt: Module, optimizer: Optimizer, parameters: Parameters, args: Arguments) -> dict[str, object]:
    """Return the facts of a Megatron run for ``run.json``."""
    modules = [module for chunk in session.chunks for module in chunk.modules()]
    weights = ((module, weight) for module in modules for weight in module.parameters(recurse=False))
    # Megatron computes in the type of the weight, and never with the fp32 copies that the optimizer updates
    typed = ((type(module).__name__, id(weight), dtype_of(weight.dtype), dtype_of(weight.dtype)) for module, weight in weights)
    return {
        "framework": "Megatron-LM",
        "versions": {
            "align_hooks": __version__,
            "megatron-core": installed_version("megatron-core"),
            "torch": torch.__version__,
            **versions_beside(BESIDE),
        },
        "commits": commits(("megatron.core", "megatron.training", *BESIDE)),
        "device": device_name(next(gpt.parameters()).device),
        "model": session.model_config,
        "padded_vocabulary": parameters.dims.padded,
        "optimizer": optimizer_facts(optimizer, parameters) | {"loss_scale": float(optimizer.get_loss_scale())},
        "training": {
            "micro_batch_size": args.micro_batch_size,
            "global_batch_size": args.global_batch_size,
            "sequence_length": args.seq_length,
            "train_steps": args.train_iters,
            "per_token_loss": gpt.config.calculate_per_token_loss,
            "mean_over_sequence": IS_SUMMED,
            "compute_type": compute_type(args),
            "products": products(args),
            "draws": draws(args),
        },
        "determinism": read_back() | {"model.config.deterministic_mode": gpt.config.deterministic_mode, "args.seed": args.seed},
        "layers": layer_facts(typed, {id(parameter.model): parameter.whole.pieces for parameter in parameters}),
        "classes": sorted({type(module).__name__ for module in modules}),
        "arguments": texts(args),
    }


def optimizer_state(session: TorchSession) -> Moments:
    """Return the moments, Adam's count of updates, and the moments' types, between two updates."""
    assert session.parameters is not None
    return moments(session.optimizer, session.parameters), int(updates_made(session.leaves)), moment_dtypes(session.optimizer)
