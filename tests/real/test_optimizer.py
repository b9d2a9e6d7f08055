"""The optimizer alone: one side's gradients handed to the other, and faults planted in what is made of them."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from align_hooks import compare, open_run
from align_hooks.comparison.finding import Term, Value
from align_hooks.comparison.stage_result import Status
from align_hooks.comparison.verdict import Verdict
from align_hooks.messages import Side
from chosen import slow, slow_but
from real import frameworks
from rewritten import bend, edit_rows
from worded import arguments, ids, messages


@pytest.fixture(scope="module")
def injected(reference: Path) -> Path:
    """MindFormers with Megatron's gradients of all three steps."""
    return frameworks.recorded(frameworks.mindformers, INJECT_GRADIENTS=reference, **frameworks.fed_by(reference))


def apart(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> list[str]:
    """The tensors that differ by more than a millionth of their norm."""
    return [name for name in ours if np.linalg.norm(theirs[name] - ours[name]) > 1e-6 * np.linalg.norm(ours[name])]


def test_weights_after_each_of_three_injected_updates_are_the_references(reference: Path, injected: Path) -> None:
    runs = open_run(reference), open_run(injected)
    assert runs[1].facts.injected.steps == (0, 1, 2)
    for updates in (1, 2, 3):
        ours, theirs = (run.weights(updates) for run in runs)
        assert len(ours) == 21
        assert apart(ours, theirs) == []
        states = [run.optimizer_state(updates) for run in runs]
        assert [state.updates for state in states] == [updates, updates]
        assert [state.dtypes for state in states] == [{"exp_avg": "float32", "exp_avg_sq": "float32"}] * 2
        assert [apart(*(state.moments[moment] for state in states)) for moment in ("exp_avg", "exp_avg_sq")] == [[], []]


def test_gradients_on_record_stay_the_runs_own(reference: Path, injected: Path) -> None:
    runs = open_run(reference), open_run(injected)
    norms = [[row["grad_norm"] for row in run.scalars()] for run in runs]
    assert norms[1] == pytest.approx(norms[0], rel=1e-5)
    ours, theirs = (run.gradients(2) for run in runs)
    assert any((ours[name] != theirs[name]).any() for name in ours)


def test_an_honest_pair_is_aligned_and_says_that_both_follow_the_formula(reference: Path, injected: Path) -> None:
    frameworks.aligned(reference, injected)
    judged = compare(reference, injected)
    assert frameworks.stage(judged, "weights after an update").status is Status.SAME
    told = arguments("self_check.injected_of_side", *(result.summary for result in judged.stages))
    assert told == {"side": Side.CANDIDATE}
    followed = frameworks.stage(judged, "weights after an update").summary
    assert [one.arguments["side"] for one in messages(followed) if one.id == "after_update.follow"] == list(Side)


def test_of_an_optimizer_that_nobody_knows_all_but_its_state_is_recorded(real_corpus: Path) -> None:
    only_its_state_is_missing(frameworks.kept(frameworks.megatron, change={"--optimizer": "sgd"}, RUN="run", **frameworks.EVERYTHING))


def only_its_state_is_missing(kept: frameworks.Kept) -> None:
    """One line says so before the first step, and the record is whole."""
    run = open_run(kept.run)
    (line,) = [line for line in kept.output.splitlines() if "is neither recorded nor loaded" in line]
    assert kept.output.index(line) < kept.output.index("iteration        1/")
    assert not run.problems
    unknown = {name for name, group in run.facts.optimizer.by_parameter().items() if group.moments == ()}
    assert unknown
    assert not any(unknown & set(tensors) for tensors in run.optimizer_state(2).moments.values())
    assert len(run.gradients(0)) == len(run.weights(3)) == 21
    assert compare(run, run).verdict is Verdict.ALIGNED


@pytest.mark.slow
def test_mindformers_gradients_into_megatron(candidate: Path) -> None:
    fed = frameworks.fed_by(candidate) | {"INJECT_GRADIENTS": f"{candidate}@0-1"}
    run = frameworks.recorded(frameworks.megatron, **fed)
    assert [apart(open_run(candidate).weights(updates), open_run(run).weights(updates)) for updates in (1, 2)] == [[], []]
    frameworks.aligned(candidate, run)


@pytest.mark.slow
def test_one_that_injects_nothing_by_itself_trains_on_as_before(reference: Path, candidate: Path) -> None:
    """With only step 2 injected, steps 0 and 1 are bit for bit those of a run with no injection."""
    fed = frameworks.fed_by(reference) | {"INJECT_GRADIENTS": f"{reference}@2"}
    runs = open_run(candidate), open_run(frameworks.kept(frameworks.mindformers, RUN="run", **fed, WEIGHTS="all").run)
    for updates in (1, 2, 3):
        ours, theirs = (run.weights(updates) for run in runs)
        assert all((ours[name] == theirs[name]).all() for name in ours) == (updates < 3)


@pytest.mark.parametrize("side", slow_but(["torch", "ms"], "ms"))
def test_a_loaded_optimizer_state_goes_on_while_the_schedule_begins_anew(reference: Path, side: str) -> None:
    if side == "torch":
        train, change = frameworks.megatron, {"--lr-decay-style": "cosine", "--min-lr": "0"}
    else:
        cosine = {"type": "CosineWithWarmUpLR", "learning_rate": 1e-3, "lr_end": 0.0, "warmup_ratio": 0.0, "total_steps": frameworks.STEPS}
        train, change = frameworks.mindformers, {"lr_schedule": cosine}
    path = frameworks.recorded(train, change=change, REPLAY_BATCHES=reference, LOAD_WEIGHTS=f"{reference}@2")
    before, run = open_run(reference), open_run(path)
    assert [run.optimizer_state(step).updates for step in range(4)] == [2, 3, 4, 5]
    for moment, tensors in before.optimizer_state(2).moments.items():
        loaded = run.optimizer_state(0).moments[moment]
        assert all((loaded[name] == tensors[name]).all() for name in tensors)
    assert [row["learning_rate"] for row in run.scalars()] == pytest.approx([1e-3, 0.75e-3, 0.25e-3], rel=1e-6)
    followed = arguments("after_update.follow", frameworks.stage(compare(path, path), "weights after an update").summary)
    assert followed["count"] == 3


@pytest.mark.parametrize(("door", "count"), [slow(("clip_door", 7)), ("shard_door", 20)])
def test_a_door_captures_and_injects_in_graph_mode(real_corpus: Path, door: str, count: int) -> None:
    """That of the pipeline cell; and that of cut gradients, which refuses what it cannot follow."""
    checks = frameworks.answered(f"{door}.py")
    assert checks == dict.fromkeys(checks, True)
    assert len(checks) == count


PLANTS = Path(__file__).parents[1] / "zoo" / "planted_mindformers.py"


@dataclass(frozen=True)
class Wrong:
    """A term planted in MindFormers' run by keys of its YAML, or by the zoo's plant of its name. ``setting`` is the hyper-parameter that
    differs by the records, with both values. ``used`` is what the updates alone show: the value, by the argument that holds it, or the id
    of what has none."""

    change: Mapping[str, object] | str
    setting: tuple[str, Value, Value]
    term: Term
    used: Mapping[str, float] | str

    @property
    def given(self) -> dict[str, object]:
        """What the training is given."""
        return {"script": PLANTS, "environment": {"PLANTED": self.change}} if isinstance(self.change, str) else {"change": self.change}


NO_CORRECTION = {"type": "AdamWeightDecay", "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1}
PLANTED = (
    Wrong({"optimizer.betas": [0.9, 0.949]}, ("betas", "[0.9, 0.95]", "[0.9, 0.949]"), Term.BETAS, {"beta1": 0.9, "beta2": 0.949}),
    Wrong({"optimizer.eps": 1e-6}, ("eps", 1e-8, 1e-6), Term.EPS, {"number": 1e-6}),
    Wrong("norms_decayed", ("weight_decay", 0.0, 0.1), Term.DECAY_GROUPING, "after_update.decayed"),
    Wrong({"optimizer.weight_decay": 0.11}, ("weight_decay", 0.1, 0.11), Term.WEIGHT_DECAY, {"number": 0.11}),
    Wrong({"lr_schedule.learning_rate": 1.001e-3}, ("learning rate", 1e-3, 1.001e-3), Term.LEARNING_RATE, {"number": 1.001e-3}),
    Wrong({"runner_wrapper.max_grad_norm": 0.9}, ("clip_grad", 1.0, 0.9), Term.CLIP_COEFFICIENT, {"norm": 0.9}),
    Wrong({"optimizer": NO_CORRECTION}, ("bias_correction", True, False), Term.BIAS_CORRECTION, "after_update.correction_not_made"),
)


@pytest.mark.slow
@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.term.name)
def test_a_wrong_term_is_named_from_the_record_and_from_the_update_alone(tmp_path: Path, reference: Path, planted: Wrong) -> None:
    given = {"INJECT_GRADIENTS": reference, **frameworks.fed_by(reference), **planted.given}
    run = frameworks.recorded(frameworks.mindformers, **given)
    found = frameworks.first(frameworks.diverged(reference, run))
    assert found.name == "hyper-parameters"
    assert planted.setting in [(finding.name, finding.reference, finding.candidate) for finding in found.findings]
    found = frameworks.first(frameworks.diverged(reference, without_hyper_parameters(run, tmp_path / "hidden")))
    assert found.name == "weights after an update"
    worst = found.findings[0]
    assert worst.term is planted.term
    if isinstance(planted.used, str):
        assert planted.used in ids(worst.candidate)
    else:
        (value,) = list(messages(worst.candidate))[1:]
        assert value.arguments == pytest.approx(planted.used, rel=1e-3)


def without_hyper_parameters(run: Path, copy: Path) -> Path:
    """A copy of a record that says nothing of its optimizer: no hyper-parameters, no rates, no clipping."""
    shutil.copytree(run, copy)
    bend(copy / "run.json", lambda facts: facts.pop("optimizer"))
    edit_rows(copy / "scalars" / "rank_0.jsonl", **dict.fromkeys(("learning_rate", "grad_norm", "clip_coefficient")))
    return copy


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "refusal"),
    [("{run}@0-5", "has no gradients of step 3"), ("{run}@7", "holds no gradients"), ("{other}", "do not fit this model")],
    ids=["a step too many", "no step", "another model"],
)
def test_gradients_that_do_not_fit_are_refused_before_training(tmp_path: Path, reference: Path, source: str, refusal: str) -> None:
    other = shutil.copytree(reference, tmp_path / "other")
    bend(
        other / "manifest" / "rank_0.json",
        lambda facts: facts.update(parameters=[row for row in facts["parameters"] if row["name"] != "model.norm.weight"]),
    )
    sources = {"REPLAY_BATCHES": reference, "INJECT_GRADIENTS": source.format(run=reference, other=other)}
    for train in (frameworks.megatron, frameworks.mindformers):
        where = tmp_path / train.__name__
        done = train(where, RUN=where / "run", **sources)
        assert done.code in (2, 3), done.output
        assert refusal in done.ours
        assert not (where / "run" / "scalars").exists()
