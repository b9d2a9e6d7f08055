"""How two schedules are held against each other; their formulas are held against the frameworks in ``tests/real/test_checklist.py``."""

import warnings

import numpy as np
import pytest
from msgspec.structs import replace

from align_hooks.checklist.judge import RowOutcome
from align_hooks.checklist.lookup import Unstated
from align_hooks.checklist.result import check
from align_hooks.checklist.schedules import FIRST, MOST, RATE, Schedule, differences, megatron_rate, sampled, weight_decay
from align_hooks.configuration.megatron import read_command
from align_hooks.messages import message
from checklist.exercises import NEW, megatron, mindformers
from worded import messages


def constant(rate: float, steps: int | None = None) -> Schedule:
    """The same rate at every step."""
    return Schedule(lambda at: np.full(at.shape, rate), steps, "")


@pytest.mark.parametrize(("rate", "apart"), [(1e-3, 0.0), (0.0, 1.0), (2e-3, 0.5), (float("nan"), np.inf), (float("inf"), np.inf)])
def test_a_rate_that_is_no_number_is_never_the_same(rate: float, apart: float) -> None:
    steps, found = differences(constant(1e-3, 10), constant(rate, 8))
    assert steps.tolist() == list(range(8))
    assert found.tolist() == pytest.approx([apart] * 8)
    both_odd = differences(constant(rate, 8), constant(rate, 8))[1]
    assert bool((both_odd > RATE).any()) is not np.isfinite(rate)


def test_a_constant_decay_is_compared_over_the_steps_that_a_run_makes() -> None:
    ours, theirs = megatron(NEW, {"train-iters": 20, "weight-decay": 0.1}), mindformers(NEW, {"optimizer.weight_decay": 0.2})
    assert weight_decay(ours).steps == 20
    course = check(ours, theirs).courses[1]
    assert course.same is False
    assert len(course.steps) <= 20
    assert course.differing == len(course.steps)


def test_where_two_courses_part_first_and_most_is_told_by_step_and_iteration() -> None:
    found = check(megatron(NEW, {"lr-decay-style": "cosine"}), mindformers(NEW, {})).courses[0]
    told = {part.id: (part.arguments["step"], part.arguments["iteration"]) for part in messages(found.text)}
    assert told == {"course.differs": (1, 2), "course.most": (found.most, found.most + 1)} and found.most > 1


def test_nothing_against_nothing_is_the_same() -> None:
    assert differences(constant(0.0), constant(0.0))[1].max() == 0.0


def test_a_formula_that_divides_by_zero_warns_nobody() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not np.isfinite(Schedule(lambda at: at / 0.0, 3, "").at(np.arange(3))).any()


def test_of_a_long_run_the_beginning_and_the_end_are_among_the_steps_that_are_compared() -> None:
    steps = sampled(10_000_000)
    assert len(steps) <= MOST
    assert steps[:FIRST].tolist() == list(range(FIRST))
    assert steps[-1] == 9_999_999
    assert sampled(MOST).tolist() == list(range(MOST))


SAMPLES = "--train-samples 1200 --global-batch-size 4 --lr 1e-3 --min-lr 1e-5 --lr-decay-style cosine --lr-decay-samples 600"
STEPS = "--train-iters 300 --global-batch-size 4 --lr 1e-3 --min-lr 1e-5 --lr-decay-style cosine --lr-decay-iters 150"


def test_a_schedule_in_samples_is_that_in_steps() -> None:
    one, other = (read_command(f"--num-layers 2 {words} --lr-warmup-fraction 0.1", {}) for words in (SAMPLES, STEPS))
    found = check(one, other)
    assert found.courses[0].same is True
    held = {one.row.id: (one.reference.canonical, one.candidate.canonical) for one in found.checked}
    assert held["lr_decay_iters"] == (150, 150)
    assert held["lr_warmup_iters"] == (15, 15)
    assert [one.row.id for one in found.of(RowOutcome.DIFFERENT)] == []


def test_of_a_record_counted_in_samples_megatron_filled_the_iterations_in() -> None:
    recorded = replace(read_command(f"--num-layers 2 {SAMPLES} --train-iters 300", {}), facts={})
    assert megatron_rate(recorded).steps == 300
    with pytest.raises(Unstated) as untold:
        megatron_rate(replace(recorded, facts=None))
    assert untold.value.why == message("untold.counted_in_iterations", flag="--lr-decay-samples")
