"""Every flag of Megatron's that changes what a row means is named there, and leaving it out mends the row."""

import pytest

from align_hooks.checklist.canonical_values import UNSET, ValueOrigin, same
from align_hooks.checklist.judge import RowOutcome, judge
from align_hooks.checklist.result import check
from align_hooks.checklist.tables import ROWS
from align_hooks.configuration.megatron import CHOICES, FLAGS
from checklist.exercises import EXPERTS, LATENT, OLD, megatron, mindformers, row, to_change

VALUES = {"nothing": [""], "integer": ["2"], "number": ["0.5"], "text": ["x"]}
"""What a flag takes, to values that are tried where its parser names no choices."""
STYLES = [OLD, *(pytest.param(style, marks=pytest.mark.slow) for style in (EXPERTS, LATENT))]


@pytest.mark.parametrize("style", STYLES)
def test_a_row_names_each_flag_that_decides_it_and_leaving_that_out_mends_it(style: str) -> None:
    base = megatron(style, {})
    held = {one.id: one.read(base).canonical for one in ROWS}
    tried, silent = 0, []
    for flag in FLAGS.keys() - {name.replace("_", "-") for name in base.values}:
        for value in CHOICES.get(flag) or VALUES[FLAGS[flag]]:
            candidate = megatron(style, {flag: value})
            values = {one.id: one.read(candidate) for one in ROWS}
            apart = {
                name for name in held if UNSET not in (held[name], values[name].canonical) and not same(held[name], values[name].canonical)
            }
            tried += len(apart)
            silent += [(flag, value, name) for name in apart if isinstance(values[name].place, ValueOrigin)]
            for checked in judge(base, candidate) if apart else ():
                told = checked.outcome not in (RowOutcome.DIFFERENT, RowOutcome.ROUNDING) or (checked.change and checked.change.edits)
                silent += [] if told else [(flag, value, checked.row.id)]
    assert tried > 150
    assert not silent


def test_a_flag_that_makes_norms_decay_is_left_out() -> None:
    found = row(check(mindformers(OLD, {}), megatron(OLD, {"apply-wd-to-qk-layernorm": ""})), "weights_that_decay")
    assert to_change(found) == "leave --apply-wd-to-qk-layernorm out"
    assert "--apply-wd-to-qk-layernorm" in str(found.candidate.place)
