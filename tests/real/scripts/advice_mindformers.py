"""What MindFormers would train with: a JSON list of YAML texts on standard input, a JSON list of answers on standard output.

Each answer is ``{"refused": "<a line>"}`` or ``{"built": {...}}``, flat, with these sections. MindFormers' own trainer builds all of it, on
a CPU and without initialising a weight; it is stopped where it would begin to train.

- ``transformer.<field>``: the TransformerConfig of a newer model, ``model.<field>`` the configuration of an older one.
- ``network.<path>.<attribute>``: what the cells of the built network hold, the values of embeddings' tables among them;
  ``weights.<name>`` the shape and type of its weights.
- ``schedule.rates``: the learning rate of the first 60 steps; ``schedule.<field>`` what the schedule holds.
- ``optimizer.<field>``, ``wrapper.<field>``, ``callbacks.<type>.<field>``: what the built objects hold.
- ``data.<field>``: the configuration of Megatron's data set, with ``sizes``, ``columns`` and the ``steps`` that come out.
- ``run.<field>``: the global batch, the length and the seeds, as the trainer has them when it begins.

A YAML may leave out what is no part of the comparison: the trainer, the device, the architecture. A network that holds an NPU's operators
is built all the same, for nothing is computed. Not told: what an NPU does with ``context``, and what stands in files that are not there,
such as tokenizers and checkpoints.
"""

# ruff: noqa: E402
from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

os.environ["GLOG_v"] = "4"  # noqa: SIM112
os.chdir(tempfile.mkdtemp())  # logs are written to the working directory

ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # the trainer prints its configuration

import mindspore as ms
import numpy as np
import yaml
from mindformers.core.context import build_context
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
LEFT_OUT = ("network.config", "_id", "_create_time", "_func_graph", "_compile", "_construct", "cls_name", "instance_name", "_scope")
"""What ends or begins names that tell nothing of a network."""
Flat = dict[str, Any]


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
    """What the trainer has built so far."""

    trainer: Any = None
    wrapper: Any = None
    data: Flat

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
    def load(builder: Any, sizes: Any, columns: Any, shuffle: bool = False, *_: Any, **__: Any) -> Any:
        config = builder.init_gpt_dataset_config()
        told = {name: value for name, value in vars(config).items() if name != "tokenizer"}
        Built.data = flat({**told, "sizes": sizes, "columns": columns, "shuffle": shuffle})
        return ms.dataset.GeneratorDataset(Samples(int(sizes[0]), len(columns)), column_names=columns, shuffle=False)


class Training:
    """The model that would train."""

    callbacks: tuple[Any, ...] = ()
    steps = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def train(self, epochs: int, dataset: Any, callbacks: Any, **_: Any) -> None:
        Training.callbacks, Training.steps = tuple(callbacks or ()), epochs * dataset.get_dataset_size()
        raise Ready


def plain(value: object) -> object:
    """A value as JSON holds it; None for objects that hold others."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, ms.Parameter):
        return [list(value.shape), str(value.dtype)]
    if isinstance(value, ms.Tensor):
        return plain(value.asnumpy())
    if isinstance(value, np.ndarray):
        if value.size == 1:
            return float(value.reshape(-1)[0])
        return [list(value.shape), str(value.dtype), hashlib.sha256(value.tobytes()).hexdigest()[:16]]
    if isinstance(value, np.generic):
        return float(value)
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
    """The simple values that an object holds."""
    kinds = int | float | str | bool | type(None) | list | tuple | ms.Tensor
    values = {name: value for name, value in vars(thing).items() if isinstance(value, kinds) and not isinstance(value, ms.Parameter)}
    kept = {name: value for name, value in values.items() if not name.startswith("__") and not name.endswith(LEFT_OUT)}
    return {name: value for name, value in flat(kept, section).items() if not str(value).startswith("[<")}


def network(model: Any) -> Flat:
    """What the cells of a network hold, and its weights."""
    found = {f"weights.{weight.name}": [list(weight.shape), str(weight.dtype)] for weight in model.get_parameters()}
    for path, cell in model.cells_and_names():
        section = f"network.{path}." if path else "network."
        found |= {f"{section}class": type(cell).__name__} | own(cell, section)
    return found


def own(cell: Any, section: str) -> Flat:
    """What a cell's own class set of it: simple values, constants, types, operators' names."""
    base = {*vars(nn.Cell()), *dir(nn.Cell)}
    found: Flat = {}
    for name, value in vars(cell).items():
        if name in base or name.startswith("_") or isinstance(value, ms.Parameter | nn.Cell) or "config" in name:
            continue
        with contextlib.suppress(Exception):
            found[section + name] = plain(value)
    return found


def rates(schedule: Any) -> list[float]:
    """The rates of the first steps, as the optimizer asks for them."""
    if not isinstance(schedule, LearningRateSchedule):
        return [float(schedule.asnumpy() if isinstance(schedule, ms.Tensor) else schedule)] * STEPS
    return [float(schedule(ms.Tensor([step], ms.int32)).asnumpy().reshape(-1)[0]) for step in range(STEPS)]


def whole(text: str) -> dict[str, Any]:
    """A YAML with what every training needs and no comparison is about."""
    asked: dict[str, Any] = yaml.safe_load(text)
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


def loaded(text: str) -> MindFormerConfig:
    """A YAML as MindFormers loads it, with its context set."""
    file = Path(f"{os.getpid()}.yaml")
    file.write_text(yaml.safe_dump(whole(text)))
    config = MindFormerConfig(str(file))
    build_context(config)
    return config


@contextlib.contextmanager
def stopped() -> Iterator[None]:
    """The trainer without data, weights and training."""
    trainer = base_trainer.BaseTrainer
    with (
        mock.patch.object(trainer, "create_model_wrapper", Built.wrap),
        mock.patch.object(trainer, "create_network", Built.create),
        mock.patch.object(base_trainer, "Model", Training),
        mock.patch.object(loader.MegatronDatasetBuilder, "build_gptdataset_or_fakedataset", Built.load),
        mock.patch.object(loader, "compile_helpers", lambda: None),
        mock.patch.object(nn.Cell, "init_parameters_data", lambda *_, **__: None),
        contextlib.suppress(Ready),
    ):
        yield


def read_back(text: str) -> Flat:
    """What a YAML builds."""
    config = loaded(text)
    with stopped():
        Trainer(config).train()
    trainer = Built.trainer
    model, optimizer = trainer.real_model, trainer.optimizer
    ms.set_context(mode=ms.PYNATIVE_MODE)  # or every rate is compiled
    found = flat(Built.data, "data.") | {"data.steps": Training.steps} | network(model)
    if getattr(model, "transformer_config", None) is not None:
        found |= flat(vars(model.transformer_config), "transformer.")
    else:
        found |= flat({name: value for name, value in vars(model.config).items() if not name.startswith("_")}, "model.")
    schedule = trainer.lr_scheduler if trainer.lr_scheduler is not None else optimizer.learning_rate
    found |= {"schedule.rates": rates(schedule), "schedule.type": type(schedule).__name__} | held(schedule, "schedule.")
    found |= {"optimizer.type": type(optimizer).__name__} | held(optimizer, "optimizer.")
    found |= {"wrapper.type": type(Built.wrapper).__name__} | held(Built.wrapper, "wrapper.")
    found["wrapper.scale_sense"] = plain(getattr(Built.wrapper, "scale_sense", None))
    for callback in Training.callbacks:
        found |= held(callback, f"callbacks.{type(callback).__name__}.")
    run = {"global_batch_size": trainer.global_batch_size, "seed": ms.get_seed(), "epochs": trainer.config.runner_config.epochs}
    run |= {"calculate_per_token_loss": bool(getattr(trainer.config, "calculate_per_token_loss", False))}
    return found | flat(run, "run.")


def line(error: BaseException) -> str:
    """An error in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:2000]


def answer(text: str) -> dict[str, object]:
    """What a YAML builds, or what it is refused with."""
    try:
        return {"built": read_back(text)}
    except (Exception, SystemExit) as error:
        if os.environ.get("TRACED"):
            traceback.print_exception(error)
        return {"refused": line(error)}


def apart(text: str) -> Any:
    """An answer from a process of its own, for MindFormers keeps what it has built once."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        with os.fdopen(writer, "w") as pipe:
            json.dump(answer(text), pipe)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        found = pipe.read()
    os.waitpid(child, 0)
    return json.loads(found) if found else {"refused": "the process ended"}


logging.disable()
with ANSWERS:
    json.dump([apart(text) for text in json.load(sys.stdin)], ANSWERS)
