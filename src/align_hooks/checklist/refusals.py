"""Settings of a YAML that end its training before the first step, and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from align_hooks.checklist.change import in_yaml
from align_hooks.checklist.defaults import family
from align_hooks.checklist.newer_names import INSTEAD, refused
from align_hooks.checklist.readings.lookup import value_of
from align_hooks.checklist.readings.optimizer import beta_keys, moved_betas
from align_hooks.checklist.row import MODEL, UNSET, Edits, is_new, plain
from align_hooks.checklist.side_value import ODD
from align_hooks.checklist.writable import as_taken, type_of
from align_hooks.configuration.values import MINDFORMERS, Configuration, Unknown, Value
from align_hooks.messages import Message, all_of, message

ALLOWED: dict[str, tuple[str, ...]] = {
    "normalization": ("LayerNorm", "RMSNorm"),
    "moe_router_load_balancing_type": ("sub_seq_aux_loss", "seq_aux_loss", "gbs_aux_loss"),
}
"""Fields of a newer model and all the values that ``get_norm_cls`` and ``TopKRouter`` of its training graph know."""
NOT_A_FLOAT = re.compile(r"^[+-]?(\d+(\.\d*)?|\.\d+)[eE]\d+$|^[+-]?\d+[eE][+-]?\d+$")
"""Numbers that YAML 1.1 reads as text, for it wants a point and a sign."""
CHECKED = ("optimizer.", "lr_schedule.", "grouped_lr_schedule.default.")
"""Sections whose classes check the types of their numbers."""
DROPOUT = (f"{MODEL}hidden_dropout", f"{MODEL}attention_dropout")
"""Settings whose newer classes check that their numbers are floats, as the optimizers' do."""
CONVERTED = ("total_steps",)
"""Integers that the trainer makes of any number itself."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A setting that MindFormers refuses."""

    trap: Message
    """The setting's place, and what to do."""
    edits: Edits
    """The repair, UNSET for a key to take out; empty where only the reference says it."""


def refusals(configuration: Configuration) -> Iterator[Refusal]:
    """Yield what MindFormers refuses of a YAML."""
    if configuration.side != MINDFORMERS or configuration.facts is not None:  # a record was trained
        return
    for of in (_numbers, _betas, _names, _values):
        with suppress(Unknown, *ODD):
            yield from of(configuration)


def _numbers(c: Configuration) -> Iterator[Refusal]:
    """Yield numbers of a type that their key does not accept: text, an integer for a float, a fraction for an integer."""
    for name, value in c.values.items():
        if value.unknown is not None or (value.place is not None and value.place.is_json) or name in c.passed_over:
            continue
        kind, written, number = type_of(name), value.written, as_taken(name, value.written, c)
        key, members = name.removeprefix(MODEL), written if isinstance(written, list) else [written]
        texts = [member for member in members if isinstance(member, str)]
        if kind is None and isinstance(written, str) and NOT_A_FLOAT.match(written):
            number, kind = float(written), "number"
        if kind is None or number is None:
            continue
        words = {"place": value.where, "name": key, "value": str(written)}
        if texts and all(isinstance(plain(text), int | float) for text in texts):
            yield Refusal(message("trap.text_to_yaml", number=in_yaml(number), **words), {name: number})
        elif texts and name.startswith(CHECKED):
            yield Refusal(message("trap.no_number", place=value.where, name=key, value=texts[0]), {})
        elif kind == "float" and int in map(type, members) and (name.startswith("optimizer.") or (name in DROPOUT and is_new(c))):
            yield Refusal(message("trap.no_float", number=in_yaml(number), **words), {name: number})
        elif name.startswith(CHECKED) and kind == "integer" and isinstance(written, float) and not name.endswith(CONVERTED):
            yield Refusal(message("trap.no_integer", **words), {name: int(written)})


def _betas(c: Configuration) -> Iterator[Refusal]:
    """Yield betas in a form that the optimizer's class does not accept."""
    edits = moved_betas(c)
    refused = [key for key, value in edits.items() if value is UNSET]
    if refused:
        instead = ", ".join(f"{key}: {in_yaml(c.values[key].written if key in c.values else edits[key])}" for key in beta_keys(c))
        kind, place = str(value_of(c, ("optimizer.type",), "AdamW")), c.values[refused[0]].where
        yield Refusal(message("trap.betas", place=place, kind=kind, names=all_of(*refused), instead=instead), edits)


def _names(c: Configuration) -> Iterator[Refusal]:
    """Yield names whose presence ends the training of a newer model."""
    if not is_new(c) or not c.passed_over:
        return
    for name in sorted(refused(family(c))):
        if (value := written_in_yaml(c, name)) is None:
            continue
        trap = message("trap.refused_for_good", place=value.where, name=name)
        moved: Edits = {}
        if (instead := INSTEAD.get(name)) is not None:
            trap = message("trap.refused", place=value.where, name=name, instead=instead)
        if isinstance(instead, str) and MODEL + instead not in c.values and value.unknown is None:
            moved = {MODEL + instead: as_taken(MODEL + instead, value.written, c)}
        yield Refusal(trap, {**moved, MODEL + name: UNSET})


def _values(c: Configuration) -> Iterator[Refusal]:
    """Yield values that end the training of a newer model."""
    if not is_new(c):
        return
    for name, values in ALLOWED.items():
        if (value := c.values.get(MODEL + name)) is not None and c.passed_over and value.value not in values:
            known = all_of(*values)
            yield Refusal(message("trap.refused_value", place=value.where, name=name, value=str(value.value), known=known), {})
    grouped = c.values.get(f"{MODEL}moe_grouped_gemm")
    if family(c) in ("qwen3_moe", "deepseek_v3") and grouped is not None and grouped.value is False:
        yield Refusal(message("trap.no_other_product", place=grouped.where), {f"{MODEL}moe_grouped_gemm": True})


def written_in_yaml(c: Configuration, name: str) -> Value | None:
    """Return the YAML's own value of a name; None where it has none, or the model's ``config.json`` has it."""
    value = c.values.get(MODEL + name)
    return None if value is not None and value.place is not None and value.place.is_json else value
