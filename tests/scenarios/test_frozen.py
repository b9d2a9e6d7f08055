"""Steps without updates: what stands out is named with its data, has an id in common or not, and can be run alone."""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace as Of
from typing import Any

import numpy as np
import pytest
from msgspec import convert

from align_hooks import open_run
from align_hooks.cli import app
from align_hooks.comparison.optimizer.zero_lr import LEAST, Shared, outliers, shared_ids, unmoved
from align_hooks.errors import AlignHooksError
from align_hooks.record.format.rows import ScalarRow
from align_hooks.scenarios.frozen import command, extract, variables
from align_hooks.settings import Settings
from invoked import invoke
from synthetic import Synthetic, batch, row

STEPS = 40


def written(path: Path, odd: int | None = None, rate: float = 0.0, steps: int = STEPS) -> Path:
    """A run without updates on recorded batches; the loss of the step ``odd`` is another."""
    random = np.random.default_rng(3)
    run = frozen(rate, steps)
    for each in run.rows if odd is not None else ():
        noise = 1 + 1e-8 * random.standard_normal() + (1e-3 if each["step"] == odd else 0)
        each["loss"], each["objective_loss"] = each["loss"] * noise, each["objective_loss"] * noise
    return run.write(path)


def frozen(rate: float = 0.0, steps: int = STEPS, **sizes: int) -> Synthetic:
    rows = [row(step, learning_rate=rate) for step in range(steps)]
    batches = {step: batch(step, **sizes) for step in range(steps)}
    return Synthetic(settings={"batches": "all"}, rows=rows, batches=batches, weights={}, gradients={})


def judged(folder: Path, *options: str) -> tuple[int, str, dict[str, object]]:
    said = folder / "said.json"
    words = ["frozen", "--run", str(folder / "candidate"), "--from", str(folder / "reference"), "--json", str(said), *options]
    done = invoke(app, words)
    if done.exception is not None:
        raise done.exception
    return done.exit_code, done.output, json.loads(said.read_text())


def test_honest_steps_agree_and_none_stands_out(tmp_path: Path) -> None:
    written(tmp_path / "reference")
    written(tmp_path / "candidate", odd=-1)
    code, output, said = judged(tmp_path)
    assert (code, said["verdict"], said["commands"]) == (0, "aligned", {})
    assert "1000" in output  # which the guide asks for


def test_a_step_that_stands_out_is_named_with_its_data_and_can_be_run_alone(tmp_path: Path) -> None:
    tokens = open_run(written(tmp_path / "reference")).batch(17).tokens
    written(tmp_path / "candidate", odd=17)
    code, output, said = judged(tmp_path)
    assert (code, said["numbers"][0]["standing_out"][0]["step"]) == (1, 17)
    given = dict(word.split("=", 1) for word in shlex.split(said["commands"]["17"][1]))
    assert Settings.from_environment(given).learning_rate == 0
    np.testing.assert_array_equal(open_run(given["ALIGN_HOOKS_REPLAY_BATCHES"]).batch(0).tokens, tokens)
    assert " ".join(map(str, tokens[0].tolist())) in output


def test_what_the_steps_that_stand_out_have_in_common_is_told(tmp_path: Path) -> None:
    for side, moved in (("reference", 0.0), ("candidate", 1e-3)):
        run = frozen(vocabulary=20)
        for step in (3, 17, 18, 30):
            run.rows[step]["loss"] *= 1 + moved
            run.rows[step]["objective_loss"] = run.rows[step]["loss"]
            run.batches[step]["tokens"][0, 1] = 25
        run.write(tmp_path / side)
    _, output, said = judged(tmp_path)
    assert said["shared_ids"] == [{"id": 25, "steps": 4, "elsewhere": 0}]
    assert "id 25" in output


def test_runs_that_moved_are_refused(tmp_path: Path) -> None:
    for side in ("reference", "candidate"):
        written(tmp_path / side, rate=1e-3)
    with pytest.raises(AlignHooksError, match="not 0 at step 0"):
        judged(tmp_path)


def test_neither_a_command_nor_a_run_is_refused(tmp_path: Path) -> None:
    assert isinstance(invoke(app, ["frozen", "--run", str(tmp_path / "run")]).exception, AlignHooksError)


def test_what_is_usual_is_told_by_the_steps_themselves() -> None:
    random = np.random.default_rng(1)
    differences = 1e-3 * random.standard_normal(1000)
    assert outliers(differences, 0.0) == []
    differences[500] = 0.02
    assert outliers(differences, 0.0) == [500]
    assert outliers(differences, 0.1) == []  # which is rounding
    assert outliers(differences[: LEAST - 1] * 1000, 0.0) == []


def test_a_number_that_is_not_finite_stands_out() -> None:
    pairs = [(convert(row(step), ScalarRow), convert(row(step), ScalarRow)) for step in range(30)]
    pairs[4] = (pairs[4][0], convert(row(4, loss=float("nan")), ScalarRow))
    loss = unmoved(pairs)[0]
    assert (loss.steps, loss.out[0][0], loss.largest) == (30, 4, 0.0)


def test_each_side_is_told_what_to_record_and_what_it_is_fed(tmp_path: Path) -> None:
    first, second = variables(tmp_path / "a", None), variables(tmp_path / "b", tmp_path / "a")
    assert first["ALIGN_HOOKS_LEARNING_RATE"] == second["ALIGN_HOOKS_LEARNING_RATE"] == "0"
    assert first["ALIGN_HOOKS_BATCHES"] == "all"
    assert second["ALIGN_HOOKS_LOAD_WEIGHTS"] == f"{tmp_path / 'a'}@0"
    assert Settings.from_environment(second).replay_batches is not None


def test_a_step_taken_out_keeps_a_mask_that_is_not_causal(tmp_path: Path) -> None:
    run = frozen(steps=3)
    run.batches[1]["attention_mask"] = np.zeros((4, 1, 5, 5), bool)
    reference = open_run(run.write(tmp_path / "reference"))
    assert open_run(extract(reference, 1, tmp_path / "alone")).batch(0).attention_mask is not None
    assert "ALIGN_HOOKS_ACTIVATIONS=all" in command(tmp_path / "alone", reference.path, tmp_path / "again")


# ---- what the batches of some steps have in common, and others have not

BATCHES = 100
ODD = 500
"""An id that no batch holds by itself."""


def batches_of(odd: Mapping[int, int], size: int = 512) -> Any:
    """Batches of 200 ids that any may hold; ``odd`` are others, by step."""
    random = np.random.default_rng(0)
    tokens = {step: random.integers(0, 200, (4, size // 4)) for step in range(BATCHES)}
    for step, id in odd.items():
        tokens[step][1, 7] = id
    return Of(batch=lambda step, names=("tokens",): Of(tokens=tokens[step]))


def others(*steps: int) -> list[int]:
    return [step for step in range(BATCHES) if step not in steps]


FOUR = [3, 40, 41, 77]


@pytest.mark.parametrize(
    ("steps", "also", "found"),
    [(FOUR, [], [Shared(ODD, 4, 0)]), (FOUR, [50], [Shared(ODD, 4, 1)]), (FOUR[:2], [], []), (FOUR[:1], [], []), ([], [], [])],
    ids=["these steps alone", "few others", "two steps", "one step", "no step"],
)
def test_an_id_that_several_steps_hold_and_few_others_is_found(steps: list[int], also: list[int], found: list[Shared]) -> None:
    assert shared_ids(batches_of(dict.fromkeys([*steps, *also], ODD)), steps, others(*steps)) == found


def test_ids_that_are_in_common_by_chance_are_not_told() -> None:
    """Every batch of 100 of 200 ids holds two fifths of them: four have some in common."""
    for steps in (FOUR, [0, 1, 2], [90, 5, 17]):
        assert shared_ids(batches_of({}, 100), steps, others(*steps)) == []


def test_where_many_ids_fit_none_is_told() -> None:
    made = batches_of({})
    for step in FOUR:
        made.batch(step).tokens[0, :8] = range(ODD, ODD + 8)
    assert shared_ids(made, FOUR, others(*FOUR)) == []
