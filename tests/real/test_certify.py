"""A card of each demo family's pair holds against its records, and is made again by its commands."""

import json
from pathlib import Path

import pytest

from align_hooks import open_run
from align_hooks.configuration.files import read_text
from align_hooks.process.processor import processor
from align_hooks.scenarios.card import read_card
from chosen import slow_but
from invoked import command as run
from real import frameworks
from real.frameworks import LLAMA

FAMILIES = (LLAMA, "qwen2", "qwen3", "qwen3_moe", "deepseek_v3", "deepseek_v3_mtp")


def certified(reference: Path, candidate: Path, card: Path) -> None:
    """Write a card of a pair."""
    done = run("certify", reference, candidate, "--card", card)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("family", slow_but(FAMILIES, LLAMA))
def test_a_card_of_a_family_holds(family: str, real_corpus: Path, tmp_path: Path) -> None:
    reference = frameworks.recorded(frameworks.megatron, family=family)
    candidate = frameworks.recorded(frameworks.mindformers, family=family, **frameworks.fed_by(reference))
    card = tmp_path / f"{family}.yaml"
    certified(reference, candidate, card)
    (item,) = read_card(read_text(card), card.name).items.values()
    assert {item.reference.device, item.candidate.device} == {processor()}
    assert item.reference.versions["megatron-core"] == open_run(reference).facts.versions["megatron-core"]
    assert {stage.status for stage in item.stages.values()} <= {"same", "not compared"}
    assert card.stat().st_size < 20_000
    done = run("certify", "--verify", card)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "holds: all of its 1 item is as the card says")


@pytest.mark.slow
def test_a_card_is_made_again_by_the_frameworks(real_corpus: Path, tmp_path: Path) -> None:
    reference, candidate = places = [tmp_path / name for name in ("megatron", "mindformers")]  # of its own, as it writes beside them
    for train, run_at, fed in zip((frameworks.megatron, frameworks.mindformers), places, ({}, frameworks.fed_by(reference)), strict=True):
        (tmp_path / f"in_{run_at.name}").mkdir()
        train(tmp_path / f"in_{run_at.name}", RUN=run_at, **frameworks.EVERYTHING, **fed).succeeded()
    card, said = tmp_path / "llama.yaml", tmp_path / "said.json"
    certified(reference, candidate, card)
    words = ("certify", "--verify", card, "--again", tmp_path / "again", "--json", said)
    done = run(*words)
    assert (done.returncode, json.loads(said.read_text())["departures"]) == (0, []), done.stdout + done.stderr
    # of another version and device the records that are there now say otherwise
    edited = read_text(card).replace("megatron-core: 0.", "megatron-core: 9.").replace(f"device: {processor()}", "device: Ascend910B3")
    card.write_text(edited, encoding="utf-8")
    assert run(*words).returncode == 1
    sides = {"reference.versions.megatron-core", "reference.device", "candidate.device"}
    places = {"digest", *(f"items.{candidate.name}.{side}" for side in sides)}
    assert {each["place"] for each in json.loads(said.read_text())["departures"]} == places
