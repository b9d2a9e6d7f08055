"""Of what family models are that MindFormers would train: a JSON file of a list of ``[model_type, model_config]``, and one to write a JSON
object to: what ``run.json`` would say of each (``recorded``), and of each kind's default model without each attribute of its
configuration (``without``). MindFormers' own classes make the configuration; no weight is made."""

# ruff: noqa: E402
import importlib
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ["GLOG_v"] = "4"  # noqa: SIM112
QUESTIONS, ANSWERS = map(Path, sys.argv[1:])
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

from align_hooks.ms_side.model import model_of

CLASSES = {
    "qwen3": ("qwen3", "Qwen3"),
    "qwen3_moe": ("qwen3_moe", "Qwen3Moe"),
    "deepseek_v3": ("deepseek3", "DeepseekV3"),
    "telechat3": ("telechat3", "TeleChat3"),
    "telechat3_moe": ("telechat3_moe", "TeleChat3Moe"),
}
"""``model_type`` to the package of the model, and how the names of its classes begin."""
LATENT = ("deepseek_v3", "telechat3_moe")
"""Models whose class asks for the configuration of latent attention (``is_mla_model=True`` in its ``modeling_*_train``)."""


def built(kind: str, keys: dict[str, object]) -> Any:
    """A network of a ``model_config``."""
    package, name = CLASSES[kind]
    module = importlib.import_module(f"mindformers.models.{package}.configuration_{kind}")
    own = {key: value for key, value in keys.items() if key != "model_type"}
    config = getattr(module, f"{name}Config")(**own).convert_to_transformer_config(is_mla_model=kind in LATENT)
    inner = type("GPTModel", (SimpleNamespace,), {})(config=config)
    return type(f"Training{name}ForCausalLM", (), {"__module__": module.__name__, "model": inner})()


def facts(network: Any) -> dict[str, object]:
    """What a recorder finds in a network, or that it could not be recorded."""
    try:
        return model_of(network).facts(None)
    except AttributeError as error:
        return {"refused": str(error)}


def raising(name: str) -> property:
    def missing(self: Any) -> Any:
        raise AttributeError(f"the configuration has no attribute {name!r}")

    return property(missing)


def without(kind: str, keys: dict[str, object]) -> dict[str, dict[str, object]]:
    """What a recorder finds in a network whose configuration lacks an attribute, by its name; the whole by none."""
    network = built(kind, keys)
    config = network.model.config
    whole, found = type(config), {"": facts(network)}
    for name in vars(config):
        config.__class__ = type(whole.__name__, (whole,), {name: raising(name)})
        found[name] = facts(network)
    return found


DEFAULTS = {"qwen3": {}, "qwen3_moe": {}, "telechat3": {}, "deepseek_v3": {"qk_layernorm": True}}
answers = {
    "recorded": [facts(built(*asked)) for asked in json.loads(QUESTIONS.read_text())],
    "without": {kind: without(kind, keys) for kind, keys in DEFAULTS.items()},
    "another class": facts(type("TrainingQwen3ForCausalLM", (), {"__module__": "somebody", "model": built("qwen3", {}).model})()),
}
ANSWERS.write_text(json.dumps(answers))
