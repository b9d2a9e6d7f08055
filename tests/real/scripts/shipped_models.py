"""Of what family models are that MindFormers would train: a JSON list of ``[model_type, model_config]`` on standard input, and on standard
output a JSON list of what ``run.json`` would say of each. MindFormers' own classes make the configuration; no weight is made."""

# ruff: noqa: E402
from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
from types import SimpleNamespace

os.environ["GLOG_v"] = "4"  # noqa: SIM112
os.chdir(tempfile.mkdtemp())  # logs are written to the working directory
ANSWERS = os.fdopen(os.dup(1), "w")
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


def recorded(kind: str, keys: dict[str, object]) -> dict[str, object]:
    """What a recorder finds in a network of a ``model_config``."""
    package, name = CLASSES[kind]
    module = importlib.import_module(f"mindformers.models.{package}.configuration_{kind}")
    own = {key: value for key, value in keys.items() if key != "model_type"}
    config = getattr(module, f"{name}Config")(**own).convert_to_transformer_config(is_mla_model=kind in LATENT)
    network = type(f"Training{name}ForCausalLM", (), {"model": type("GPTModel", (SimpleNamespace,), {})(config=config)})()
    return model_of(network).facts(None)


with ANSWERS:
    json.dump([recorded(*asked) for asked in json.load(sys.stdin)], ANSWERS)
