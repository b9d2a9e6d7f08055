"""Experts to give to tokens: found by a router's name, and refused before training where they do not fit."""

from pathlib import Path

import numpy as np
import pytest

from align_hooks.errors import RecordError, RefusedRun
from align_hooks.replay.routing import Router, RoutingReplay
from align_hooks.settings import PREFIX, SettingsError
from synthetic import EXPERTS, ROUTERS, ROWS, SEQUENCE, STEPS, Synthetic, routed, settings

RECORDED = routed("routing")
MODEL = {router: Router(EXPERTS, 2) for router in ROUTERS}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The experts of steps 0 to 2."""
    return RECORDED.write(tmp_path_factory.mktemp("routing") / "run")


def replay(text: object) -> RoutingReplay:
    source = settings(replay_routing=text).replay_routing
    assert source is not None
    return RoutingReplay(source)


def test_each_layer_has_its_experts(run: Path) -> None:
    given = replay(run)
    given.check(MODEL, range(STEPS), ROWS * SEQUENCE)
    assert given.steps == (0, 1, 2)
    for step in (2, 0):
        for name, router in MODEL.items():
            np.testing.assert_array_equal(given.experts(step, name, router), RECORDED.routing[step][name], strict=True)


@pytest.mark.parametrize(
    ("steps", "planned", "chosen"), [("", range(3), (0, 1, 2)), ("", range(1, 9), (1, 2)), ("@1", range(3), (1,)), ("", range(1), (0,))]
)
def test_the_steps_are_those_chosen_recorded_and_made(run: Path, steps: str, planned: range, chosen: tuple[int, ...]) -> None:
    given = replay(f"{run}{steps}")
    given.check(MODEL, planned, None)
    assert given.steps == chosen


@pytest.mark.parametrize(
    ("steps", "planned", "model", "tokens", "refusal"),
    [
        ("@0-4", range(9), MODEL, None, rf"has no experts of step 3; record them with {PREFIX}ROUTING=3"),
        ("@2", range(2), MODEL, None, r"step 2 is never made; this run makes steps 0 to 1; choose steps that both have"),
        ("", range(5, 9), MODEL, None, r"choose steps that both have"),
        ("", range(3), {**MODEL, "model.layers.7.mlp.gate": Router(4, 2)}, None, r"step 0 has no model\.layers\.7\.mlp\.gate"),
        ("", range(3), {ROUTERS[0]: Router(4, 3)}, None, r"gives each token to 2 experts in model\.layers\.0\.mlp\.gate, this model to 3"),
        ("", range(3), MODEL, 40, r"routes 20 tokens in model\.layers\.0\.mlp\.gate, this run 40 a step; train on the same batches"),
    ],
)
def test_what_does_not_fit_is_refused(
    run: Path, steps: str, planned: range, model: dict[str, Router], tokens: int | None, refusal: str
) -> None:
    with pytest.raises(RefusedRun, match=refusal):
        replay(f"{run}{steps}").check(model, planned, tokens)


@pytest.mark.parametrize(
    ("chosen", "refusal"), [((-1, 2), "fewer than 2 experts"), ((1, 9), "chooses expert 9, this model has 4")], ids=["dropped", "beyond"]
)
def test_experts_that_cannot_be_given_are_refused(tmp_path: Path, chosen: tuple[int, int], refusal: str) -> None:
    run = routed("routing")
    run.routing[0][ROUTERS[0]][0, 0] = chosen
    given = replay(run.write(tmp_path / "run"))
    given.check(MODEL, range(STEPS), None)
    with pytest.raises(RecordError, match=refusal):
        given.experts(0, ROUTERS[0], MODEL[ROUTERS[0]])


def test_a_run_without_experts_is_no_source(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=rf"holds no experts of tokens \(recorded: none\); record them with {PREFIX}ROUTING"):
        _ = replay(Synthetic().write(tmp_path / "run")).recorded


def test_a_run_is_not_its_own_source(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"REPLAY_ROUTING.*record into another directory"):
        settings(run=tmp_path, replay_routing=tmp_path)
