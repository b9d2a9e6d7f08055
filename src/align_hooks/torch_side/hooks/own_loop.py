"""The steps of a training loop that is not Megatron-LM's, seen at what every loop on megatron.core calls.

Patch points: ``get_megatron_optimizer``, which is given the model; the schedules of ``megatron.core.pipeline_parallel``, of which a call
that is not ``forward_only`` begins a step; and the optimizer's ``step`` (:mod:`.update`), whose return ends it. Megatron-LM's own loop
passes them inside ``train_step``, where a step is under way already.

Steps are counted from ``iteration`` of the arguments (:mod:`align_hooks.torch_side.run_arguments`). A loop that states none starts with 0;
as nothing says at which step it resumes, a run that resumes is refused.
"""

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from msgspec.structs import replace

from align_hooks.errors import RefusedRun
from align_hooks.hooking.hook import Args, Function, Instance, Kwargs, Result, bound
from align_hooks.record.format.schema import BESIDE_FORMULA, CLIPPED_APART
from align_hooks.settings import PREFIX, Settings
from align_hooks.torch_side.hooks.data import recorded
from align_hooks.torch_side.hooks.model import prepare
from align_hooks.torch_side.hooks.train_step import close, leave_step, listening, open_step
from align_hooks.torch_side.objects import Module
from align_hooks.torch_side.optimizer import chain, leaf_optimizers, updates_made
from align_hooks.torch_side.place import place
from align_hooks.torch_side.refusals import refusals
from align_hooks.torch_side.run_arguments import OwnArguments, are_own, are_parsed, get_args, samples_of_step, set_args
from align_hooks.torch_side.session import BuiltModel, TorchSession
from align_hooks.torch_side.structure import unwrap

OF_ARGUMENTS = ("seed", "deterministic", "learning_rate")
"""Settings that act through a loop's arguments."""
OF_MEGATRON = ("megatron.training.", "megatron.core.rerun_state_machine")
"""Modules, by the beginnings of their names, of which only Megatron-LM's own loop must call what is hooked."""


def optimizer(session: TorchSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Call ``get_megatron_optimizer``, keep model and optimizer, and refuse settings that act through arguments where there are none."""
    made = wrapped(*args, **kwargs)
    with session.recording.isolate_failures("what the run is"):
        session.built.append(BuiltModel(tuple(inspect.signature(wrapped).bind(*args, **kwargs).arguments["model_chunks"]), made))
    if not are_parsed():
        session.patch_log.excuse(*OF_MEGATRON)
    if not (are_parsed() or are_own()):
        refuse_without_effect(session.settings)
    return made


def refuse_without_effect(settings: Settings) -> None:
    """Refuse settings that act through a loop's arguments."""
    asked = " and ".join(f"{PREFIX}{name.upper()}" for name in OF_ARGUMENTS if getattr(settings, name) not in (None, False))
    if asked:
        raise RefusedRun(f"{asked}: this training loop is not Megatron-LM's and has no arguments of its own; set it in the script")


def configurations(built: BuiltModel, **stated: object) -> OwnArguments:
    """Return the arguments that a loop parsed, if any, and that the configurations of model, optimizer and wrapper state."""
    model, chunk = unwrap(built.chunks[0]), built.chunks[0]
    parts = (model.config, getattr(built.optimizer, "config", None), getattr(chunk, "ddp_config", None))
    parsed = [get_args()] if are_parsed() else []
    stated |= {"vocab_size": getattr(model.config, "vocab_size", None) or getattr(model, "vocab_size", None)}
    return OwnArguments(*parsed, *parts, iteration=0, consumed_train_samples=0, use_rope_scaling=None, **stated)


def scheduler(session: TorchSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> None:
    """Make an ``OptimizerParamScheduler``, and keep it beside its optimizer."""
    wrapped(*args, **kwargs)
    for built in session.built:
        if built.optimizer is getattr(instance, "optimizer", None):
            built.scheduler = instance


def forward_backward(session: TorchSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Call a schedule; where it trains outside of ``train_step`` it begins a step, or repeats the pass of one."""
    if session.patch_log.calls["train_step"]:  # inside of Megatron-LM's own loop, whose step may have failed to open
        return wrapped(*args, **kwargs)
    call = bound(wrapped, args, kwargs)
    given = call.arguments
    if given.get("forward_only") or (built := trained(session, given)) is None:
        return wrapped(*args, **kwargs)
    if session.step is None:
        begin(session, built, given)
    elif session.current.attempt.calls:  # 0 after the rerun state machine asked for a repetition
        with session.recording.isolate_failures("the step"):
            raise RefusedRun("this loop calls a schedule several times before an update; a step is recorded of one call")
    session.current.attempt.calls += 1
    given["forward_step_func"] = listening(session, given["forward_step_func"])
    try:
        return wrapped(*call.args, **call.kwargs)
    except BaseException:
        leave_step(session)
        raise


def trained(session: TorchSession, given: Mapping[str, object]) -> BuiltModel | None:
    """Return the recorded model, where a schedule is given it; None for another model of the process."""
    model = given["model"]
    chunks = identities(model if isinstance(model, list) else [model])
    built = next((built for built in session.built if chunks <= identities(built.chunks)), None)
    if built is None:
        session.say_once("a model trains whose optimizer get_megatron_optimizer did not make: it is not recorded")
    elif session.own_loop not in (None, built):
        session.say_once("this process trains several models: only the first that trains is recorded")
        return None
    return built


def identities(chunks: Iterable[Module]) -> set[int]:
    """Return the ids of chunks without their wrappers, of which a loop may have some of its own."""
    return {id(unwrap(chunk)) for chunk in chunks}


def begin(session: TorchSession, built: BuiltModel, given: dict[str, Any]) -> None:
    """Open a step, and before the first step the run."""
    if session.own_loop is None:
        session.own_loop = built
        session.patch_log.excuse(*OF_MEGATRON)
        with session.recording.isolate_failures("what the run is"), session.beginning():
            if not session.begun:
                begin_session(session)
            if not are_own():  # those of Megatron-Bridge are there before
                arguments = configurations(built, **of_call(given))
                refuse(session.settings, arguments, built, given)
                set_args(arguments)
                prepare(session, list(built.chunks), built.optimizer)
    args = get_args()
    if hasattr(args, "micro_batches"):
        args.micro_batches = given["num_microbatches"]
    if session.replay is not None:
        built.fed = built.fed or [recorded(session, session.replay) for _ in built.chunks]
        given["data_iterator"] = built.fed if isinstance(given["data_iterator"], list) else built.fed[0]
    open_step(session, lambda: args.iteration + built.made, built.scheduler)


def begin_session(session: TorchSession) -> None:
    """Begin the session of a loop that parsed no arguments; its launcher may have set rank and size after the framework's import."""
    refuse_without_effect(session.settings)
    if torch.distributed.is_initialized():
        rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
        session.launch = session.recording.launch = replace(session.launch, rank=rank, world_size=size)
    session.begin()


def refuse(settings: Settings, arguments: OwnArguments, built: BuiltModel, given: Mapping[str, Any]) -> None:
    """Refuse what the configurations ask for and cannot be read, and what a loop does not say, or says otherwise than schedules take it."""
    if why := list(refusals(settings, lambda name: getattr(arguments, name, None))):
        raise RefusedRun("\n".join(why))
    if int(updates_made(leaf_optimizers(built.optimizer))):
        raise RefusedRun("this run resumes, and its training loop does not say at which step; record it from its first step")
    if given["seq_length"] <= 1:
        raise RefusedRun("this loop tells its schedule of rows of one token, as those of its batches differ: that was not tried")
    if beside := [name for name in (*BESIDE_FORMULA, CLIPPED_APART) if getattr(arguments, name, None)]:
        raise RefusedRun(f"{' and '.join(beside)} in a loop of one's own, whose arguments no record has: updates could not be judged")
    if place()["cp_size"] > 1:
        raise RefusedRun("context parallelism in a loop of one's own: each has its own way to share losses; use one context-parallel rank")


def of_call(given: Mapping[str, Any]) -> dict[str, object]:
    """Return the arguments that a call of a schedule states."""
    rows, count, ranks = given["micro_batch_size"], given["num_microbatches"], place()["dp_size"]
    of_batch = {"micro_batch_size": rows, "micro_batches": count, "global_batch_size": rows * count * ranks}
    return {"seq_length": given["seq_length"], "data_parallel_size": ranks, **of_batch}


def end(session: TorchSession, optimizer: Instance, *, updated: bool) -> None:
    """Close the step, where the optimizer is that of the recorded model and no ``train_step`` is around."""
    built = session.own_loop
    if built is None or session.step is None:
        return
    if optimizer is not built.optimizer:
        if not set(map(id, chain(built.optimizer))) & set(map(id, chain(optimizer))):
            return  # another model's
        with session.recording.isolate_failures("the step"):
            # in 0.16 Muon's, around Adam's
            raise RefusedRun("this optimizer was put together of several that get_megatron_optimizer made; it is not recorded")
    leave(session, built, skipped=not updated)


def zero_grad_buffer(session: TorchSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Clear the gradients of a chunk; a step that is still open then was left without an update."""
    built = session.own_loop
    if built is not None and session.step is not None and session.current.attempt.calls and instance in built.chunks:
        leave(session, built, skipped=True)
    return wrapped(*args, **kwargs)


def leave(session: TorchSession, built: BuiltModel, *, skipped: bool) -> None:
    """Record and count the step that ended."""
    close(session, skipped=skipped)
    args = get_args()
    built.made += 1
    if "consumed_train_samples" in vars(args) and isinstance(args, OwnArguments):
        args.consumed_train_samples += samples_of_step()
    leave_step(session)
