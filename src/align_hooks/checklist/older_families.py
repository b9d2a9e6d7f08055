"""Older models of MindFormers, no LLaMA, by the sources of 1.3 and 1.5 (most in ``research/``): defaults, and what networks read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from align_hooks.configuration.values import Setting
from align_hooks.data_file import sections, setting

FILE = Path(__file__).parent / "older_families.txt"
DEEPSEEK2, DEEPSEEK3 = "deepseekv2", "deepseekv3"
DEEPSEEK = (DEEPSEEK2, DEEPSEEK3)
"""``research/deepseek2`` and ``research/deepseek3``, whose layers are the same: latent attention, and experts by ``moe_config``."""
GPT2, INTERNLM2, QWEN = "gpt2", "internlm2", "qwen"
CLASSES = {f"{family}config": family for family in (*DEEPSEEK, GPT2, INTERNLM2, QWEN)}
"""``model_config.type``, in lower case, to the family."""
GONE = dict.fromkeys(("GPT2Config", "InternLM2Config", "QwenConfig"), "1.5")
"""Classes that MindFormers no longer has, and the last release that has them."""
_PARTS = {head.partition(":")[0]: (head.partition(":")[2].split(), lines) for head, lines in sections(FILE).items()}


def _fields(name: str) -> dict[str, Setting]:
    """Return the fields of a section of the file, and those of the parts that it is made of and does not set itself."""
    parts, lines = _PARTS[name]
    fields = {field: value for part in parts for field, value in _fields(part).items()}
    return fields | {field: setting(value) for line in lines for field, value in (word.split("=") for word in line.split())}


OLDER_DEFAULTS: Mapping[str, Mapping[str, Setting]] = {family: _fields(family) for family in CLASSES.values()}
"""Family to field of ``TransformerConfig`` to value; a field that is not there is not known."""
FIRST_DENSE, EXPERT_FFN = 1, 1407
"""``MoEConfig.first_k_dense_replace``, which is True, and ``moe_intermediate_size``; only DeepSeek's layers read them."""
NOT_READ: Mapping[str, tuple[str, ...]] = {
    "llama": ("initializer_range", "kv_channels", "rotary_pct", "rotary_emb_base", "emb_dropout_prob"),
    DEEPSEEK2: ("init_method_std",),
    DEEPSEEK3: (),
    GPT2: ("compute_dtype",),
    INTERNLM2: ("init_method_std",),
    QWEN: ("init_method_std", "qkv_has_bias"),
}
"""Family to names of ``model_config`` that its class may accept and its networks do not read; what a class does not accept is known by
``class_keys.txt``. A Llama may be of another class."""
