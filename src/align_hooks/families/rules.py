"""The rules of ``rules.txt``, from the names of parameters in a framework to those of Hugging Face."""

from __future__ import annotations

from pathlib import Path

from align_hooks.data_file import columns, sections
from align_hooks.names import blocks
from align_hooks.names.table import Rule

NATIVE, CANONICAL = "decoder.layers.{layer}", "model.layers.{layer}"
"""Prefixes of the names of a layer's parameters: Megatron's, and Hugging Face's."""
LAYOUTS = {
    layout.name: layout
    for layout in (
        *(blocks.UNFUSED, blocks.VOCABULARY, blocks.QKV_PER_GROUP, blocks.HALVES),
        *(blocks.GATE_THEN_UP, blocks.GATE_UP_BY_ROW, blocks.EXPERT_GATE_THEN_UP),
    )
}


def _rule(line: str) -> Rule:
    words = columns(line.split(), ("", "<-", "in", "axis"))
    (native,), (layout,), (axis,) = words[""], words["in"] or ("whole",), words["axis"] or ("0",)
    canonical = tuple(CANONICAL + name if name.startswith(".") else name for name in words["<-"])
    return Rule(NATIVE + native if native.startswith(".") else native, canonical, LAYOUTS[layout], int(axis))


RULES = {head: tuple(map(_rule, lines)) for head, lines in sections(Path(__file__).parent / "rules.txt").items()}
"""Kinds of parameters to their rules."""
