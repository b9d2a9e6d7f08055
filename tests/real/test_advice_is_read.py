"""What a YAML says is what MindFormers' own trainer builds, and names that it does not read are known to the CheckList."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from align_hooks.checklist import mindformers_models
from align_hooks.checklist.row import Effect
from align_hooks.checklist.suggest_edits import usable
from align_hooks.checklist.tables import ROWS
from align_hooks.configuration.mindformers import MODEL, read_yaml
from align_hooks.data_file import sections
from real import advice
from real.advice import FAMILIES, base, long

TABLES = sections(Path(__file__).with_name("advice.txt"))
"""What is set in a base and built of it, below the families that it is of; and what is tried."""


@cache
def bases() -> dict[str, dict[str, Any]]:
    """What the bases build, and one whose rates warm up."""
    asked = {family: base(family) for family in FAMILIES}
    asked["warm"] = advice.changed(base("llama"), {"lr_schedule.type": "LinearWithWarmUpLR", "lr_schedule.warmup_steps": 5})
    return dict(zip(asked, advice.read_back([advice.text(keys) for keys in asked.values()]), strict=True))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_base_is_built_with_what_it_says(family: str) -> None:
    found, keys, wrong = bases()[family], base(family), {}
    assert "refused" not in found, found["refused"]
    for line in (line for families, lines in TABLES.items() if family in families.split(", ") for line in lines):
        key, _, rest = line.partition(": ")
        field, _, value = rest.partition(" = ")
        if long(key) not in keys or found["built"].get(field) != yaml.safe_load(value):
            wrong[key] = (keys.get(long(key)), field, found["built"].get(field))
    assert wrong == {}


def test_the_rates_are_those_of_the_schedule() -> None:
    rates = bases()["warm"]["built"]["schedule.rates"]
    assert len(rates) == 60
    assert rates[:7] == pytest.approx([0, 2e-4, 4e-4, 6e-4, 8e-4, 1e-3, 8e-4], abs=1e-9)


NOT_BUILT = ("transformer.", "network.generation_config", "network.model.config.", "callbacks.MFLossMonitor.", "wrapper.total_num_layers")
"""What is converted, printed, or asked for by what splits and saves a model, and computes nothing."""


def tries(family: str) -> dict[str, list[tuple[advice.Keys, advice.Keys]]]:
    """Keys that a family may be advised, and what is tried: the keys without it and with it."""
    candidate = read_yaml(advice.text(base(family)), "x.yaml", Path())
    rows = [row for row in ROWS if row.effect is not Effect.NOTHING]
    advised = {key for row in rows for key in row.mindformers.keys if key.startswith(MODEL) and usable([key], candidate)}
    found: dict[str, list[tuple[advice.Keys, advice.Keys]]] = {}
    for line in TABLES["tried"]:
        key, value, more = [*map(str.strip, line.split("|")), ""][:3]
        if long(key) in advised or key.removeprefix("m.") in mindformers_models.unread(family):
            with_more = advice.changed(base(family), yaml.safe_load(f"{{{more}}}"))
            found.setdefault(key, []).append((with_more, advice.changed(with_more, {key: yaml.safe_load(value)})))
    return found


@cache
def outcomes(family: str) -> dict[str, list[str]]:
    """What became of each try of a key: ``read``, ``unread``, or what MindFormers refuses it with."""
    tried = tries(family)
    asked = [advice.text(keys) for pairs in tried.values() for pair in pairs for keys in pair]
    answers = dict(zip(asked, advice.read_back(asked), strict=True))
    return {
        key: [outcome(answers[advice.text(without)], answers[advice.text(with_it)]) for without, with_it in pairs]
        for key, pairs in tried.items()
    }


def outcome(without: dict[str, Any], with_it: dict[str, Any]) -> str:
    """What a key does to what is built."""
    if "refused" in with_it:
        return str(with_it["refused"])
    if "refused" in without:
        return "read"
    before, after = without["built"], with_it["built"]
    moved = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    return "read" if any(not name.startswith(NOT_BUILT) for name in moved) else "unread"


@pytest.mark.slow
@pytest.mark.parametrize("family", mindformers_models.EVERY)
def test_names_that_are_not_read_are_known(family: str) -> None:
    """In both directions: of all keys that a row may advise, and of all that the table holds."""
    found = outcomes(family)
    real = {key.removeprefix("m.") for key, became in found.items() if "read" not in became}
    ours = mindformers_models.unread(family)
    values = {name for families, name, _ in mindformers_models.REFUSED_VALUES if family in families}
    known = mindformers_models.refused(family) | mindformers_models.ignored(family) | values
    wrong = {"not read, not known": sorted(real - ours - known), "known, and read": sorted(ours - real)}
    assert not any(wrong.values()), wrong


@cache
def values() -> dict[tuple[str, str, object], str]:
    """What each value that is said to be refused is answered with, by family, name and value; empty where it is built."""
    asked = [(family, name, value) for families, name, value in mindformers_models.REFUSED_VALUES for family in families]
    found = advice.read_back([advice.text(with_value(*one)) for one in asked])
    return {one: str(answer.get("refused", "")) for one, answer in zip(asked, found, strict=True)}


def with_value(family: str, name: str, value: object) -> advice.Keys:
    """A base with one value, and with what rope_scaling must hold too."""
    scaling = {"m.rope_scaling": None, "m.rope_scaling.factor": 2.0} if name.startswith("rope_scaling.") else {}
    return advice.changed(base(family), {**scaling, f"m.{name}": value})


@pytest.mark.slow
@pytest.mark.parametrize("family", mindformers_models.EVERY)
def test_values_that_are_said_to_be_refused_are(family: str) -> None:
    assert {(name, value): why for (one, name, value), why in values().items() if one == family and not why} == {}
    assert mindformers_models.refuses(family, "bias_swiglu_fusion", True, {})
    assert not mindformers_models.refuses(family, "bias_swiglu_fusion", True, {"hidden_act": "swiglu"})


@pytest.mark.slow
def test_a_value_that_is_taken_with_another() -> None:
    """``bias_swiglu_fusion: True`` wants ``hidden_act: swiglu``."""
    pairs = mindformers_models.ACCEPTED_WITH
    keys = {f"m.{name}": True for name in pairs} | {f"m.{name}": value for name, value in pairs.values()}
    for answer in advice.read_back([advice.text(advice.changed(base(family), keys)) for family in mindformers_models.EVERY]):
        assert answer["built"]["transformer.hidden_act"] == "fusedswiglu"
