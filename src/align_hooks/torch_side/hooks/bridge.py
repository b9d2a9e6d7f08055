"""Megatron-Bridge's loop: its configuration before anything is derived from it, and what it built.

Patch points: ``runtime_config_update``, which ``pretrain`` calls first, and the return of ``setup``, when checkpoints are loaded and
nothing is trained. Its steps are seen as those of every loop on megatron.core (:mod:`.own_loop`).
"""

import inspect

from packaging.specifiers import SpecifierSet

from align_hooks.errors import RefusedRun
from align_hooks.hooking.attach import installed_version
from align_hooks.hooking.hook import Args, Function, Instance, Kwargs, Result
from align_hooks.settings import PREFIX
from align_hooks.torch_side.hooks.arguments import apply
from align_hooks.torch_side.hooks.model import prepare
from align_hooks.torch_side.objects import Config
from align_hooks.torch_side.run_arguments import OwnArguments, set_args
from align_hooks.torch_side.session import TorchSession

TRIED = ">=0.6,<0.7"
"""Versions of Megatron-Bridge."""
PARTS = ("train", "model", "optimizer", "scheduler", "ddp", "rng", "validation", "dist", "dataset", "checkpoint")
"""The members of a ``ConfigContainer`` in which an argument is looked for, the first first."""


def config(session: TorchSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Call ``runtime_config_update`` on a configuration to which the settings have been applied, unless it only evaluates."""
    container = inspect.signature(wrapped).bind(*args, **kwargs).arguments["cfg"]
    if getattr(container.validation, "skip_train", False):
        return wrapped(*args, **kwargs)
    # not by the catalogue: other trainers import its modules and train by loops of their own
    if (version := installed_version("megatron-bridge")) not in SpecifierSet(TRIED):
        raise RefusedRun(f"Megatron-Bridge {version} was not tried, {TRIED} was: use such a version, or unset the variables")
    arguments = arguments_of(container)
    set_args(arguments)
    session.begin()
    if session.begun:
        apply(session, arguments)
        if session.settings.device == "cpu":
            use_local_layers(session, container.model)
    return wrapped(*args, **kwargs)


def use_local_layers(session: TorchSession, model: Config) -> None:
    """Give a rehearsal Megatron's local layers where the model has Bridge's default, Transformer Engine's."""
    specification = getattr(model, "transformer_layer_spec", None)
    if getattr(specification, "__name__", "") == "default_layer_spec":
        model.transformer_layer_spec = vars(inspect.getmodule(specification))["local_layer_spec"]
        session.override("model.transformer_layer_spec", "default_layer_spec", "local_layer_spec", f"{PREFIX}DEVICE")


def setup(session: TorchSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Call ``setup``, load weights, describe the run and record the initial weights."""
    built = wrapped(*args, **kwargs)
    if session.begun and built.optimizer is not None:
        with session.recording.isolate_failures("what the run is"), session.beginning():
            container, progress = built.state.cfg, built.state.train_state
            set_args(arguments_of(container, progress, iteration=progress.step, data_parallel_size=container.data_parallel_size))
            prepare(session, built.model, built.optimizer)
    return built


def arguments_of(container: Config, *beside: object, **stated: object) -> OwnArguments:
    """Return a ``ConfigContainer``'s members by the names of Megatron-LM's arguments."""
    return OwnArguments(*(getattr(container, part, None) for part in PARTS), *beside, **stated)
