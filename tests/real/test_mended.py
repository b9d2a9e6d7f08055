"""What a check tells to write is taken by MindFormers' own trainer, and read: every row's advice, and whole files that were mended."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from align_hooks.checklist.canonical_values import UNSET
from align_hooks.checklist.edits import Edit
from align_hooks.checklist.judge import RowOutcome
from align_hooks.checklist.result import Checklist, check
from align_hooks.checklist.sides import check as check_files
from align_hooks.checklist.sides import fix
from align_hooks.configuration.mindformers import MODEL, read_yaml
from align_hooks.configuration.yaml_edits import with_settings
from checklist.exercises import EXERCISES, Exercise, flags, megatron
from checklist.shipped import REAL
from checklist.wheels import installed
from chosen import slow_but
from real import advice
from real.advice import FAMILIES, base, changed

PAIRS = Path(__file__).parents[1] / "checklist" / "pairs"
TAKEN: dict[str, dict[str, str]] = {
    "qwen3 32b": {},
    "qwen3 30b a3b": {},
    "telechat3 105b": {},
    "deepseek3 12b": {},
    "deepseek3 671b": {"use_parallel": "False", f"{MODEL}num_hidden_layers": "4", f"{MODEL}n_routed_experts": "16"},
}
"""Pairs whose YAML MindFormers 1.9 ships and a machine without NPUs can build, and what of a YAML such a machine is too small for."""
HERE = {"train_dataset.num_parallel_workers": "1", "auto_trans_ckpt": "False"}
"""MindSpore refuses more workers than the machine has processors, and the weights to convert are to be filled in."""


@pytest.mark.slow
@pytest.mark.parametrize("name", TAKEN)
def test_a_mended_file_is_taken_by_mindformers(name: str) -> None:
    reference, candidate = str(PAIRS / REAL[name].script), str(installed(REAL[name].yaml))
    checklist = check_files(reference, candidate, {})
    mended, _ = fix(reference, candidate, {}, checklist, None)
    before, after = advice.read_back([with_settings(text, name, HERE | TAKEN[name]) for text in (mended.before, mended.after)])
    assert checklist.edits and "refused" not in after, after
    assert before["built"] != after["built"]


@dataclass(frozen=True)
class Told:
    """What is told of an exercise's difference in a family: the row, the edits, and the YAML without and with them."""

    row: str
    edits: tuple[Edit, ...]
    without: str
    with_them: str


def exercises(family: str) -> Iterator[tuple[Exercise, dict[str, Any], advice.Keys]]:
    """The exercises that a family can be brought to: each with its flags, and the keys of a YAML that does not agree."""
    for exercise in (exercise for exercise in EXERCISES if exercise.style == FAMILIES[family]):
        asked = flags(exercise.other["FLAGS"]) if "FLAGS" in exercise.other else exercise.flags
        yield exercise, asked, changed(base(family), {key: value for key, value in exercise.other.items() if key != "FLAGS"})


def checked(family: str, style: str, asked: dict[str, Any], keys: advice.Keys) -> Checklist:
    """What a check finds of flags and a YAML."""
    return check(megatron(style, asked), read_yaml(advice.text(keys), f"{family}.yaml", Path()))


def told(family: str) -> Iterator[Told]:
    """The advice on every difference of the exercises that a family can be brought to."""
    for exercise, asked, keys in exercises(family):
        checklist = checked(family, exercise.style, asked, keys)
        for one in (*checklist.of(RowOutcome.DIFFERENT), *checklist.of(RowOutcome.UNKNOWN)):
            if one.change is not None and one.change.is_safe and one.row.id == exercise.row:
                mended = edited(keys, checklist.edits)
                yield Told(one.row.id, one.change.edits, advice.text(keys), advice.text(mended))


def edited(keys: advice.Keys, edits: Iterable[Edit]) -> advice.Keys:
    """A YAML's keys with what is told: what is to be taken out is not there."""
    return changed(keys, {edit.key: None if edit.value is UNSET else edit.value for edit in edits})


def in_other_types(written: str | None) -> list[Any]:
    """Return a number as an integer, as a float, as one between two integers, and as none; nothing of what is no number."""
    try:
        number = float(str(written))
    except ValueError:
        return []
    return [other for other in (int(number), number, number + 0.5, None) if str(other) != str(written)]


def told_of_other_types(family: str) -> Iterator[tuple[str, str]]:
    """The YAML without and with what is told, where a number of the other side's is of another type or is not there."""
    for exercise, asked, keys in exercises(family):
        for flag, other in ((flag, other) for flag, written in asked.items() for other in in_other_types(written)):
            if edits := checked(family, exercise.style, {**asked, flag: other}, keys).edits:
                yield advice.text(keys), advice.text(edited(keys, edits))


@pytest.mark.parametrize("family", slow_but(("llama", "qwen3_moe", "deepseek_v3")))
def test_what_is_told_has_the_type_that_mindformers_takes(family: str) -> None:
    texts = list(dict.fromkeys(told_of_other_types(family)))
    read = advice.read_back([one for pair in texts for one in pair])
    refused = {
        with_it: after["refused"]
        for (_, with_it), before, after in zip(texts, read[::2], read[1::2], strict=True)
        if "refused" in after and "refused" not in before
    }
    assert len(texts) > 10
    assert refused == {}


@cache
def answers(family: str) -> list[tuple[Told, dict[str, Any], dict[str, Any]]]:
    cases = list(told(family))
    read = advice.read_back([one for case in cases for one in (case.without, case.with_them)])
    return list(zip(cases, read[::2], read[1::2], strict=True))


NOT_BUILT = {
    *("seq_length", "split", "data_path", "reset_attention_mask", "eod_mask_loss", "seed_of_the_data", "reset_position_ids"),
    *("loss_of_every_token_alike",),
}
"""Rows of what stands in data or is asked for in a step, which no built object tells."""


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_told_is_taken_and_read(family: str) -> None:
    refused, unread = {}, []
    for case, without, with_them in answers(family):
        if "refused" in with_them and "refused" in without:
            continue  # small as it is, the exercise's model is none that either framework takes
        if "refused" in with_them:
            refused[case.row, str(case.edits)] = with_them["refused"], without.get("refused")
        elif "refused" not in without and without["built"] == with_them["built"] and case.row not in NOT_BUILT:
            unread.append((case.row, [(edit.key.removeprefix(MODEL), edit.value) for edit in case.edits]))
    assert (refused, unread) == ({}, [])
