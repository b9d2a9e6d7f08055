"""Megatron-Bridge's own tiny recipe, ``vanilla_gpt``, as the model of ``launch/llama.args``; ``BRIDGE`` has settings, ``NAME=VALUE`` each.

Megatron-Bridge imports Transformer Engine and multimodal data sets whatever it trains. Where they are missing, empty stand-ins are there
while it is imported, and megatron.core is imported before, so that it sees none of them.
"""

import importlib
import importlib.machinery
import os
import pkgutil
import sys
from abc import ABCMeta
from contextlib import suppress
from types import ModuleType

import modelopt.torch.distill  # noqa: F401  # before megatron.core, which may import it half
import numpy as np
import torch
import yaml
from megatron import core

MISSING = ("transformer_engine", "megatron.energon", "multistorageclient")


class Anything(ABCMeta):
    """A class that has every attribute, and decorates with no effect."""

    def __getattr__(cls, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(name, (), {})

    def __call__(cls, *given: object, **named: object) -> object:
        return (lambda decorated: decorated) if named else given[0] if len(given) == 1 and callable(given[0]) else super().__call__()


class StandIn(ModuleType):
    """A module with every class."""

    def __getattr__(self, name: str) -> type:
        return getattr(Anything("Root", (), {}), name)


class StandIns:
    """Finds and makes the modules that are missing."""

    def find_spec(self, name: str, path: object = None, target: object = None):
        missing = any(name == root or name.startswith(f"{root}.") for root in MISSING)
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if missing else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


for each in pkgutil.walk_packages(core.__path__, "megatron.core.", onerror=lambda name: None):
    with suppress(Exception):
        importlib.import_module(each.name)
stand_ins = StandIns()
sys.meta_path.append(stand_ins)
from megatron.bridge.recipes.gpt.vanilla_gpt import vanilla_gpt_pretrain_config  # noqa: E402
from megatron.bridge.training.callbacks import Callback  # noqa: E402
from megatron.bridge.training.gpt_step import forward_step  # noqa: E402
from megatron.bridge.training.pretrain import pretrain  # noqa: E402

sys.meta_path.remove(stand_ins)
for name in [name for name in sys.modules if isinstance(sys.modules[name], StandIn)]:
    del sys.modules[name]

recipe = vanilla_gpt_pretrain_config()
OVERRIDES = {
    "model": {
        **{"num_layers": 2, "hidden_size": 64, "ffn_hidden_size": 128, "num_attention_heads": 4, "num_query_groups": 2},
        **{"seq_length": 128, "position_embedding_type": "rope", "normalization": "RMSNorm", "init_method_std": 0.1},
        **{"gated_linear_unit": True, "activation_func": torch.nn.functional.silu, "add_bias_linear": False},
        **{"attention_dropout": 0.0, "hidden_dropout": 0.0, "share_embeddings_and_output_weights": False, "vocab_size": 256},
        **{"pipeline_dtype": torch.float32},
    },
    "tokenizer": {"vocab_size": 256},
    "dataset": {"seq_length": 128, "num_workers": 0},
    "train": {"train_iters": 3, "global_batch_size": 4, "micro_batch_size": 2, "manual_gc": False},
    "validation": {"eval_iters": 0},
    "scheduler": {"lr_warmup_iters": 0, "lr_decay_style": "constant", "start_weight_decay": 0.1, "end_weight_decay": 0.1},
    "optimizer": {
        "lr": 1e-3,
        "min_lr": 1e-3,
        "weight_decay": 0.1,
        "adam_beta2": 0.95,
        "adam_eps": 1e-8,
        "use_distributed_optimizer": False,
    },
    "ddp": dict.fromkeys(("use_distributed_optimizer", "overlap_grad_reduce", "overlap_param_gather", "average_in_collective"), False),
    "checkpoint": {"save": None, "load": None},
    "logger": {"log_interval": 1, "tensorboard_dir": None},
    "dist": {"use_gloo_process_groups": True, "enable_megatron_core_experimental": False},
}
for part, values in OVERRIDES.items():
    for name, value in values.items():
        setattr(getattr(recipe, part), name, value)
recipe.mixed_precision = None
for setting in os.environ.get("BRIDGE", "").split():
    path, _, value = setting.partition("=")
    *parts, name = path.split(".")
    holder = recipe
    for part in parts:
        holder = getattr(holder, part)
    setattr(holder, name, yaml.safe_load(value))


class Witness(Callback):
    """Keeps the loss of every step and the final weights."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def on_train_step_end(self, context) -> None:
        self.losses += [float(loss) for loss in context.loss_dict.values()]

    def on_train_end(self, context) -> None:
        weights = {name: parameter.detach().float().numpy() for name, parameter in context.model[0].named_parameters()}
        np.savez(os.environ["WITNESS"], losses=np.array(self.losses), **weights)


pretrain(recipe, forward_step, callbacks=[Witness()] if "WITNESS" in os.environ else None)
