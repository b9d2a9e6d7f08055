"""Tensors that are none of a model are refused, the first of them by name."""

from __future__ import annotations

import pytest

from align_hooks.errors import RefusedRun
from align_hooks.replay.unfit import refuse_unfit


def test_weights_that_fit_pass_and_others_are_named() -> None:
    wanted = {"a": (2, 2), "b": (3,)}
    refuse_unfit(wanted, dict(wanted), "x")
    with pytest.raises(RefusedRun) as caught:
        refuse_unfit(wanted, {"b": (4,), "c": (1,)}, "/run@0")
    for part in ("/run@0", "a [2, 2] is missing", "c [1] is not of this model", "b is [4], this model has [3]"):
        assert part in str(caught.value)


def test_of_many_misfits_the_first_three_are_named_and_the_rest_counted() -> None:
    with pytest.raises(RefusedRun, match=r"; and 7 more"):
        refuse_unfit({str(number): (1,) for number in range(10)}, {}, "x")
