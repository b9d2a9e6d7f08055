"""MindFormers' configuration, before anything is built from it.

Patch point: the argument of ``build_context``. Every script calls it first, with the MindFormerConfig object from which the Trainer builds
everything. Later the device target and the deterministic switch are fixed, and the Trainer has copied parts of the configuration.
"""

import importlib
import inspect
import os
from collections.abc import Mapping
from typing import Any

import mindspore
from mindformers.tools.register import MindFormerConfig, MindFormerModuleType, MindFormerRegister

from align_hooks.checklist.mindformers_models import DEFAULTS
from align_hooks.errors import RefusedRun
from align_hooks.families.family import InMindFormers
from align_hooks.families.registry import FAMILIES
from align_hooks.hooking.attach import installed_version
from align_hooks.hooking.hook import Args, Function, Instance, Kwargs, Result
from align_hooks.job import parsed_arguments
from align_hooks.ms_side.columns import CUT, IGNORED, RESET, UNCUT, takes_cut
from align_hooks.ms_side.feeding import Sizes, is_fed_whole, is_semi_auto, sizes_of
from align_hooks.ms_side.objects import Config
from align_hooks.ms_side.refusals import TRAINS, refusals, rehearsal
from align_hooks.ms_side.rehearsal import install
from align_hooks.ms_side.session import MsSession
from align_hooks.settings import PREFIX

NO_PADDING = -1
"""An id that never occurs. Without flash attention MindFormers also masks pad ids in the attention, and Megatron does not."""
COLUMNS, BY_NAME = "train_dataset.input_columns", "train_dataset.construct_args_key"
"""The columns of a batch, and their names as arguments of the model, which are positional without the second."""
OF_READER = ("train_dataset.data_loader.config", "train_dataset_task.dataset_config.data_loader.config")
"""The settings of Megatron's reader, in the section of the data set and in its task's."""


def wrap(session: MsSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Call ``build_context`` after the settings were applied to its configuration."""
    config = inspect.signature(wrapped).bind(*args, **kwargs).arguments["config"]
    if isinstance(config, MindFormerConfig) and session.config is not config:
        session.config, trains = config, config.get("run_mode") in TRAINS
        if parsed_arguments.asked():
            parsed_arguments.leave(session, flat(config), {"mindformers": installed_version("mindformers")}, trains=trains)
        if trains:
            session.begin()
        if session.begun:
            apply(session, config)
    return wrapped(*args, **kwargs)


def apply(session: MsSession, config: Config) -> None:
    """Apply the settings to the configuration, list each change, and refuse what only the user's YAML can change."""
    settings = session.settings
    if why := list(refusals(settings, lambda key: get(config, key), mindspore.__version__)):
        raise RefusedRun("\n".join(why))
    if os.environ.get("MS_ROLE") == "MS_WORKER" and not config.get("use_parallel"):
        raise RefusedRun("msrun started this with use_parallel off, so its scheduler trains as well; set use_parallel: True in the YAML")
    if settings.device == "cpu":
        change(session, config, rehearsal(lambda key: get(config, key), newer=is_newer(config)), "DEVICE")
        if is_newer(config):
            install(session)
    if settings.seed is not None:
        # Megatron's reader has a seed of its own in MindFormers, and that of --seed in Megatron-LM
        keys = ["seed", *(f"{section}.seed" for section in OF_READER if get(config, section) is not None)]
        change(session, config, dict.fromkeys(keys, settings.seed), "SEED")
    if settings.deterministic:
        # Since 1.9 MindFormers drops context.deterministic with a warning; this is the switch that reaches MindSpore.
        change(session, config, {"train_precision_sync": True}, "DETERMINISTIC")
    if settings.learning_rate is not None:
        rate = {"lr_schedule": None, "grouped_lr_schedule": None, "optimizer.learning_rate": settings.learning_rate}
        change(session, config, rate, "LEARNING_RATE")
    if settings.load_weights is not None:
        change(session, config, {"load_checkpoint": ""}, "LOAD_WEIGHTS")
    if session.replay is not None:
        replay(session, config)


def replay(session: MsSession, config: Config) -> None:
    """Put recorded batches in place of the configured data, keeping the schedule and the number of steps."""
    feed = session.replay
    assert feed is not None
    recorded = as_recorded(config)
    facts = feed.run.batch_facts(feed.steps[0])
    feed.check(
        sequence=of_model(config, "seq_length"), vocabulary=of_model(config, "vocab_size"), rows=facts.rows, every=session.launch.rank == 0
    )
    feed.say_left_out(session.say)
    feed.ranks, sizes = share(session), planned_sizes(session)
    if sizes is None:
        rows, left_over = divmod(facts.rows, session.launch.world_size)
        if left_over:
            raise RefusedRun(
                f"{feed.source} has {facts.rows} rows a step, which {session.launch.world_size} ranks cannot share alike; "
                f"start as many ranks as divide them"
            )
    else:
        rows = sizes.batch_size(facts.rows, feed.source)
        if not sizes.whole:  # an entry for each column
            strategy = [[sizes.dp, 1, 1, 1] if name == "attention_mask" else [sizes.dp, 1] for name in recorded[COLUMNS]]
            change(session, config, {"parallel.dataset_strategy": strategy}, "REPLAY_BATCHES")
    changes = {
        "train_dataset.data_loader": {"type": "NumpyDataloader", "dataset_dir": str(feed.source.path), "shuffle": False},
        "train_dataset.batch_size": rows,
        "train_dataset.repeat": 1,
        "train_dataset.num_parallel_workers": 1,
        "train_dataset_task.type": "NumpyDataloader",
        "data_skip_steps": 0,
        "runner_config.epochs": 1,
        "runner_config.batch_size": rows,
        "model.model_config.batch_size": rows,
    } | recorded
    if not feeds_cut(config):
        changes["model.model_config.ignore_token_id"] = IGNORED
    register(session)  # again: a class that a user added has the same name, and may have come later
    change(session, config, changes, "REPLAY_BATCHES")
    change(session, config, {"train_dataset_task.dataset_config": config.train_dataset}, "REPLAY_BATCHES", silent=True)


def as_recorded(config: Config) -> dict[str, Any]:
    """Return the settings with which a model computes the loss of a recorded batch."""
    cut = feeds_cut(config)
    columns = list(RESET if resets(config) else CUT if cut else UNCUT)
    settings = {COLUMNS: columns} | ({BY_NAME: columns} if cut else {})
    sliced = {"model.model_config.input_sliced_sig": True} if cut and not is_newer(config) else {}
    return settings | sliced | {"model.model_config.pad_token_id": NO_PADDING}


def register(session: MsSession) -> None:
    """Register the class of recorded batches as NumpyDataloader."""
    if session.data_loader is not None:
        MindFormerRegister.register(MindFormerModuleType.DATASET)(session.data_loader)


def of_model(config: Config, name: str) -> int:
    """Return a size of the model, by default the model's own."""
    size = get(config, f"model.model_config.{name}")
    return int(DEFAULTS[name][configured(config).model_type] if size is None else size)


def configured(config: Config) -> InMindFormers:
    """Return MindFormers' way of building the YAML's model; the first way for a model of no family, which is refused once built."""
    ways = [built for family in FAMILIES for built in family.mindformers if built.legacy is not is_newer(config)]
    name = get(config, "model.model_config.model_type" if is_newer(config) else "model.arch.type")
    return next((built for built in ways if name == (built.network if built.legacy else built.model_type)), ways[0])


def is_newer(config: Config) -> bool:
    """Return whether the YAML builds a model of ``use_legacy: False``."""
    return config is not None and config.get("use_legacy") is False


def resets(config: Config) -> bool:
    """Return whether the model reads restarting positions and their mask; refuse masks that the model would make of lengths."""
    if not is_newer(config) or not get(config, "model.model_config.use_eod_reset"):
        return False
    if get(config, "model.model_config.use_eod_attn_mask_compression") or get(config, "model.model_config.use_attn_mask_compression"):
        raise RefusedRun("use_eod_reset with compressed masks takes lengths of samples, which no record has; switch the compression off")
    return True


def feeds_cut(config: Config) -> bool:
    """Return whether the installed model reads the columns CUT; call it late, for this module is loaded during MindFormers' import."""
    if is_newer(config):
        return True
    built = configured(config)
    return takes_cut(getattr(importlib.import_module(built.module), built.network))


def ignored_label(config: Config) -> int | None:
    """Return the label of tokens that do not count; None where the installed model reads a mask."""
    if feeds_cut(config):
        return None
    label = get(config, "model.model_config.ignore_token_id") if config is not None else None
    return IGNORED if label is None else int(label)


def planned_sizes(session: MsSession) -> Sizes | None:
    """Return the sizes of a semi-automatic job of several ranks, before it is built; None for another job."""
    config = session.config
    if config is None or session.launch.world_size == 1 or not is_semi_auto(config):
        return None
    return sizes_of(config, whole=is_fed_whole(config.parallel))


def share(session: MsSession) -> tuple[int, int]:
    """Return this rank's part of a step, and the number of parts."""
    sizes, rank, ranks = planned_sizes(session), session.launch.rank, session.launch.world_size
    return (rank, ranks) if sizes is None else sizes.share(sizes.place(rank, ranks))


def change(session: MsSession, config: Config, values: Mapping[str, object], variable: str, *, silent: bool = False) -> None:
    """Set dotted keys, with new sections where missing, and list every change as an override."""
    for key, value in values.items():
        *path, name = key.split(".")
        section = config
        for part in path:
            if section.get(part) is None:
                section[part] = MindFormerConfig()
            section = section[part]
        before = section.get(name)
        if before != value:
            section[name] = MindFormerConfig(**value) if type(value) is dict else value
            if not silent:
                session.override(key, before, value, PREFIX + variable)


def get(config: Config, key: str) -> Config:
    """Return the value of a dotted key, None where it is not set."""
    value = config
    for part in key.split("."):
        value = value.get(part) if value is not None else None
    return value


def flat(config: Config, prefix: str = "") -> dict[str, str]:
    """Map the dotted keys of the configuration to their values' texts."""
    texts: dict[str, str] = {}
    for key, value in config.items():
        texts |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": str(value)}
    return texts
