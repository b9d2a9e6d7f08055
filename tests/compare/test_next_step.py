"""The one command to run after a verdict."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from align_hooks.compare.diagnosis.blame import GRADIENTS, PLACES
from align_hooks.compare.diagnosis.next_step import ADVICE, next_step
from align_hooks.compare.verdict import Verdict
from align_hooks.settings import PREFIX, Settings
from compare.conftest import HONEST, Compared
from synthetic import HONEST_SKETCHED, Synthetic, scalars_only

FACTS = (
    "measured",
    "settings",
    "replayed",
    "loaded",
    "injected",
    "half",
    "sharded",
    "stored",
    "fed",
    "gradients",
    "checkpoint",
    "bare",
    "told",
    "another model",
    "itself",
    "rates",
    "resumed",
    "padding",
    "logs",
    "one rank",
    "other rows",
    "nothing",
)
NAMES = ("reference", "candidate", "noise", "again", "weights", "broken", "suspect", "setting", "first", "updates", "states")
NAMES += ("rows", "setting_of_rows")
WORDS = {name: name.upper() for name in NAMES}


def every(verdict: Verdict) -> Iterator[dict[str, bool]]:
    """Everything that can be known of a comparison with a verdict, as far as advice for it depends on it."""
    asked = sorted({fact.removeprefix("not ") for one in ADVICE if one.verdict is verdict for fact in one.given})
    for values in itertools.product((False, True), repeat=len(asked)):
        yield dict.fromkeys(FACTS, False) | dict(zip(asked, values, strict=True))


@pytest.mark.parametrize("verdict", Verdict)
def test_there_is_advice_for_everything_that_can_be(verdict: Verdict) -> None:
    for place in {*PLACES.values(), GRADIENTS, "loss normalisation", ""}:
        for facts in every(verdict):
            assert next_step(verdict, place, facts, WORDS)


def test_every_row_can_be_reached_and_names_variables_that_exist() -> None:
    told = {
        next_step(verdict, place, facts, WORDS)
        for verdict in Verdict
        for place in {*PLACES.values(), GRADIENTS, "loss normalisation", ""}
        for facts in every(verdict)
    }
    assert {fact.removeprefix("not ") for one in ADVICE for fact in one.given} <= set(FACTS)
    assert {one.what.format(**WORDS) for one in ADVICE} == told
    known = {PREFIX + name.upper() for name in Settings.__dataclass_fields__}
    named = {word.partition("=")[0].strip(",") for text in told for word in text.split() if word.startswith(PREFIX)}
    assert named <= known


def test_nothing_is_fed_from_a_run_that_cannot_feed(compared: Compared) -> None:
    """A record of norms and sketches holds no weights to load."""
    other = HONEST_SKETCHED.drifted()
    other.gradients[0] = {name: -one for name, one in other.gradients[0].items()}
    found = compared(other, against=HONEST_SKETCHED)
    assert found.verdict is Verdict.DIVERGED
    assert "LOAD_WEIGHTS" not in found.next
    assert "ALIGN_HOOKS_WEIGHTS=0 <the reference's command>" in found.next


def first_gradient_doubled() -> Synthetic:
    run = HONEST.drifted()
    run.gradients[0] = {name: 2 * one for name, one in run.gradients[0].items()}
    return run


def test_the_paths_of_the_pair_are_filled_in(compared: Compared) -> None:
    found = compared(first_gradient_doubled())
    assert "ALIGN_HOOKS_PERTURB=1" in found.next
    assert "--noise" in found.next
    assert "{" not in found.next


def test_an_aligned_pair_that_recorded_little_is_told_to_record_more(compared: Compared) -> None:
    assert "ALIGN_HOOKS_SKETCHES=all" in compared(scalars_only(), against=scalars_only()).next
    assert "precision" in compared(HONEST_SKETCHED.drifted(), against=HONEST_SKETCHED).next
