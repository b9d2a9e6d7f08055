"""Defaults of MindFormers' configuration classes, by family of model: data, in ``defaults.txt``.

Newer models have what the classes of MindFormers 1.9 hold when built from an empty configuration, as tests build them;
older ones ``LlamaConfig``'s and ``MoEConfig``'s values. Those that 1.9 no longer has are in ``older_families.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from align_hooks.checklist.older_families import CLASSES, OLDER_DEFAULTS
from align_hooks.checklist.row import UNSET, Read, is_new, model
from align_hooks.configuration.values import Configuration, Setting, Value
from align_hooks.data_file import sections, setting

LLAMA = "llama"
"""The older family: ``LlamaConfig``, which also serves Qwen2.5, Mixtral and GLM of ``use_legacy: True``."""
ARCHITECTURES = {
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "glm4": "Glm4ForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM",
    "telechat": "Telechat2ForCausalLM",
    "telechat3": "TeleChat3ForCausalLM",
    "telechat3_moe": "TeleChat3MoeForCausalLM",
}
"""Family, which is ``model_type``, to the name of its architecture."""
CHATGLM = "chatglm2"
"""The other older family: ``ChatGLM2Config``, which serves GLM-3 and GLM-4 too."""
OLDER = (LLAMA, CHATGLM)
"""Older families that 1.9 still has."""
MLA = ("deepseek_v3", "telechat3_moe")
EXPERTS = ("qwen3_moe", "deepseek_v3", "glm4_moe", "telechat3_moe")
OTHERS = ""
"""The row of a table that holds for every other family of the newer models."""


def _by_family() -> Mapping[str, Mapping[str, Setting]]:
    rows: dict[str, dict[str, Setting]] = {}
    for line in sections(Path(__file__).parent / "defaults.txt")[""]:
        field, *words = line.split()
        for name, _, value in (word.rpartition("=") for word in words):
            rows.setdefault(field, {})[name] = setting(value)
    return rows


DEFAULTS = _by_family()
"""Field of ``TransformerConfig`` to its value by family."""
KEY_VALUE_HEADS = {CHATGLM: 2, "internlm2": 8, "qwen3_moe": 4, "glm4": 2, "glm4_moe": 8}
HEAD_DIM = {CHATGLM: 128, "qwen3": 128, "qwen2": 128, "telechat3": 128, "glm4": 128, "telechat": 128}
EXPERT_SIZE = {"qwen3_moe": 768, "deepseek_v3": 2048, "glm4_moe": 1408, "telechat3_moe": 1536}
TEMPLATE_SINCE = (1, 5)
"""The MindFormers since which ``ConfigTemplate`` (``mindformers.tools.register.template``) fills in sections that a YAML lacks."""
TEMPLATE: Mapping[str, Mapping[str, Setting]] = {
    "optimizer": {"type": "AdamW", "betas": [0.9, 0.999], "learning_rate": 5e-5, "eps": 1e-8, "weight_decay": 0.0},
    "lr_schedule": {"type": "CosineWithWarmUpLR", "learning_rate": 5e-5, "lr_end": 0.0, "warmup_ratio": 0.0, "total_steps": -1},
}
"""Sections of a training; the readings of ``runner_wrapper`` have its own."""


def family(configuration: Configuration) -> str | None:
    """Return the family of a MindFormers configuration; None where it is not known."""
    kinds = ("model_type", "architectures", "type")
    model_type, architectures, kind = (configuration.find(model(name)) for name in kinds)
    if not is_new(configuration):
        name = str(kind.value).lower() if kind is not None else LLAMA
        return LLAMA if "llama" in name else CHATGLM if "chatglm" in name else CLASSES.get(name)
    if model_type is not None and str(model_type.value) in ARCHITECTURES:
        return str(model_type.value)
    named = architectures.value if architectures is not None else None
    first = str(named[0] if isinstance(named, list) and named else named).lower()
    return next((name for name, architecture in ARCHITECTURES.items() if architecture.lower() == first), None)


def default(field: str) -> Read:
    """Return a reading of a family's default of a field; UNSET where the model's own ``config.json`` is not here to be read."""

    def read(configuration: Configuration) -> Setting:
        name, table = family(configuration), DEFAULTS.get(field, {})
        if configuration.unread or name is None:
            return UNSET
        if name in OLDER_DEFAULTS:
            return OLDER_DEFAULTS[name].get(field, UNSET)
        return table.get(name, UNSET if name in OLDER else table.get(OTHERS, UNSET))

    return read


def if_complete(value: Setting) -> Read:
    """Return a reading of ``value``; UNSET where the model's own ``config.json`` is not here to be read."""
    return lambda configuration: UNSET if configuration.unread else value


def of_template(values: Mapping[str, Value]) -> dict[str, Value]:
    """Return the values of sections that a configuration lacks; a schedule by groups replaces the common one."""
    there = {name.partition(".")[0] for name in values}
    lacking = [name for name in TEMPLATE if name not in there and not (name == "lr_schedule" and "grouped_lr_schedule" in there)]
    return {f"{section}.{key}": Value(value) for section in lacking for key, value in TEMPLATE[section].items()}
