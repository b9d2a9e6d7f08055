"""Megatron's arguments, as parsed and not yet validated.

Patch point: the return of ``megatron.training.arguments.parse_args``. Every entry, from ``initialize_megatron`` in 0.12 to
``parse_and_validate_args`` in 0.19, calls it before anything is derived from the arguments, so a value set here reaches the data set's
shuffling, the scheduler and the model's config. ``validate_args`` would be late for the learning rate, and ``_set_random_seed`` for the
seed, which data sets read from ``args.seed``.
"""

import os
from collections.abc import Mapping

from align_hooks.errors import RefusedRun
from align_hooks.hooking.attach import installed_version
from align_hooks.hooking.hook import Args, Function, Instance, Kwargs, Result
from align_hooks.job import parsed_arguments
from align_hooks.replay.batches import Replay
from align_hooks.settings import PREFIX
from align_hooks.torch_side.environment import RENDEZVOUS
from align_hooks.torch_side.objects import Argument, Arguments
from align_hooks.torch_side.refusals import CONSTANT_RATE, refusals, rehearsal
from align_hooks.torch_side.seeds import set_deterministic
from align_hooks.torch_side.session import TorchSession

LENGTHS = ("train_iters", "train_samples")


def wrap(session: TorchSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Call ``parse_args``, and apply the settings to the arguments that it returns."""
    parsed = wrapped(*args, **kwargs)
    if parsed_arguments.asked():
        texts = {name: str(value) for name, value in sorted(vars(parsed).items())}
        parsed_arguments.leave(session, texts, {"megatron-core": installed_version("megatron-core")}, trains=trains(parsed))
    if trains(parsed):
        session.begin()
    if session.begun:
        apply(session, parsed)
    return parsed


def trains(args: Arguments) -> bool:
    """Return whether the process will train: a converter or a text server parses the same arguments without a length."""
    return any(getattr(args, name, None) for name in LENGTHS) and not getattr(args, "skip_train", False)


def apply(session: TorchSession, args: Arguments) -> None:
    """Apply the settings to the arguments, list each change, and refuse what only the user's own flags can change."""
    settings = session.settings

    def get(name: str) -> Argument:
        return getattr(args, name, None)

    if why := list(refusals(settings, get)):
        raise RefusedRun("\n".join(why))
    if settings.device == "cpu":
        _set(session, args, rehearsal(get), "DEVICE")
        if trains(args) and os.environ.get("WORLD_SIZE", "1") == "1":  # torch needs an address for a process group, which torchrun sets
            for name, value in RENDEZVOUS.items():
                if name not in os.environ:
                    os.environ[name] = value
                    session.override(name, "not set", value, f"{PREFIX}DEVICE")
    if settings.seed is not None:
        _set(session, args, {"seed": settings.seed, "random_seed": settings.seed}, "SEED")  # the second is Megatron-Bridge's, of data
    if settings.deterministic:
        set_deterministic()
        _set(session, args, {"npu_deterministic": True}, "DETERMINISTIC")  # MindSpeed's own mode
        # Until 0.18 Megatron's mode refuses --use-flash-attn, which MindSpeed's attention needs; torch and the variables are set anyway.
        if not (hasattr(args, "npu_deterministic") and get("use_flash_attn")):
            _set(session, args, {"deterministic_mode": True}, "DETERMINISTIC")
    if settings.learning_rate is not None:
        rate = {"lr": settings.learning_rate, "min_lr": settings.learning_rate}
        _set(session, args, rate | CONSTANT_RATE, "LEARNING_RATE")
    if session.replay is not None:
        _replay(session, args, session.replay)


def _replay(session: TorchSession, args: Arguments, replay: Replay) -> None:
    """End training with the last recorded step, and leave evaluation out."""
    last = replay.last
    _set(session, args, {"eval_iters": 0, "full_validation": False}, "REPLAY_BATCHES")
    if (args.train_iters is None or args.train_iters > last + 1) and not (args.exit_interval and args.exit_interval <= last + 1):
        if "args.exit_interval" not in {change["what"] for change in session.overrides}:  # a script may read its arguments several times
            session.say(
                f"{replay.source} ends with step {last}: training stops after iteration {last + 1} of {args.train_iters or 'its samples'}"
            )
        _set(session, args, {"exit_interval": last + 1}, "REPLAY_BATCHES")


def _set(session: TorchSession, args: Arguments, values: Mapping[str, Argument], variable: str) -> None:
    """Set the existing arguments among ``values``, and list every change as an override."""
    for name, value in values.items():
        before = getattr(args, name, None)
        if hasattr(args, name) and before != value:
            setattr(args, name, value)
            session.override(f"args.{name}", before, value, PREFIX + variable)
