"""Local norms that MindFormers logged without names, and the record that names them."""

import dataclasses
import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from align_hooks import Run, open_run
from align_hooks.comparison.pipeline import compare
from align_hooks.comparison.stage_result import Status
from align_hooks.errors import RecordError
from align_hooks.evidence.convert import coarse, convert, local_norms
from comparison.conftest import stage
from evidence.test_logs import mindformers
from synthetic import Synthetic, scalars_only
from work import at_most

LOSSES = (9.0, 8.9, 8.8)


@pytest.fixture
def names(tmp_path: Path) -> Path:
    """A record that MindFormers made of the same model."""
    return dataclasses.replace(Synthetic(), side="ms").write(tmp_path / "names")


def order(names: Path) -> list[str]:
    return [name for group in open_run(names).facts.optimizer.groups for name in group.parameters]


def sizes(names: Path) -> tuple[int, ...]:
    elements = {shard.name: shard.elements for shard in open_run(names).shards(0)}
    return tuple(elements[name] for name in order(names))


def logged(names: Path, change: Callable[[list[float]], object] = lambda sums: None) -> str:
    """A log with the record's own local norms in it, in the optimizer's order, as MindFormers formats them."""
    run, text = open_run(names), mindformers(LOSSES)
    lines = text.splitlines()
    blocks = [lines[0]]
    for step, line in enumerate(line for line in lines if "step:[" in line):
        sums = [run.local_norms(step)[name] ** 2 for name in order(names)]
        change(sums)
        blocks += [f"12:00:0{step} - INFO -  norm_size: {sizes(names)}", "local_norm:", np.array2string(np.array(sums, np.float32)), line]
    return "\n".join(blocks)


def converted(tmp_path: Path, names: Path, text: str) -> Run:
    (tmp_path / "info.log").write_text(text)
    convert(tmp_path / "info.log", tmp_path / "run", names)
    return open_run(tmp_path / "run")


def test_each_number_is_put_to_its_name_and_step(tmp_path: Path, names: Path) -> None:
    ours, theirs = open_run(names), converted(tmp_path, names, logged(names))
    assert theirs.problems == []
    assert theirs.local_norm_steps() == [0, 1, 2]
    for step in range(3):
        assert theirs.local_norms(step) == pytest.approx(ours.local_norms(step), rel=2 * theirs.facts.resolution["local_norms"])
    assert theirs.facts.converted["names"] == str(names)


def test_they_are_judged_like_those_of_a_record(tmp_path: Path, names: Path) -> None:
    wrong = compare(open_run(names), converted(tmp_path, names, logged(names, lambda sums: sums.__setitem__(2, 1.01 * sums[2]))))
    assert (stage(wrong, "match").status, stage(wrong, "local norms").status) == (Status.SAME, Status.DIFFERENT)
    assert order(names)[2] in str(stage(wrong, "local norms").findings[0])


def test_limits_are_as_wide_as_the_digits_ask_for() -> None:
    """Without an exponent numpy prints eight decimals, of which a small number has few."""
    assert coarse("0.00000012") == pytest.approx(0.25e-8 / 1.2e-7)
    assert coarse("1.2000000e-07") == pytest.approx(0.25e-14 / 1.2e-7)
    assert [coarse(word) for word in ("0.", "nan", "inf")] == [0.0] * 3


def test_without_a_record_they_are_left_alone(tmp_path: Path, names: Path) -> None:
    (tmp_path / "info.log").write_text(logged(names))
    assert convert(tmp_path / "info.log", tmp_path / "run")[1] == open_run(tmp_path / "run").local_norm_steps() == []


def test_a_log_that_ends_before_its_step_keeps_what_is_whole(tmp_path: Path, names: Path) -> None:
    assert converted(tmp_path, names, logged(names).rpartition("\n")[0]).local_norm_steps() == [0, 1]


def test_numbers_that_are_none_are_kept(tmp_path: Path, names: Path) -> None:
    run = converted(tmp_path, names, logged(names, lambda sums: sums.__setitem__(1, math.nan)))
    assert math.isnan(run.local_norms(0)[order(names)[1]])


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("norm_size: (", "norm_size: (1, ", "parameters, the model of"),
        ("local_norm:\n[", "local_norm:\n[1.5 ... ", "no more than a thousand numbers"),
        ("local_norm:\n[", "local_norm:\n[1.5 ", "local norms of"),
        ("local_norm:\n[", "local_norm:\n[one ", "which is no sum of squares"),
        ("local_norm:\n[", "local_norm:\n[-", "which is no sum of squares"),
        ("local_norm:", "nothing:", "cannot be read"),
        (" - mindformers[trainer", " - 'use_parallel': True,\n2026-11-22 12:00:00,000 - mindformers[trainer", "one of several ranks"),
    ],
)
def test_what_cannot_be_named_is_refused(tmp_path: Path, names: Path, old: str, new: str, why: str) -> None:
    text = logged(names)
    assert old in text
    with pytest.raises(RecordError, match=why):
        converted(tmp_path, names, text.replace(old, new))
    assert not (tmp_path / "run").exists()


def doubled(text: str) -> str:
    """What two handlers leave in one file: each message twice."""
    blocks = re.split(r"\n(?=20|12:)", text)
    return "\n".join(each for block in blocks for each in (block, block))


def test_a_message_that_two_handlers_wrote_is_one(tmp_path: Path, names: Path) -> None:
    run = converted(tmp_path, names, doubled(logged(names)))
    assert run.local_norm_steps() == [0, 1, 2]
    assert run.local_norms(2) == pytest.approx(open_run(names).local_norms(2), rel=1e-6)


def test_a_block_belongs_to_no_step_but_its_own(tmp_path: Path, names: Path) -> None:
    """Of the last step the norms are lost: what stands above its line is another step's, once more."""
    text = doubled(logged(names))
    lost = text[: text.rindex("norm_size: ", 0, text.rindex("norm_size: "))] + text[text.rindex("\n2026") :]
    assert converted(tmp_path, names, lost).local_norm_steps() == [0, 1]


def test_two_ranks_in_one_log_are_refused(tmp_path: Path, names: Path) -> None:
    text, reversed_sums = (logged(names, change) for change in (lambda sums: None, lambda sums: sums.reverse()))
    first, second = (log.index("12:00:00 - INFO -  norm") for log in (text, reversed_sums))
    block = reversed_sums[second : reversed_sums.index("\n2026", second)]
    with pytest.raises(RecordError, match="has other local norms of iteration 1 than stand above"):
        converted(tmp_path, names, text[:first] + block + "\n" + text[first:])


def test_a_log_that_does_not_say_of_how_many_ranks_it_is_has_a_note(tmp_path: Path, names: Path) -> None:
    for head, notes in (("", 2), ("'use_parallel': False,\n", 1)):
        log = tmp_path / f"{notes}.log"
        log.write_text(head + logged(names))
        outcome, steps = convert(log, tmp_path / str(notes), names)
        assert (len(outcome.notes), steps) == (notes, [0, 1, 2])


def test_a_long_log_is_read_in_one_pass(names: Path, tmp_path: Path) -> None:
    """Of k lines, not of k times k."""
    run, of_all = open_run(names), sizes(names)
    sums = " ".join(["1.5"] * len(of_all))
    text = f"norm_size: {of_all}\nlocal_norm:\n[{sums}]\nstep\n" * 20_000 + "norm_size: (1\n" * 20_000
    lines = [(4 * step + 4, step) for step in range(20_000)]
    with at_most(3_000_000):  # 1.1 million: 28 a line
        squared, *_ = local_norms(text, lines, run, "log")
    assert len(squared) == 20_000


def test_the_log_must_have_local_norms_and_the_record_be_of_the_same_model_and_of_mindformers(tmp_path: Path, names: Path) -> None:
    text = logged(names)
    size = sizes(names)[0]
    with pytest.raises(RecordError, match=r"MindFormers logs them with runner_wrapper\.local_norm: True"):
        converted(tmp_path, names, mindformers(LOSSES))
    with pytest.raises(RecordError, match=f"has {size + 1} elements where"):
        converted(tmp_path, names, text.replace(f"norm_size: ({size},", f"norm_size: ({size + 1},"))
    for name, run in (("megatron", Synthetic()), ("bare", scalars_only(LOSSES))):
        with pytest.raises(RecordError, match="is no record by MindFormers on one rank"):
            converted(tmp_path, run.write(tmp_path / name), text)
