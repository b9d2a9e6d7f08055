"""What Megatron-LM makes of arguments: the first argument names a JSON file of questions, the second the file for the answers."""

# ruff: noqa: E402
import argparse
import json
import os
import shlex
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

warnings.simplefilter("ignore")
QUESTIONS, ANSWERS = map(Path, sys.argv[1:])
os.chdir(tempfile.mkdtemp())

import torch
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.optimizer import OptimizerConfig, _get_param_groups, get_standard_config_overrides
from megatron.core.tokenizers.utils.build_tokenizer import vocab_size_with_padding
from megatron.core.transformer import TransformerConfig
from megatron.training import training
from megatron.training.arguments import add_megatron_arguments, core_transformer_config_from_args, moe_freq_type, parse_args, validate_args


def plain(value: object) -> object:
    """A value as JSON holds it."""
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if callable(value) and not isinstance(value, type):
        return getattr(value, "__name__", str(value))
    return value if isinstance(value, int | float | str | bool | type(None)) else str(value).rpartition(".")[2]


def takes(action: argparse.Action) -> str:
    """What a flag wants after it."""
    if action.nargs == 0:
        return "nothing"
    return {int: "integer", float: "number"}.get(action.type, "text") if action.nargs is None else "text"  # type: ignore[call-overload]


def flags() -> dict[str, dict[str, object]]:
    """Every flag of the parser, with the attribute that it sets."""
    parser = add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False))
    return {
        option: {
            **{"dest": action.dest, "const": plain(action.const), "default": plain(action.default), "takes": takes(action)},
            "choices": [getattr(choice, "name", choice) for choice in action.choices or ()],
        }
        for action in parser._actions
        for option in action.option_strings
    }


def validated(command: str) -> Any:
    """Arguments as a training process holds them after they were checked."""
    with mock.patch.object(sys, "argv", ["pretrain_gpt.py", *shlex.split(command)]):
        arguments = parse_args()
    validate_args(arguments)
    return arguments


def schedule(command: str, steps: int) -> dict[str, list[float] | int]:
    """The rate and the weight decay that every step's update uses: the trainer moves the scheduler after it."""
    arguments = validated(command)
    optimizer = SimpleNamespace(param_groups=[{"lr": 0.0, "weight_decay": 0.0, "wd_mult": 1.0}])
    with mock.patch.object(training, "get_args", return_value=arguments):
        scheduler = training.get_optimizer_param_scheduler(optimizer)
    rates, decays = [], []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        decays.append(optimizer.param_groups[0]["weight_decay"])
        scheduler.step(increment=arguments.global_batch_size)
    return {"rates": rates, "decays": decays, "steps": arguments.train_iters}


def model(command: str) -> dict[str, object]:
    """The configuration that a model is built with."""
    arguments = validated(command)
    config = core_transformer_config_from_args(arguments)
    names = ("num_query_groups", "kv_channels", "ffn_hidden_size", "moe_ffn_hidden_size", "gated_linear_unit", "layernorm_epsilon")
    values = {name: plain(getattr(config, name)) for name in names}
    padded = vocab_size_with_padding(arguments.vocab_size, arguments, False) if arguments.vocab_size else None
    return values | {"activation": plain(config.activation_func), "padded": padded}


def decaying(**options: object) -> dict[str, list[str]]:
    """Which weights of a tiny model decay, with norms of queries and keys, and biases."""
    sizes = {"num_layers": 1, "hidden_size": 16, "num_attention_heads": 2}
    config = TransformerConfig(**sizes, use_cpu_initialization=True, add_qkv_bias=True, qk_layernorm=True)
    built = GPTModel(config, get_gpt_layer_local_spec(qk_layernorm=True), vocab_size=32, max_sequence_length=8)
    names = {id(parameter): name for name, parameter in built.named_parameters()}
    shapes = {name: list(parameter.shape) for name, parameter in built.named_parameters()}
    settings = OptimizerConfig(optimizer="adam", lr=1e-3, weight_decay=0.1, **options)
    groups = _get_param_groups([built], settings, get_standard_config_overrides(settings))
    return {
        "decays": sorted(names[id(weight)] for group in groups if group["wd_mult"] for weight in group["params"]),
        "spared": sorted(names[id(weight)] for group in groups if not group["wd_mult"] for weight in group["params"]),
        "shapes": shapes,
    }


def tried(function: Callable[..., object], *arguments: object, **named: object) -> dict[str, object]:
    """What a function gives, or what it refuses with."""
    try:
        return {"value": function(*arguments, **named)}
    except (Exception, SystemExit) as error:
        return {"refused": f"{type(error).__name__}: {error}"}


asked = json.loads(QUESTIONS.read_text())
answers: dict[str, object] = {
    "flags": flags(),
    "schedules": {name: tried(schedule, question["command"], question["steps"]) for name, question in asked["schedules"].items()},
    "models": {name: tried(model, command) for name, command in asked["models"].items()},
    "patterns": {pattern: plain(moe_freq_type(pattern)) for pattern in asked["patterns"]},
}
torch.distributed.init_process_group("gloo", init_method=f"file://{tempfile.mkdtemp()}/store", rank=0, world_size=1)
parallel_state.initialize_model_parallel()
answers["decay"] = {"plain": tried(decaying), "norms": tried(decaying, apply_wd_to_qk_layernorm=True)}
ANSWERS.write_text(json.dumps(answers))
