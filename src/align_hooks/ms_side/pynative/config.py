"""The configuration of the PyNative trainer, before anything is built from it.

Patch point: the return of ``Trainer._init_config``, a ``TrainConfig`` of nested dataclasses, from which the trainer then takes its
seed, its sizes and its model.
"""

import contextlib
import dataclasses
import difflib
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from align_hooks.configuration.values import ConfigurationError
from align_hooks.configuration.yaml_files import parsed
from align_hooks.errors import RefusedRun
from align_hooks.hooking.attach import installed_version
from align_hooks.hooking.hook import Args, Function, Instance, Kwargs, Result
from align_hooks.job import parsed_arguments
from align_hooks.ms_side.feeding import Sizes
from align_hooks.ms_side.hooks.config import NO_PADDING, flat
from align_hooks.ms_side.objects import Config
from align_hooks.ms_side.pynative.hyper_parallel import divides_models
from align_hooks.ms_side.pynative.rehearsal import rehearse
from align_hooks.ms_side.refusals import OF_A_PART, OF_PYNATIVE, pynative_refusals
from align_hooks.ms_side.session import MsSession
from align_hooks.process.ranks import Launch
from align_hooks.replay.batches import DocumentForm
from align_hooks.settings import PREFIX

TRAINS = "train"
"""The ``run_mode`` that trains; 2.0 has no other."""
CONSTANT = "ConstantWarmUpLR"
GRAPH_SECTIONS = ("trainer", "runner_config", "runner_wrapper", "lr_schedule", "parallel_config", "train_dataset_task", "use_legacy")
"""Sections of a YAML for the static graph, of which this trainer reads nothing."""
BESIDE = ("eval_dataset", "use_remove_redundant_dataset")
"""Sections that the trainer reads and that its configuration has no field for."""
NEAR = 0.8
"""The similarity (``difflib``, 0 to 1) from which on one name may be meant for another."""


def wrap(session: MsSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Return the configuration of ``Trainer._init_config`` with the settings applied."""
    given = inspect.signature(wrapped).bind(*args, **kwargs).arguments["config"]
    if session.settings.any_set() and (why := list(wrong_sections(session, given))):
        raise RefusedRun("\n".join(why))
    config = wrapped(*args, **kwargs)
    session.config, trains = config, get(config, "run_mode") in (None, TRAINS)
    if parsed_arguments.asked():
        parsed_arguments.leave(session, flat(config.to_dict()), {"mindformers": installed_version("mindformers")}, trains=trains)
    if trains:
        session.begin()
    if session.begun:
        apply(session, config)
    return config


def read_static(session: MsSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Call ``MindFormerConfig.__init__``, unless it is given a YAML that only the PyNative trainer reads."""
    given = [sections_in(path) for path in args if isinstance(path, str) and path.endswith((".yaml", ".yml"))]
    found = [name for sections in given for name in OF_PYNATIVE if name in sections and "runner_config" not in sections]
    if found and session.settings.any_set():
        raise RefusedRun(f"the YAML has {', '.join(found)}, which only MindFormers' PyNative trainer reads; train with --mode 1")
    return wrapped(*args, **kwargs)


def wrong_sections(session: MsSession, config: object) -> Iterator[str]:
    """Yield why the sections of a YAML are not this trainer's, a line each; print those of which it reads nothing."""
    from mindformers.pynative.config import TrainConfig

    sections, known = sections_in(config), [*(field.name for field in dataclasses.fields(TrainConfig)), *BESIDE]
    if graph := [name for name in GRAPH_SECTIONS if name in sections]:
        yield (
            f"the YAML has {', '.join(graph)}, which the static graph's trainer reads and this one does not; "
            f"train with --mode 0, or write the sections training, lr_scheduler and parallelism"
        )
        return
    for name in (name for name in sections if name not in known):
        if near := difflib.get_close_matches(name, known, 1, NEAR):
            yield f"the YAML has a section {name}, of which the trainer reads nothing; did you mean {near[0]}?"
        else:
            session.say(f"the YAML has a section {name}, of which the trainer reads nothing")


def sections_in(config: object) -> list[str]:
    """Return the sections in what the trainer is given: the path of a YAML, or its dict."""
    if isinstance(config, str):
        # what is wrong with the file the trainer itself reports
        with contextlib.suppress(OSError, ConfigurationError), parsed(Path(config).read_text(), config) as (_, node):
            return [key.value for key, _ in node.value] if node is not None and node.id == "mapping" else []
    return list(map(str, config)) if isinstance(config, dict) else []


def apply(session: MsSession, config: Config) -> None:
    """Apply the settings to the configuration, list each change, and refuse what only the user's YAML can change."""
    settings = session.settings
    ranks = session.launch.world_size
    why = list(pynative_refusals(settings, lambda key: get(config, key), ranks))
    if ranks > 1 and not divides_models():
        why.append(f"{ranks} ranks divide the model by hyper-parallel, which is not installed here; rehearse on one rank")
    if why:
        raise RefusedRun("\n".join(why))
    if (clip := get(config, "training.max_norm")) is not None and clip <= 0:
        session.say(f"training.max_norm is {clip}: the trainer multiplies every gradient by it; a large number switches clipping off")
    if settings.device == "cpu":
        rehearse(session)
        change(session, config, {"model.use_flash_attention": False}, "DEVICE")
    if settings.seed is not None:
        change(session, config, {"training.seed": settings.seed}, "SEED")
    if settings.deterministic:
        change(session, config, {"training.deterministic": True}, "DETERMINISTIC")
    if settings.learning_rate is not None:
        rate = {"lr_scheduler.type": CONSTANT, "lr_scheduler.learning_rate": settings.learning_rate, "lr_scheduler.warmup_steps": 0}
        change(session, config, rate | {"lr_scheduler.warmup_ratio": None}, "LEARNING_RATE")
    if settings.load_weights is not None:
        change(session, config, {"checkpoint.load_path": ""}, "LOAD_WEIGHTS")
    session.place = place_in(session.launch, config)
    if session.replay is not None:
        replay(session, config)


def place_in(launch: Launch, config: Config) -> dict[str, int]:
    """Return a rank's place in the job that a configuration asks for, as :meth:`.feeding.Sizes.place` does.

    Experts are divided among neighbours (``ParallelDims.build_mesh``)."""
    tensor, context, stages, experts = (int(get(config, f"parallelism.{name}") or 1) for name in OF_A_PART)
    sizes = Sizes(dp=launch.world_size // (tensor * context * stages), cp=context, mp=tensor, pp=stages)
    return sizes.place(launch.rank, launch.world_size) | {"ep": launch.rank % experts, "ep_size": experts}


def replay(session: MsSession, config: Config) -> None:
    """Check recorded batches, and fit the batch size to them; micro-batches stay as large as configured where they divide the rows."""
    feed = session.replay
    assert feed is not None
    facts = feed.run.batch_facts(feed.steps[0])
    length, vocabulary = get(config, "model.seq_length"), get(config, "model.vocab_size")
    feed.check(sequence=length, vocabulary=vocabulary, rows=facts.rows, form=DocumentForm.NONE)
    feed.say_left_out(session.say)
    feed.ranks, ranks = session.data_parallel, session.data_parallel[1]
    if facts.rows % ranks:
        raise RefusedRun(
            f"{feed.source} has {facts.rows} rows a step, which {ranks} data-parallel ranks cannot share alike; use fewer ranks"
        )
    rows, local = facts.rows, get(config, "training.local_batch_size")
    sizes = {"training.global_batch_size": rows, "training.local_batch_size": local if rows % (local * ranks) == 0 else rows // ranks}
    change(session, config, sizes | {"model.pad_token_id": NO_PADDING}, "REPLAY_BATCHES")


def change(session: MsSession, config: Config, values: Mapping[str, object], variable: str) -> None:
    """Set dotted keys, and list every change as an override."""
    for key, value in values.items():
        section, _, name = key.rpartition(".")
        before = get(config, key)
        if before != value:
            setattr(get(config, section), name, value)
            session.override(key, before, value, PREFIX + variable)


def get(config: Config, key: str) -> Any:
    """Return the value of a dotted key, None where it is not set."""
    value = config
    for part in key.split("."):
        value = vars(value).get(part) if value is not None else None  # attributes that are not set answer with a reader of a dict
    return value
