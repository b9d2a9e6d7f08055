"""The one command to run after a verdict."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from align_hooks import open_run
from align_hooks.compare.diagnosis.next_step import ADVICE, COMMANDS, Fact, first_advice, slots
from align_hooks.compare.ladder import Ladder
from align_hooks.compare.noise import Noise
from align_hooks.compare.pair import Pair
from align_hooks.compare.verdict import Place, Verdict
from align_hooks.messages import CHINESE, ENGLISH, message, rendered
from align_hooks.messages.progress import silent
from align_hooks.settings import PREFIX, Settings
from compare.conftest import HONEST, Compared
from synthetic import HONEST_SKETCHED, Synthetic, scalars_only
from worded import ids


def every(verdict: Verdict) -> Iterator[frozenset[Fact]]:
    """Everything that can be known of a comparison with a verdict, as far as advice for it depends on it."""
    asked = sorted({fact for one in ADVICE if one.verdict is verdict for fact in (*one.given, *one.unless)}, key=lambda fact: fact.name)
    for holds in itertools.product((False, True), repeat=len(asked)):
        yield frozenset(itertools.compress(asked, holds))


@pytest.mark.parametrize("verdict", Verdict)
def test_there_is_advice_for_everything_that_can_be(verdict: Verdict) -> None:
    for place in (*Place, None):
        for known in every(verdict):
            assert first_advice(verdict, place, known).verdict is verdict


def test_every_row_can_be_reached() -> None:
    reached = {first_advice(verdict, place, known) for verdict in Verdict for place in (*Place, None) for known in every(verdict)}
    assert reached == set(ADVICE)


def test_commands_name_variables_that_exist() -> None:
    known = {PREFIX + name.upper() for name in Settings.__dataclass_fields__}
    named = {word.partition("=")[0] for command in COMMANDS.values() for word in command.split() if word.startswith(PREFIX)}
    assert len(named) > 8
    assert named <= known


@pytest.mark.parametrize("id", sorted({one.what for one in ADVICE}))
@pytest.mark.parametrize("language", [ENGLISH, CHINESE])
def test_every_message_of_the_advice_is_filled_in(tmp_path: Path, id: str, language: str) -> None:
    pair = Pair(*(open_run(HONEST.write(tmp_path / name)) for name in ("reference", "candidate")))
    filled = slots(Ladder(pair, Noise(pair, []), (), silent), [], None)
    assert "{" not in rendered(message(id, **filled), language)


def test_nothing_is_fed_from_a_run_that_cannot_feed(compared: Compared) -> None:
    """A record of norms and sketches holds no weights to load."""
    other = HONEST_SKETCHED.drifted()
    other.gradients[0] = {name: -one for name, one in other.gradients[0].items()}
    found = compared(other, against=HONEST_SKETCHED)
    assert found.verdict is Verdict.DIVERGED
    assert "LOAD_WEIGHTS" not in rendered(found.next)
    assert "ALIGN_HOOKS_WEIGHTS=0 <the reference's command>" in rendered(found.next)


def first_gradient_doubled() -> Synthetic:
    run = HONEST.drifted()
    run.gradients[0] = {name: 2 * one for name, one in run.gradients[0].items()}
    return run


def test_the_paths_of_the_pair_are_filled_in(compared: Compared) -> None:
    found = compared(first_gradient_doubled())
    assert "ALIGN_HOOKS_PERTURB=1" in rendered(found.next)
    assert "--noise" in rendered(found.next)


def test_an_aligned_pair_that_recorded_little_is_told_to_record_more(compared: Compared) -> None:
    assert "ALIGN_HOOKS_SKETCHES=all" in rendered(compared(scalars_only(), against=scalars_only()).next)
    assert ids(compared(HONEST_SKETCHED.drifted(), against=HONEST_SKETCHED).next)[0] == "next.your_precision"
