"""What MindFormers would train with: a JSON file of a list of YAML texts, and one to write a list of answers to.

Each answer is ``{"refused": "<a line>"}`` or ``{"built": {...}}``, flat, with these sections. MindFormers' own trainer builds all of it, on
a CPU and without initialising a weight; it is stopped where it would begin to train.

- ``transformer.<field>``: the TransformerConfig of a newer model; ``model.<field>`` the configuration of an older one.
- ``network.<path>.<attribute>``: what the cells of the built network hold and read again, tables of positions among them, as a sum where
  they are long, and ``config.<field>`` there what they ask the configuration for when they are called;
  ``weights.<name>`` the shape and type of its weights, and how they are drawn.
- ``schedule.rates``: the learning rates of the first 60 steps; ``schedule.<field>`` what the schedule holds.
- ``optimizer.<field>``, ``wrapper.<field>``, ``callbacks.<type>.<field>``: what the built objects hold.
- ``data.<field>``: the configuration of Megatron's data set, with ``sizes``, ``columns`` and the ``steps`` that come out.
- ``context.<field>``: what MindSpore's own settings are given.
- ``run.<field>``: the global batch, the length and the seed, as the trainer has them when it begins; ``parallel.<field>`` the layout.

Where ``use_parallel`` is true, ``run``, ``data``, ``schedule`` and ``parallel`` are as many processes would have them, and the network is
built as one process does. A YAML may leave out what is no part of a comparison: the trainer, the device, the architecture. Not told: what
an NPU makes of ``context``, networks that are split, and what stands in files, such as tokenizers, checkpoints and the data itself.
"""

# ruff: noqa: E402
import contextlib
import functools
import hashlib
import importlib
import inspect
import json
import logging
import math
import os
import re
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

os.environ["GLOG_v"] = "4"  # noqa: SIM112

QUESTIONS, ANSWERS = map(Path, sys.argv[1:])
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the trainer prints its configuration

import mindspore as ms
import numpy as np
import yaml
from mindformers.dataset.dataloader import blended_megatron_dataloader as loader
from mindformers.tools.register import MindFormerConfig
from mindformers.trainer import Trainer, base_trainer
from mindspore import nn
from mindspore.nn.learning_rate_schedule import LearningRateSchedule
from mindspore.nn.utils import no_init_parameters

ARCHITECTURES = {
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "telechat3": "TeleChat3ForCausalLM",
    "telechat3_moe": "TeleChat3MoeForCausalLM",
}
STEPS = 60
LEFT_OUT = (
    *("config", "model_config", "transformer_config", "submodules", "step_time", "epoch_time"),
    *("parameters", "group_params", "weights", "parallel_speed_up_json_path", "kwargs"),
)
"""What tells nothing that is not told elsewhere, or changes with every run."""
GRAPH = "mindformers.parallel_core.training_graph."
Flat = dict[str, Any]
build_context, parallel = (importlib.import_module(f"mindformers.core.context.{name}") for name in ("build_context", "parallel"))


class Ready(Exception):
    """Training would begin."""


class Samples:
    """As many samples as Megatron's data set was asked for, with as many columns as are read."""

    def __init__(self, size: int, columns: int) -> None:
        self.size, self.columns = size, columns

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, at: int) -> tuple[Any, ...]:
        return (np.zeros(4, np.int32),) * self.columns


class Built:
    """What the trainer has built so far, and what it gave MindSpore's own settings."""

    trainer: Any = None
    wrapper: Any = None
    data: Flat
    context: Flat = {}
    original_context = build_context.ms_context.set_context

    original = base_trainer.BaseTrainer.create_model_wrapper
    network = base_trainer.BaseTrainer.create_network

    @staticmethod
    def wrap(trainer: Any, network: Any, optimizer: Any) -> Any:
        Built.trainer, Built.wrapper = trainer, Built.original(trainer, network, optimizer)
        return Built.wrapper

    @staticmethod
    def create(trainer: Any, default_args: Any = None) -> Any:
        with no_init_parameters():
            return Built.network(trainer, default_args)

    @staticmethod
    def without_network(trainer: Any, default_args: Any = None) -> Any:
        Built.trainer, config = trainer, trainer.config
        trainer.lr_scheduler = trainer.create_lr_scheduler(config.lr_schedule, config.lr_scale, config.lr_scale_factor)
        raise Ready

    @staticmethod
    def set_context(**settings: Any) -> None:
        npu = {**Built.context.get("ascend_config", {}), **settings.get("ascend_config", {})}
        Built.context |= settings | ({"ascend_config": npu} if npu else {})
        Built.original_context(**{name: value for name, value in settings.items() if name != "ascend_config"})  # of an NPU

    @staticmethod
    def load(builder: Any, sizes: Any, columns: Any, shuffle: bool = False, *_: Any, **__: Any) -> Any:
        config = builder.init_gpt_dataset_config()
        told = {name: value for name, value in vars(config).items() if name != "tokenizer"}
        Built.data = flat({**told, "sizes": sizes, "columns": columns, "shuffle": shuffle})
        return ms.dataset.GeneratorDataset(Samples(int(sizes[0]), len(columns)), column_names=columns, shuffle=False)


class Training:
    """The model that would train."""

    callbacks: tuple[Any, ...] = ()

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def train(self, epochs: int, dataset: Any, callbacks: Any, **_: Any) -> None:
        Training.callbacks = tuple(callbacks or ())
        raise Ready


def plain(value: object) -> Any:
    """A value as JSON holds it; None for objects that hold others."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items() if key not in LEFT_OUT}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, ms.Parameter):
        return [list(value.shape), str(value.dtype)]
    if isinstance(value, ms.Tensor):
        return plain(value.asnumpy())
    if isinstance(value, np.ndarray):
        if value.size == 1:
            return float(str(value.reshape(-1)[0]))  # 0.9, also of float32
        return [list(value.shape), str(value.dtype), hashlib.sha256(value.tobytes()).hexdigest()[:16]]
    if isinstance(value, np.generic):
        return float(str(value))
    if isinstance(value, int | float | str | bool | type(None)):
        return value
    if isinstance(value, type) or callable(value):
        return getattr(value, "__name__", type(value).__name__)
    shown = str(value)
    return type(value).__name__ if " at 0x" in shown else shown.lower()


def flat(values: Any, section: str = "") -> Flat:
    """Names to values, with the section before them."""
    return {f"{section}{name}": plain(value) for name, value in values.items()}


def held(thing: Any, section: str) -> Flat:
    """What an object's own class set of it: simple values, constants, types, names of operators; nothing of weights and inner cells."""
    base = {*vars(nn.Cell()), *dir(nn.Cell)}
    found: Flat = {}
    for name, value in vars(thing).items():
        if name in base or name.startswith("_") or name in LEFT_OUT or isinstance(value, ms.Parameter | nn.Cell):
            continue
        with contextlib.suppress(Exception):  # what no device holds
            found[section + name] = plain(value)
    return found


def network(model: Any) -> Flat:
    """What the cells of a network hold, and its weights."""
    found: Flat = {f"weights.{weight.name}": [*plain(weight), started(weight)] for weight in model.get_parameters()}
    for path, cell in model.cells_and_names():
        section = f"network.{path}." if path else "network."
        found |= used(cell, section)
        for name, inner in vars(cell).items():
            if type(inner).__module__.startswith(GRAPH) and not isinstance(inner, nn.Cell):
                found |= used(inner, f"{section}{name}.")  # a dispatcher of tokens is no cell
    return found


def used(thing: Any, section: str) -> Flat:
    """What a part of a network reads again: of its own, and of the configuration when it is called."""
    read, later = attributes(type(thing)), names_when_called(type(thing))
    config = getattr(thing, "config", None) if "config" in later else None
    found: Flat = {f"{section}class": type(thing).__name__}
    found |= {f"{section}{name}": value for name, value in held(thing, "").items() if name in read}
    return found | {f"{section}config.{name}": plain(value) for name, value in getattr(config, "__dict__", {}).items() if name in later}


def started(weight: Any) -> object:
    """How a weight is drawn."""
    drawn = getattr(weight.init_mode, "init", None)
    return [type(drawn).__name__, getattr(drawn, "sigma", None)]


@functools.cache
def attributes(kind: type) -> set[str]:
    """The attributes of its own that the sources of a class read, and do not only set."""
    sources = {inspect.getsource(sys.modules[one.__module__]) for one in kind.__mro__ if one.__module__.startswith("mindformers.")}
    return {name for source in sources for name in re.findall(r"\bself\.(\w+)\b(?!\s*=[^=])", source)}


@functools.cache
def names_when_called(kind: type) -> set[str]:
    """The names that the methods of a class use, but for the one that builds it."""
    classes = [vars(one) for one in kind.__mro__ if one.__module__.startswith(GRAPH)]
    methods = [method for one in classes for name, method in one.items() if name != "__init__" and inspect.isfunction(method)]
    return {name for method in methods for name in inspect.unwrap(method).__code__.co_names}


def rates(schedule: Any) -> list[object]:
    """The rates of the first steps, as the optimizer asks for them."""
    if not isinstance(schedule, LearningRateSchedule):
        return [plain(schedule)] * STEPS
    return [plain(schedule(ms.Tensor([step], ms.int32))) for step in range(STEPS)]


def whole(asked: dict[str, Any]) -> dict[str, Any]:
    """A YAML with what every training needs and no comparison is about."""
    asked.setdefault("run_mode", "train")
    asked.setdefault("use_parallel", False)
    asked.setdefault("trainer", {}).setdefault("type", "CausalLanguageModelingTrainer")
    asked.setdefault("output_dir", "output")
    asked.setdefault("context", {}).setdefault("mode", 0)
    asked["context"]["device_target"] = "CPU"
    asked.setdefault("parallel", {})
    asked.setdefault("callbacks", [])
    data = asked.setdefault("train_dataset", {}).setdefault("data_loader", {})
    data.setdefault("type", "BlendedMegatronDatasetDataLoader")
    data.setdefault("datasets_type", "GPTDataset")
    asked.setdefault("train_dataset_task", {}).setdefault("type", "CausalLanguageModelDataset")
    for name, value in {"num_parallel_workers": 1, "drop_remainder": True, "batch_size": 1, "repeat": 1}.items():
        asked["train_dataset"].setdefault(name, value)
    model = asked["model"]["model_config"]
    if asked.get("use_legacy", True):
        asked["model"].setdefault("arch", {}).setdefault("type", "LlamaForCausalLM")
        model.setdefault("input_sliced_sig", True)
    elif "architectures" not in model and model.get("model_type") in ARCHITECTURES:
        model["architectures"] = ARCHITECTURES[model["model_type"]]
    data.setdefault("config", {}).setdefault("seq_length", model.get("seq_length", 4096))
    return asked


def loaded(asked: dict[str, Any]) -> MindFormerConfig:
    """A YAML as MindFormers loads it, with its context set."""
    file = Path(f"{os.getpid()}.yaml")
    file.write_text(yaml.safe_dump(asked))
    config = MindFormerConfig(str(file))
    build_context.build_context(config)
    return config


@contextlib.contextmanager
def stopped(processes: int) -> Iterator[None]:
    """The trainer without data, weights and training; of several processes also without a network."""
    trainer, create = base_trainer.BaseTrainer, Built.create if processes == 1 else Built.without_network
    with contextlib.ExitStack() as stack:
        for owner, name, instead in (
            (trainer, "create_model_wrapper", Built.wrap),
            (trainer, "create_network", create),
            (base_trainer, "Model", Training),
            (loader.MegatronDatasetBuilder, "build_gptdataset_or_fakedataset", Built.load),
            (loader, "compile_helpers", lambda: None),
            (loader, "skip_barrier_controller", lambda **_: None),
            (build_context.ms_context, "set_context", Built.set_context),
            (build_context.op_precision, "precision_mode", lambda mode: Built.context.update(precision_mode=mode)),
            (parallel, "init", lambda: None),
            (parallel, "get_group_size", lambda: processes),
            (parallel, "get_rank", lambda: 0),
            (ms, "set_deterministic", lambda on: Built.context.update(deterministic=on)),
        ):
            stack.enter_context(mock.patch.object(owner, name, instead))
        stack.enter_context(contextlib.suppress(Ready))
        yield


def processes_of(asked: dict[str, Any]) -> int:
    """How many processes a YAML is for."""
    if not asked.get("use_parallel"):
        return 1
    split = asked.get("parallel_config", {})
    names = ("data_parallel", "model_parallel", "pipeline_stage", "context_parallel")
    return max(math.prod(int(split.get(name) or 1) for name in names), int(asked.get("device_num") or 1), 2)


def trained(asked: dict[str, Any]) -> Flat:
    """What a trainer begins with: run, data, schedule, layout, and of one process all the rest."""
    Built.data = {}
    processes = processes_of(asked)
    os.environ["RANK_SIZE"] = str(processes)
    with stopped(processes):
        Trainer(loaded(asked)).train()
    trainer, optimizer = Built.trainer, Built.trainer.optimizer
    steps = trainer.get_train_data_size()
    run = {"global_batch_size": trainer.global_batch_size, "seed": ms.get_seed(), "epochs": trainer.config.runner_config.epochs}
    run |= {"calculate_per_token_loss": bool(getattr(trainer.config, "calculate_per_token_loss", False))}
    run |= {"batch_size": trainer.config.runner_config.batch_size, "wrapper": trainer.config.runner_wrapper.type}
    found = flat(Built.data, "data.") | {"data.steps": steps} | flat(run, "run.") | flat(Built.context, "context.")
    for name in ("parallel_mode", "gradients_mean", "enable_parallel_optimizer", "pipeline_stages", "device_num"):
        found[f"parallel.{name}"] = plain(ms.get_auto_parallel_context(name))
    found |= flat(trainer.config.parallel_config.to_dict(), "parallel.")
    ms.set_context(mode=ms.PYNATIVE_MODE)  # or every rate is compiled
    schedule = trainer.lr_scheduler if trainer.lr_scheduler is not None or optimizer is None else optimizer.learning_rate
    found |= {"schedule.rates": rates(schedule), "schedule.type": type(schedule).__name__} | held(schedule, "schedule.")
    return found | (objects(trainer.real_model, optimizer) if processes == 1 else {})


def objects(model: Any, optimizer: Any) -> Flat:
    """What one process has built: the network with its configuration, the optimizer, the wrapper, the callbacks."""
    newer = getattr(model, "transformer_config", None)
    found = network(model) | (flat(vars(newer), "transformer.") if newer is not None else flat(model.config.to_dict(), "model."))
    found |= {"optimizer.type": type(optimizer).__name__} | held(optimizer, "optimizer.")
    found |= {"wrapper.type": type(Built.wrapper).__name__} | held(Built.wrapper, "wrapper.")
    found["wrapper.scale_sense"] = plain(Built.wrapper.scale_sense.asnumpy())
    for name, cell in Built.wrapper.name_cells().items():
        if name not in ("network", "optimizer"):
            found |= {f"wrapper.{name}.class": type(cell).__name__} | held(cell, f"wrapper.{name}.")
    for callback in Training.callbacks:
        found |= held(callback, f"callbacks.{type(callback).__name__}.")
    return found


def line(error: BaseException) -> str:
    """An error in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:2000]


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """What a YAML builds, or what it is refused with."""
    try:
        return {"built": trained(whole(asked))}
    except (Exception, SystemExit) as error:
        if os.environ.get("TRACED"):
            traceback.print_exception(error)
        return {"refused": line(error)}


def apart(asked: dict[str, Any]) -> dict[str, Any]:
    """An answer from a process of its own, for MindFormers keeps what it has built once."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        with os.fdopen(writer, "w") as pipe:
            json.dump(answer(asked), pipe)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        found = pipe.read()
    os.waitpid(child, 0)
    built: dict[str, Any] = json.loads(found) if found else {"refused": "the process ended"}
    return built


def read_back(text: str) -> dict[str, Any]:
    """The answer to a YAML text."""
    asked = yaml.safe_load(text)
    alone = apart(asked | {"use_parallel": False})
    if not asked.get("use_parallel") or "refused" in alone:
        return alone
    split = apart(asked)
    return split if "refused" in split else {"built": alone["built"] | split["built"]}


logging.disable()
ANSWERS.write_text(json.dumps([read_back(text) for text in json.loads(QUESTIONS.read_text())]))
