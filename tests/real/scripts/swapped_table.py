"""run_mindformer.py with a fault planted in our own name table: k_proj and v_proj exchanged."""

from __future__ import annotations

import dataclasses
import runpy
from pathlib import Path

from align_hooks.names import mindformers_llama, table

KEY, VALUE = (f"model.layers.{{layer}}.self_attn.{name}_proj.weight" for name in "kv")
EXCHANGED = {(KEY,): (VALUE,), (VALUE,): (KEY,)}
rules = tuple(
    dataclasses.replace(rule, canonical=EXCHANGED.get(rule.canonical, rule.canonical)) for rule in mindformers_llama.MINDFORMERS_LLAMA.rules
)
assert rules != mindformers_llama.MINDFORMERS_LLAMA.rules
mindformers_llama.MINDFORMERS_LLAMA = table.Table("MindFormers", rules)

runpy.run_path(str(Path(__file__).parents[3] / "launch" / "run_mindformer.py"), run_name="__main__")
