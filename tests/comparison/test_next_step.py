"""The one command to run after a verdict."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from align_hooks import open_run
from align_hooks.comparison.diagnosis.next_step import ADVICE, COMMANDS, Fact, first_advice, slots
from align_hooks.comparison.ladder import Ladder
from align_hooks.comparison.noise import Noise
from align_hooks.comparison.pair import Pair
from align_hooks.comparison.verdict import Place, Verdict
from align_hooks.messages import CHINESE, ENGLISH, message, rendered
from align_hooks.messages.progress import silent
from align_hooks.settings import PREFIX, Settings
from comparison.conftest import HONEST, Compared
from synthetic import HONEST_SKETCHED, Synthetic, scalars_only
from worded import ids


def every(verdict: Verdict) -> Iterator[frozenset[Fact]]:
    """Everything that can be known of a comparison with a verdict, as far as advice for it depends on it."""
    asked = sorted({fact for each in ADVICE if each.verdict is verdict for fact in (*each.when, *each.unless)}, key=lambda fact: fact.name)
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


@pytest.mark.parametrize("id", sorted({each.id for each in ADVICE}))
@pytest.mark.parametrize("language", [ENGLISH, CHINESE])
def test_every_message_of_the_advice_is_filled_in(tmp_path: Path, id: str, language: str) -> None:
    pair = Pair(*(open_run(HONEST.write(tmp_path / name)) for name in ("reference", "candidate")))
    filled = slots(Ladder(pair, Noise(pair, []), (), silent), [], None)
    assert "{" not in rendered(message(id, **filled), language)


def test_nothing_is_fed_from_a_run_that_cannot_feed(compared: Compared) -> None:
    """A record of norms and sketches holds no weights to load."""
    candidate = HONEST_SKETCHED.drifted()
    candidate.gradients[0] = {name: -reference for name, reference in candidate.gradients[0].items()}
    outcome = compared(candidate, against=HONEST_SKETCHED)
    assert (outcome.verdict, "LOAD_WEIGHTS" in rendered(outcome.next)) == (Verdict.DIVERGED, False)
    assert "ALIGN_HOOKS_WEIGHTS=0 " in rendered(outcome.next)


def test_the_paths_of_the_pair_are_filled_in(compared: Compared, candidate: Synthetic) -> None:
    candidate.gradients[0] = {name: 2 * gradient for name, gradient in candidate.gradients[0].items()}
    advice = rendered(compared(candidate).next)
    assert "ALIGN_HOOKS_PERTURB=1" in advice
    assert "--noise" in advice


def test_an_aligned_pair_that_recorded_little_is_told_to_record_more(compared: Compared) -> None:
    assert "ALIGN_HOOKS_SKETCHES=all" in rendered(compared(scalars_only(), against=scalars_only()).next)
    assert ids(compared(HONEST_SKETCHED.drifted(), against=HONEST_SKETCHED).next)[0] == "next.your_precision"
