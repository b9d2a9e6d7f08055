"""A value that is not known decides nothing: every value that ``check`` asks for is put in doubt, on either side, and it answers.

The values are those that the code looks up: each lookup of a check is noted.
"""

import itertools
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from align_hooks.checklist import result
from align_hooks.checklist.canonical_values import UNSET
from align_hooks.checklist.fix import fixed
from align_hooks.checklist.judge import JudgedRow, RowOutcome
from align_hooks.checklist.result import CLEAN, Checklist, check
from align_hooks.checklist.row import Effect
from align_hooks.checklist.tables import ROWS
from align_hooks.configuration.megatron import read_command, read_script
from align_hooks.configuration.values import MINDFORMERS, Configuration, ConfigurationError, SourceLocation, Value
from align_hooks.messages import message
from align_hooks.report.check import JSON, document
from align_hooks.report.html import page
from align_hooks.report.json import as_json
from checklist.exercises import EXPERTS, FLAGS, LATENT, MEGATRON, NEW, OLD, megatron, mindformers, mindformers_tree, row
from chosen import slow_but
from worded import on_terminal

MINDSPEED = "mindspeed"
STYLES = (OLD, NEW, EXPERTS, LATENT, MINDSPEED)
WHY = message("configuration.unset", name="SETTING", place="train.sh:2")


class Noted(dict[str, Value]):
    """A mapping that notes what it is asked for."""

    asked: set[str]

    def __init__(self, values: Mapping[str, Value], asked: set[str]) -> None:
        super().__init__(values)
        self.asked = asked

    def __contains__(self, name: object) -> bool:
        self.asked.add(str(name))
        return super().__contains__(name)

    def __getitem__(self, name: str) -> Value:
        self.asked.add(name)
        return super().__getitem__(name)

    def get(self, name: str, otherwise: Any = None) -> Any:
        self.asked.add(name)
        return super().get(name, otherwise)


Pair = tuple[Configuration, Configuration]
Setting = tuple[int, str]
"""The number of a side and a name of it."""
POSSIBLE = (True, 3, "other", False, 0, 1, 0.5, 0.001, "", [1])


def pair(style: str) -> Pair:
    """Both sides of a style; those of MindSpeed-LLM train the model with latent attention."""
    if style != MINDSPEED:
        return megatron(style, {}), mindformers(style, {})
    flags = {**MEGATRON, **FLAGS[EXPERTS], "spec": "mindspeed_llm.tasks.models.spec.qwen3_spec layer_spec", "norm-topk-prob": None}
    words = " ".join(f"--{name} {'' if value is None else value}" for name, value in flags.items())
    return read_command(f"torchrun pretrain_gpt.py {words}", {}), mindformers(EXPERTS, {})


def asked_of(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> list[Setting]:
    """The names that a check looks up, set or not, each with the number of the side that is asked."""
    asked: tuple[set[str], set[str]] = (set(), set())
    read, sides = result.as_read, iter(asked)

    def noted(configuration: Configuration, *versions: str) -> Configuration:
        names = next(sides)
        found = read(configuration, *versions)
        return replace(found, values=Noted(found.values, names), environment=Noted(found.environment, names))

    with monkeypatch.context() as patched:
        patched.setattr(result, "as_read", noted)
        check(*pair)
    return [(side, name) for side, names in enumerate(asked) for name in sorted(names)]


def given(sides: Pair, setting: Setting, value: Value | None) -> Pair:
    """A pair in which a name of one side has another value, or none; variables of the environment have names without a small letter."""
    at, name = setting
    side = sides[at]
    field = "environment" if name.isupper() else "values"
    values = {key: held for key, held in getattr(side, field).items() if key != name}
    changed = replace(side, **{field: values if value is None else {**values, name: value}})
    return (changed, sides[1]) if at == 0 else (sides[0], changed)


def unknown(sides: Pair, *settings: Setting) -> Pair:
    """A pair in which settings are not known, as where a script takes them from variables that nothing sets."""
    for at, name in settings:
        held = sides[at].values.get(name)
        place = held.place if held is not None else SourceLocation("train.sh", 2, name)
        sides = given(sides, (at, name), Value("${SETTING}", place, WHY))
    return sides


def possible(sides: Pair, setting: Setting) -> Iterator[Pair]:
    """Pairs in which a setting has another value than it stands there with, or is left out."""
    at, name = setting
    held = sides[at].values.get(name)
    yield from [given(sides, setting, None)] if held is not None else []
    of_one_type = [value for value in POSSIBLE if held is not None and type(value) is type(held.value)]
    yield from (given(sides, setting, Value(value, SourceLocation("train.sh", 2))) for value in of_one_type or POSSIBLE)


def decided(checked: JudgedRow) -> RowOutcome | None:
    """Whether a row is said to differ, and how, or not to (SAME); None where it is left open."""
    open_ones = (RowOutcome.UNKNOWN, RowOutcome.BY_HAND, RowOutcome.ALONE)
    no_result = checked.outcome is RowOutcome.HARMLESS and checked.row.effect is not Effect.RESULT
    if no_result or checked.outcome in open_ones:
        return None
    return RowOutcome.SAME if checked.outcome in (RowOutcome.HARMLESS, RowOutcome.UNUSED) else checked.outcome


def false_words(sides: Pair, stands: Checklist, setting: Setting, most: int) -> Iterator[str]:
    """What a check says of a pair with a setting that is not known, and that is not so of the pair as it stands, or with one of at most so
    many other values."""
    doubted = check(*unknown(sides, setting))
    for other in (None, *itertools.islice(possible(sides, setting), most)):
        answer = stands if other is None else check(*other)
        value = _value(sides if other is None else other, setting)
        for ours, theirs in zip(doubted.checked, answer.checked, strict=True):
            if None not in (decided(ours), decided(theirs)) and decided(ours) is not decided(theirs):
                yield f"{setting}: {ours.row.id} is {ours.outcome}, and {theirs.outcome} with {value!r}"
        for course, known in zip(doubted.courses, answer.courses, strict=True):
            if None not in (course.same, known.same) and course.same is not known.same:
                yield f"{setting}: {course.name} is {course.same}, and {known.same} with {value!r}"


def _value(sides: Pair, setting: Setting) -> object:
    at, name = setting
    return getattr(sides[at].values.get(name) or sides[at].environment.get(name), "written", "nothing")


def reported(checklist: Checklist, candidate: Path) -> None:
    """Write every report of a check."""
    report = document(checklist, everything=True)
    assert on_terminal(report)
    assert json.dumps(as_json(checklist, JSON))
    assert page(report, "1")
    if checklist.sides[1].framework == MINDFORMERS:
        with suppress(ConfigurationError):
            fixed(str(candidate), checklist)


def pairs() -> Iterator[Pair]:
    """Every style of a reference beside every style of a candidate, those that agree first."""
    styles = [*zip(STYLES, STYLES, strict=True), *((one, other) for one in STYLES for other in STYLES if one != other)]
    return ((pair(one)[0], pair(other)[1]) for one, other in styles)


def test_no_value_that_is_not_known_decides_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "align_hooks.checklist.judge.suggest_edits", lambda *_: {}
    )  # what is to be changed is asked for where reports are written
    several = [(sides, check(*sides)) for sides in pairs()]
    settings = sorted({setting for sides, _ in several[: len(STYLES)] for setting in asked_of(sides, monkeypatch)})
    assert len(settings) > 500
    turns = zip(settings[::6], itertools.cycle(several), strict=False)
    assert [word for setting, (sides, stands) in turns for word in false_words(sides, stands, setting, 1)] == []


@pytest.mark.slow
@pytest.mark.parametrize("number", range(2 * len(STYLES)))
def test_no_value_of_any_pair_decides_anything(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sides = next(itertools.islice(pairs(), number, None))
    stands = check(*sides)
    words = [word for setting in asked_of(sides, monkeypatch) for word in false_words(sides, stands, setting, len(POSSIBLE) + 1)]
    assert words == []


@pytest.mark.parametrize("style", slow_but(STYLES, LATENT))
def test_every_report_is_written_whatever_is_not_known(style: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sides = pair(style)[0], pair(OLD if style == NEW else NEW)[1]
    (candidate := tmp_path / "llama.yaml").write_text(yaml.safe_dump(mindformers_tree(OLD if style == NEW else NEW, {})))
    settings = asked_of(sides, monkeypatch)
    for some in (settings, *(settings[at::2] for at in range(2))):
        reported(check(*unknown(sides, *some)), candidate)


def test_no_two_values_that_are_not_known_end_a_check() -> None:
    sides = pair(LATENT)
    for one in ROWS:
        for ours, theirs in zip(one.megatron.keys, one.mindformers.keys, strict=False):
            answer = check(*unknown(sides, (0, ours), (1, theirs)))
            assert row(answer, one.id).outcome is not RowOutcome.DIFFERENT, (one.id, ours, theirs)


LOADS = {
    "a variable that nothing sets": "--load $CHECKPOINT_PATH",
    "an argument that is not given": "--load $1",
    "what a command prints": "--load $(ls -d checkpoints)",
    "a checkpoint to start from": "--pretrained-checkpoint $CHECKPOINT_PATH",
}


@pytest.mark.parametrize("words", LOADS.values(), ids=LOADS)
def test_a_checkpoint_that_is_not_known_leaves_the_rest_to_be_compared(words: str) -> None:
    arguments = " ".join(f"--{name} {'' if value is None else value}" for name, value in MEGATRON.items() if name != "load")
    script = read_script(f"torchrun pretrain_gpt.py {arguments} {words}", "train.sh", {})
    answer = check(script, mindformers(NEW, {}))
    load = row(answer, "load")
    assert (answer.exit_code, load.outcome, load.reference.canonical) == (CLEAN, RowOutcome.BY_HAND, UNSET)
    spread = row(check(script, mindformers(NEW, {"m.initializer_range": 0.5})), "init_method_std")
    assert spread.outcome is RowOutcome.DIFFERENT  # whatever the reference loads, the candidate loads nothing
    spread = row(check(script, mindformers(OLD, {"m.init_method_std": 0.5})), "init_method_std")
    assert (spread.outcome, spread.why) == (RowOutcome.UNKNOWN, load.reference.why)  # which does no harm if both load


def test_an_exported_variable_that_is_not_known_is_not_its_text() -> None:
    script = read_script("export HCCL_DETERMINISTIC=$LEVEL\ntorchrun pretrain_gpt.py --num-layers 2", "train.sh", {})
    level = row(check(script, mindformers(NEW, {})), "HCCL_DETERMINISTIC")
    assert (level.reference.canonical, level.advised) == (UNSET, ())


def test_two_settings_that_are_not_known_are_not_alike() -> None:
    command = "torchrun pretrain_gpt.py --num-layers 2 --hidden-size 64 --moe-latent-size"
    sides = [read_script(f"{command} {size}", "train.sh", {}) for size in ("$SIZE", "8")]
    same, none = check(sides[1], sides[1]), check(sides[0], sides[0])
    assert (same.uncovered, [setting.name for _, setting in none.uncovered]) == ([], ["moe_latent_size"] * 2)
    assert none.setting_differences == check(*sides).setting_differences == ()


def test_as_many_steps_are_not_alike_where_the_batch_may_part_them() -> None:
    sides, batch = pair(NEW), (0, "global_batch_size")
    apart = check(*given(sides, batch, Value(3, SourceLocation("train.sh", 2))))
    lengths = [row(answer, "train-iters") for answer in (check(*unknown(sides, batch)), apart)]
    assert [decided(length) for length in lengths] == [None, RowOutcome.DIFFERENT]
    assert lengths[0].why == WHY
