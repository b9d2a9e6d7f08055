"""What MindFormers makes of configurations: the argument names a JSON file of questions, the answers are printed as JSON.

The newer models are built as the trainer builds them, through their own training classes, with the network itself left out: the
largest has 61 layers. Families that are not trained are converted by their configuration class alone.
"""

# ruff: noqa: E402
import importlib
import inspect
import json
import logging
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

os.environ["GLOG_v"] = "4"  # noqa: SIM112
os.chdir(tempfile.mkdtemp())  # logs are written to the working directory

import mindspore as ms
from mindformers.core.context import build_context
from mindformers.core.context.build_context import MFContextOperator, ms_context, set_context
from mindformers.core.lr import build_lr
from mindformers.core.parallel_config import build_parallel_config
from mindformers.models import llama
from mindformers.models.build_config import get_model_config
from mindformers.models.build_model import build_model
from mindformers.modules.transformer.moe import MoEConfig
from mindformers.parallel_core import transformer_config_utils
from mindformers.parallel_core.utils.model_mixin import ModelMixin
from mindformers.tools.register import MindFormerConfig
from mindformers.trainer.optimizer_grouped_parameters import get_optimizer_grouped_parameters
from mindspore import nn

TRAINED = {
    "Qwen3ForCausalLM": "qwen3.modeling_qwen3_train",
    "Qwen3MoeForCausalLM": "qwen3_moe.modeling_qwen3_moe_train",
    "DeepseekV3ForCausalLM": "deepseek3.modeling_deepseek_v3_train",
    "TeleChat3ForCausalLM": "telechat3.modeling_telechat3_train",
    "TeleChat3MoeForCausalLM": "telechat3_moe.modeling_telechat3_moe_train",
}
"""Architectures that have a training class, which calls GPTModel by a name of its own module."""

HEAD = "use_legacy: {}\nrun_mode: train\ncontext: {{mode: 0, device_target: CPU}}\ntrainer: {{type: CausalLanguageModelingTrainer}}\n"


class Built(nn.Cell):
    """What GPTModel is called with, in place of a network."""

    arguments: dict[str, object]

    def __init__(self, **arguments: Any) -> None:
        super().__init__()
        Built.arguments = arguments


class Converted:
    """The configuration that a training class has converted, whatever becomes of its network."""

    config: Any = None
    original = ModelMixin.convert_to_transformer_config

    @staticmethod
    def convert(model: Any, *arguments: Any, **named: Any) -> Any:
        Converted.config = Converted.original(model, *arguments, **named)
        return Converted.config


def plain(value: object) -> object:
    """A value as JSON holds it."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, int | float | str | bool | type(None)):
        return value
    shown = str(value).lower()
    return type(value).__name__ if " at 0x" in shown else shown


def loaded(text: str, *, legacy: bool) -> MindFormerConfig:
    """A YAML file as MindFormers loads it, with its context set."""
    file = Path("asked.yaml")
    file.write_text(HEAD.format(legacy) + text)
    config = MindFormerConfig(str(file))
    build_context(config)
    MFContextOperator.get_mf_ctx_instance().set_context(use_legacy=legacy)  # a process has one, which keeps what it was made with
    build_parallel_config(config)
    return config


def newer(text: str, architecture: str) -> object:
    """What a newer model is built with: its TransformerConfig, and what its class gives GPTModel itself."""
    config = loaded(text, legacy=False)
    transformer_config_utils.ERROR_LOG.clear()  # errors of one process add up
    arguments = {"parallel_config": config.parallel_config, "moe_config": config.moe_config}
    if architecture not in TRAINED:
        built = get_model_config(config.model, default_args={"parallel_config": config.parallel_config})
        return plain(vars(built.convert_to_transformer_config()))
    Converted.config, Built.arguments, refused = None, {}, ""
    with (
        mock.patch.object(importlib.import_module(f"mindformers.models.{TRAINED[architecture]}"), "GPTModel", Built),
        mock.patch.object(ModelMixin, "convert_to_transformer_config", Converted.convert),
    ):
        try:
            build_model(config.model, default_args=arguments)
        except NotImplementedError as error:
            if Converted.config is None:
                raise
            refused = str(error)
    model, settings = Built.arguments, vars(Converted.config)
    given = {name: model[name] for name in ("rotary_base", "share_embeddings_and_output_weights", "vocab_size") if name in model}
    norm = attention(model["transformer_layer_spec"]) if model else None
    return plain({**settings, "given": given, "norm of queries": norm, "network refused": refused})


def attention(spec: Any) -> str:
    """The class that normalises queries in the first layer."""
    layer = spec.layer_specs[0] if hasattr(spec, "layer_specs") else spec
    parts = layer.submodules.self_attention.submodules
    return getattr(parts.q_layernorm, "__name__", str(parts.q_layernorm))


def older(text: str) -> dict[str, object]:
    """What an older model is built with: its configuration, the rows of its first feed-forward weight, and which weights decay."""
    config = loaded(text, legacy=True)
    model = build_model(config.model, default_args={"parallel_config": config.parallel_config, "moe_config": config.moe_config})
    shapes = {parameter.name: list(parameter.shape) for parameter in model.trainable_params()}
    (ffn,) = {shape[0] for name, shape in shapes.items() if name.endswith("feed_forward.w1.weight")}
    groups = get_optimizer_grouped_parameters(model, weight_decay=0.1)
    decays = sorted(parameter.name for group in groups if group["weight_decay"] for parameter in group["params"])
    spared = sorted(parameter.name for group in groups if not group["weight_decay"] for parameter in group["params"])
    return {"ffn": ffn, "shapes": shapes, "decays": decays, "spared": spared, "config": plain(vars(model.config))}


def schedule(kwargs: dict[str, object], steps: list[int]) -> list[float]:
    """The rate of every step as the optimizer asks for it: by its global step, an int32 of one element."""
    cell = build_lr(MindFormerConfig(**kwargs))
    return [float(cell(ms.Tensor([step], ms.int32)).asnumpy().reshape(-1)[0]) for step in steps]


def context(name: str, value: object) -> bool:
    """Whether a key under ``context`` reaches any of MindSpore's settings."""
    reached: list[object] = []
    with (
        mock.patch.object(ms_context, "set_context", lambda **given: reached.append(given)),
        mock.patch.object(ms, "set_deterministic", reached.append),
    ):
        set_context(**{name: value})
    return bool(reached)


def tried(function: Callable[..., object], *arguments: object, **named: object) -> dict[str, object]:
    """What a function gives, or what it refuses with."""
    try:
        return {"value": function(*arguments, **named)}
    except Exception as error:
        return {"refused": f"{type(error).__name__}: {error}"}


def defaults(function: Callable[..., object]) -> dict[str, object]:
    """Defaults of a signature."""
    named = inspect.signature(inspect.unwrap(function)).parameters.items()
    return {name: plain(parameter.default) for name, parameter in named if parameter.default is not inspect.Parameter.empty}


logging.disable()  # every configuration is logged whole
asked = json.loads(Path(sys.argv[1]).read_text())
answers: dict[str, object] = {
    "llama": defaults(llama.LlamaConfig.__init__),
    "moe": defaults(MoEConfig.__init__),
    "newer": {name: tried(newer, question["yaml"], question["architecture"]) for name, question in asked["newer"].items()},
    "older": {name: tried(older, text) for name, text in asked["older"].items()},
    "context": {name: context(name, value) for name, value in asked["context"].items()},
}
ms.set_context(mode=ms.PYNATIVE_MODE)
answers["schedules"] = {name: tried(schedule, question["kwargs"], question["steps"]) for name, question in asked["schedules"].items()}
Path(sys.argv[2]).write_text(json.dumps(answers))
