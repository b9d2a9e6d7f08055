"""The one command to run after a verdict."""

import os
import re
import subprocess
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace as of_structure

from align_hooks import open_run
from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.diagnosis.advice import AGAIN, BOTH, Situation
from align_hooks.comparison.diagnosis.commands import COMMANDS, commands_of, training_command, undrawn
from align_hooks.comparison.diagnosis.next_step import at_gradients
from align_hooks.comparison.finding import Finding
from align_hooks.comparison.noise import Noise
from align_hooks.comparison.pair import Pair
from align_hooks.comparison.pipeline import compare
from align_hooks.comparison.stage_result import FaultLocation, StageResult, Status
from align_hooks.comparison.stages.gradients import gradients
from align_hooks.comparison.verdict import ComparisonResult, Verdict
from align_hooks.messages import rendered
from align_hooks.messages.progress import silent
from align_hooks.quantities.weights import NEAREST, NO_FAMILY
from align_hooks.settings import PREFIX, Settings
from comparison.conftest import HONEST, Compared, asking
from comparison.test_points import run as with_points
from synthetic import HONEST_SKETCHED, Synthetic, scalars_only
from worded import ids


def test_commands_name_variables_that_exist() -> None:
    known = {PREFIX + name.upper() for name in Settings.__dataclass_fields__}
    named = {word.partition("=")[0] for command in COMMANDS.values() for word in command.split() if word.startswith(PREFIX)}
    assert len(named) > 8
    assert named <= known


def laddered(folder: Path, reference: Synthetic = HONEST, candidate: Synthetic = HONEST) -> ComparisonContext:
    pair = Pair(*(open_run(run.write(folder / name)) for name, run in (("one", reference), ("other", candidate))))
    return ComparisonContext(pair, Noise(pair, []), (), silent)


def negated(run: Synthetic) -> Synthetic:
    """A run whose first gradients have the other sign."""
    run.gradients[0] = {name: -gradient for name, gradient in run.gradients[0].items()}
    return run


def test_nothing_is_fed_from_a_run_that_cannot_feed(compared: Compared) -> None:
    """A record of norms and sketches holds no weights to load."""
    outcome = compared(negated(HONEST_SKETCHED.drifted()), against=HONEST_SKETCHED)
    assert outcome.verdict is Verdict.DIVERGED
    again, fed, _ = lines(outcome)
    assert "ALIGN_HOOKS_WEIGHTS=0 " in again
    assert re.search(r"ALIGN_HOOKS_LOAD_WEIGHTS=(\S+)@0", fed)[1] == re.search(r"ALIGN_HOOKS_RUN=(\S+)", again)[1]


def test_a_reference_that_was_fed_is_fed_again(compared: Compared) -> None:
    """By a third run: without its batches and weights it would be another run, or none."""
    reference = asking(HONEST_SKETCHED.drifted(), replay_batches="/third@all", load_weights="/third@0")
    again, fed, _ = lines(compared(negated(HONEST_SKETCHED.drifted()), against=reference))
    assert {"ALIGN_HOOKS_REPLAY_BATCHES=/third@all", "ALIGN_HOOKS_LOAD_WEIGHTS=/third@0"} <= set(again.split())
    assert "third" not in fed


def lines(outcome: ComparisonResult) -> list[str]:
    """The commands of an advice, as they are printed."""
    return rendered(outcome.next).splitlines()[1:]


def test_the_paths_of_the_pair_are_filled_in(compared: Compared, candidate: Synthetic) -> None:
    """What each layer puts out comes first; the pair that is laid side by side then is the two new records."""
    candidate.gradients[0] = {name: 2 * gradient for name, gradient in candidate.gradients[0].items()}
    outcome = compared(candidate)
    assert ids(outcome.next)[0] == "next.record_points"
    ours, theirs, judge = lines(outcome)
    reference, again = (re.search(r"ALIGN_HOOKS_RUN=(\S+)", line)[1] for line in (ours, theirs))
    assert judge == f"align-hooks compare {reference} {again}"
    assert all("ALIGN_HOOKS_ACTIVATIONS=0 " in line and "@0 " in line for line in (ours, theirs))


def test_advice_in_the_place_of_arbitrate_says_why(compared: Compared) -> None:
    """Which side is wrong is not known, so that who mends the candidate may mend the right one."""
    reference, candidate = with_points(), negated(with_points())
    assert ids(compared(candidate, against=reference).next)[0] == "next.third_opinion"
    reference.model = candidate.model = {NO_FAMILY: ["activation is odd"], NEAREST: "Llama"}
    said = rendered(compared(candidate, against=reference).next).splitlines()[0]
    assert said.startswith("mend ") and said.endswith("the reference's model was not recognised as a Llama: activation is odd")


def test_a_side_is_recorded_again_as_it_was(compared: Compared, candidate: Synthetic) -> None:
    """Seed, determinism and device as they were, and what was recorded."""
    asking(candidate, seed="42", deterministic="1", device="cpu", local_norms_point="local", batches="0-1", weights="none")
    candidate.batches[1]["tokens"] = candidate.batches[1]["tokens"][:, ::-1].copy()
    outcome = compared(candidate)
    assert outcome.blame.place is FaultLocation.DATA
    variables = lines(outcome)[0].split(" align-hooks run -- ")[0].split()
    assert variables[:3] == ["ALIGN_HOOKS_SEED=42", "ALIGN_HOOKS_DETERMINISTIC=1", "ALIGN_HOOKS_DEVICE=cpu"]
    assert {"ALIGN_HOOKS_BATCHES=0-1", "ALIGN_HOOKS_LOCAL_NORMS_POINT=local"} <= set(variables)
    assert not any("ALIGN_HOOKS_WEIGHTS" in variable for variable in variables)


@pytest.mark.parametrize(("recorded", "advice"), [("0-2", "next.inject_gradients"), ("0", "next.store_updates")])
def test_gradients_are_injected_only_where_there_are_enough(compared: Compared, candidate: Synthetic, recorded: str, advice: str) -> None:
    reference = deepcopy(HONEST)
    for run in (reference, candidate):
        asking(run, gradients=recorded, weights="0", optimizer_state="none")
    for row in candidate.rows[1:]:
        row["loss"] *= 1.01
    outcome = compared(candidate, against=reference)
    assert ids(outcome.next)[0] == advice
    *_, injected, judge = lines(outcome)
    fed = re.search(r"ALIGN_HOOKS_INJECT_GRADIENTS=(\S+)@0-2", injected)[1]
    assert judge.split()[2] == fed
    assert fed.endswith("_again") == (recorded == "0")


@pytest.mark.parametrize(("limit_ratio", "asks_for_noise"), [(99.0, True), (101.0, False)])
def test_what_is_a_hundred_times_its_limit_is_not_narrowed_down_by_noise(tmp_path: Path, limit_ratio: float, asks_for_noise: bool) -> None:
    differs = StageResult(gradients, Status.DIFFERENT, "", (Finding("", error=limit_ratio, limit=1.0),))
    assert Situation(laddered(tmp_path), [differs]).is_clear is not asks_for_noise


def test_decay_of_one_side_alone_is_a_matter_of_groups(compared: Compared, candidate: Synthetic) -> None:
    candidate.optimizer["groups"][1]["weight_decay"] = 0.1
    outcome = compared(candidate)
    assert ids(outcome.next)[0] == "next.group_alike"
    candidate.optimizer["groups"][0]["weight_decay"] = 0.2
    assert ids(compared(candidate).next)[0] == "next.set_alike"


def test_an_aligned_pair_that_recorded_little_is_told_to_record_more(compared: Compared) -> None:
    assert "ALIGN_HOOKS_SKETCHES=all" in rendered(compared(scalars_only(), against=scalars_only()).next)
    assert ids(compared(HONEST_SKETCHED.drifted(), against=HONEST_SKETCHED).next)[0] == "next.your_precision"


def pasted(line: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A printed line in a shell in which ``align-hooks`` prints the words that it is given, and starts what stands behind ``--``."""
    stub = 'align-hooks() { printf "%s\\n" "$@"; while [ $# -gt 0 ]; do [ "$1" = -- ] && { shift; "$@"; return; }; shift; done; }\n'
    return subprocess.run(["bash", "-c", stub + line], env={**os.environ, **variables}, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def ladders(tmp_path_factory: pytest.TempPathFactory) -> list[ComparisonContext]:
    """Two pairs: whose commands are not on record, and whose commands are."""
    of_each = ({}, {"command": "echo 'it trains'", "directory": "/"})
    pairs = [[replace(run, facts=facts) for run in (HONEST, HONEST.drifted())] for facts in of_each]
    return [laddered(tmp_path_factory.mktemp("pair"), *pair) for pair in pairs]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_printed_command_runs_as_it_is_pasted(ladders: list[ComparisonContext], name: str) -> None:
    """With the command on record; else the shell itself says what its variable is for, and starts nothing."""
    unknown, known = ([rendered(line) for line in commands_of([name], context, [])] for context in ladders)
    for line in known:
        assert "<" not in line
        done = pasted(line, CANDIDATE="elsewhere")
        assert (done.returncode, done.stderr) == (0, ""), line
        assert done.stdout.endswith("it trains\n") == (" run -- " in line)
    for line in unknown:
        if "COMMAND:?" in line:
            side = "CANDIDATE" if "CANDIDATE_COMMAND" in line else "REFERENCE"
            assert f"{side}_COMMAND: the command that trains the {side.lower()}" in pasted(line).stderr
            assert pasted(line, **{f"{side}_COMMAND": "cd / && echo 'it trains'"}).stdout.endswith("it trains\n")


@pytest.mark.parametrize(
    ("command", "without"),
    [
        ("python t.py --moe-input-jitter-eps 0.01 --lr 1", "python t.py --lr 1"),
        ("env -C '/a b' python t.py --moe-input-jitter-eps=1e-2", "env -C '/a b' python t.py"),
        ("python t.py --attention-dropout 0.1", "python t.py --attention-dropout 0.1"),  # the last counts
        ("python t.py --moe-input-jitter-eps", "python t.py"),
    ],
)
def test_a_command_is_printed_without_what_draws_random_numbers(command: str, without: str) -> None:
    assert undrawn(command) == f"{without} --hidden-dropout 0 --attention-dropout 0"


def test_draws_are_left_out_by_the_commands_where_both_are_on_record(tmp_path: Path) -> None:
    told = {"command": "python t.py --moe-input-jitter-eps 0.1", "directory": str(Path.cwd()), "arguments": {"hidden_dropout": "0.1"}}
    cut, unknown = told | {"command": "python 't.py"}, told | {"arguments": None}
    for facts, id in ((told, "next.without_draws"), (unknown, "next.without_dropout"), (cut, "next.without_dropout")):
        runs = []
        for name, moved in (("reference", 0.0), ("candidate", 0.5)):
            run = Synthetic(facts=facts | {"training": {"draws": True}})
            for arrays in run.batches.values():
                arrays["token_losses"] = arrays["token_losses"] + np.float32(moved)
            runs.append(open_run(run.write(tmp_path / str(len(str(facts))) / name)))
        said = compare(*runs).next
        assert id in ids(said)
        assert ("--hidden-dropout 0 --attention-dropout 0" in rendered(said)) == (id == "next.without_draws")


def test_a_command_that_had_its_part_on_each_host_is_not_printed(tmp_path: Path) -> None:
    run = open_run(Synthetic(facts={"command": "bash train.sh"}).write(tmp_path))
    assert training_command(run) == "bash train.sh"
    for rank, host in enumerate(("one", "two")):
        run.manifests[rank] = of_structure(run.manifests[0], launch=of_structure(run.manifests[0].launch, host=host))
    assert training_command(run) is None


@pytest.mark.parametrize(("ranks", "id", "commands"), [((1, 2), "next.one_rank", AGAIN), ((2, 2), "next.one_rank_each", BOTH)])
def test_gradients_of_ranks_are_recorded_on_one_rank(ranks: tuple[int, int], id: str, commands: tuple[str, ...]) -> None:
    """Of both where both have several: what is averaged over ranks differs from one rank to two without a fault."""
    reference, candidate = (SimpleNamespace(world_size=count) for count in ranks)
    now: Any = SimpleNamespace(is_replayable=True, pair=SimpleNamespace(draws=False, reference=reference, candidate=candidate))
    advice = at_gradients(now)
    assert advice is not None
    assert (advice.words.id, advice.commands, advice.by_hand) == (id, commands, True)
