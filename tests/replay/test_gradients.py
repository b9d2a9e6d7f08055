"""Gradients to inject: found by name, read in the native layout, and refused before training where they do not fit."""

from pathlib import Path

import numpy as np
import pytest

from align_hooks.errors import RecordError, RefusedRun
from align_hooks.names.blocks import Blocks
from align_hooks.replay.gradients import Injection
from align_hooks.settings import PREFIX
from rewritten import cut
from synthetic import NAMES, SHAPES, STEPS, Synthetic, fused, settings

RECORDED = Synthetic()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Gradients of steps 0 to 2."""
    return RECORDED.write(tmp_path_factory.mktemp("gradients") / "run")


def injection(text: object) -> Injection:
    source = settings(inject_gradients=text).inject_gradients
    assert source is not None
    return Injection(source)


def test_a_fused_parameter_is_joined_from_its_pieces_by_name(run: Path) -> None:
    injected = injection(run)
    injected.check(SHAPES, range(STEPS))
    both = fused("w", {name: SHAPES[name] for name in ("lm_head.weight", "model.embed_tokens.weight")}, Blocks(1, (10, 10)))
    for step in (2, 0):
        expected = np.concatenate([RECORDED.gradients[step][name] for name in both.pieces])
        np.testing.assert_array_equal(injected.read(step, both), expected, strict=True)


@pytest.mark.parametrize(
    ("steps", "planned", "chosen"),
    [
        ("", range(3), (0, 1, 2)),
        ("", range(2), (0, 1)),
        ("", range(1, 9), (1, 2)),
        ("@1", range(3), (1,)),
        ("@0-1", range(3), (0, 1)),
        ("", range(10**15), (0, 1, 2)),
    ],
)
def test_the_steps_are_those_chosen_recorded_and_made(run: Path, steps: str, planned: range, chosen: tuple[int, ...]) -> None:
    """A run of endless steps is checked without counting them."""
    injected = injection(f"{run}{steps}")
    injected.check(SHAPES, planned)
    assert injected.steps == chosen
    assert injected.facts() == {"run": str(run), "run_id": injected.run.facts.run_id, "steps": list(chosen)}


@pytest.mark.parametrize(
    ("steps", "planned", "error", "refusal"),
    [
        ("@0-4", range(9), RefusedRun, rf"has no gradients of step 3; record them with {PREFIX}GRADIENTS=3"),
        ("@2", range(2), RefusedRun, r"step 2 is never made; this run makes steps 0 to 1"),
        ("", range(5, 9), RefusedRun, r"has gradients of steps 0 to 2, this run makes steps 5 to 8; choose steps that both have"),
        ("@7", range(9), RecordError, r"holds no gradients \(recorded: 0, 1, 2\)"),
    ],
)
def test_steps_that_do_not_fit_are_refused(run: Path, steps: str, planned: range, error: type[Exception], refusal: str) -> None:
    with pytest.raises(error, match=refusal):
        injection(f"{run}{steps}").check(SHAPES, planned)


def test_a_step_that_its_source_skipped_is_left_out_and_refused_where_it_was_named(tmp_path: Path) -> None:
    source = Synthetic()
    source.rows[1]["skipped"] = True
    source.gradients[1][NAMES[0]][0] = np.inf
    source.write(tmp_path / "run")
    injected = injection(tmp_path / "run")
    injected.check(SHAPES, range(STEPS))
    assert injected.steps == (0, 2)
    with pytest.raises(RefusedRun, match="step 1 was skipped there, its gradients made no update; leave it out"):
        _ = injection(f"{tmp_path / 'run'}@0-1").recorded


@pytest.mark.parametrize(
    ("wanted", "refusal"),
    [
        (SHAPES | {"extra.weight": (2,)}, r"extra.weight \[2\] is missing"),
        ({name: SHAPES[name] for name in NAMES[1:]}, r"model.embed_tokens.weight \[10, 4\] is not of this model"),
        (SHAPES | {NAMES[0]: (4, 10)}, r"model.embed_tokens.weight is \[10, 4\], this model has \[4, 10\]"),
    ],
    ids=["missing", "too many", "shape"],
)
def test_names_or_shapes_that_do_not_fit_are_refused(run: Path, wanted: dict[str, tuple[int, ...]], refusal: str) -> None:
    with pytest.raises(RefusedRun, match=refusal):
        injection(run).check(wanted, range(STEPS))


def test_a_file_that_was_cut_short_is_refused_when_it_is_checked(tmp_path: Path) -> None:
    cut(Synthetic().write(tmp_path / "run") / "step_1/rank_0/gradients.safetensors", 4)
    with pytest.raises(RecordError, match="not a whole safetensors file"):
        injection(tmp_path / "run").check(SHAPES, range(STEPS))
