"""run_mindformer.py with a fault planted in our own name table: k_proj and v_proj exchanged."""

from __future__ import annotations

import dataclasses
import runpy
from pathlib import Path

from align_hooks.families import registry
from align_hooks.families.llama import LLAMA

KEY, VALUE = (f"model.layers.{{layer}}.self_attn.{name}_proj.weight" for name in "kv")
EXCHANGED = {(KEY,): (VALUE,), (VALUE,): (KEY,)}
assert LLAMA.mindformers is not None
table = LLAMA.mindformers.table
rules = tuple(dataclasses.replace(rule, canonical=EXCHANGED.get(rule.canonical, rule.canonical)) for rule in table.rules)
assert rules != table.rules
changed = dataclasses.replace(LLAMA.mindformers, table=dataclasses.replace(table, rules=rules))
swapped = dataclasses.replace(LLAMA, mindformers=changed)
registry.FAMILIES = tuple(swapped if family is LLAMA else family for family in registry.FAMILIES)

runpy.run_path(str(Path(__file__).parents[3] / "launch" / "run_mindformer.py"), run_name="__main__")
