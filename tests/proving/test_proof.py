"""The verdict of a proof: what each training shows decides, and noise of the job itself never accuses."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from align_hooks.job.witness import Witnessed, read
from align_hooks.messages import rendered
from align_hooks.process.status import REFUSED, Process
from align_hooks.proof import trials
from align_hooks.proof.cost import cost
from align_hooks.proof.kept import FILE, keep, last
from align_hooks.proof.proof import Proof, ProofVerdict, Shortfall, WayResult
from align_hooks.proof.training import Failure, Trained, last_lines, refused
from align_hooks.proof.trials import Trials, fitted, without_refused
from align_hooks.proof.ways import AGAIN, ALL, EVERYTHING, LARGE, NORMS, OFF, Way, own
from align_hooks.report.proof import headline
from proving.sample import STEPS, proof_of, trained, with_loss, witnessed


def drawn() -> list[Witnessed]:
    ranks = [witnessed(0), witnessed(1)]
    ranks[0].steps[3].generators = {"torch": "drawn"}
    return ranks


NOISE = with_loss(2, 2.2500001)
KILLED = trained(NORMS, [replace(witnessed(rank), steps=[]) for rank in (0, 1)], 137)


def test_equal_trainings_prove() -> None:
    proof = proof_of()
    assert proof.verdict is ProofVerdict.PROVEN and not proof.accused
    assert f"{STEPS} steps of 2 ranks" in rendered(headline(proof))


@pytest.mark.parametrize(
    ("changed", "repeated", "verdict", "said"),
    [
        ({NORMS.name: with_loss(2, 2.0)}, None, ProofVerdict.DISPROVEN, "norms recorded 1 of 8 losses differ, first that of step 2"),
        ({"gradients": drawn()}, None, ProofVerdict.DISPROVEN, "gradients recorded the random generator torch"),
        ({AGAIN.name: NOISE, NORMS.name: NOISE}, None, ProofVerdict.UNDECIDED, "does not repeat itself"),
        ({AGAIN.name: NOISE}, {}, ProofVerdict.PROVEN, "with FIXED=1 they are equal to the bit"),
        ({AGAIN.name: NOISE, "gradients": with_loss(2, 1.0)}, {}, ProofVerdict.UNDECIDED, "which is much more"),
        ({AGAIN.name: NOISE}, {EVERYTHING.name: NOISE}, ProofVerdict.DISPROVEN, "everything recorded 1 of 8 losses"),
        ({AGAIN.name: NOISE}, {AGAIN.name: NOISE}, ProofVerdict.UNDECIDED, "with FIXED=1 neither"),
        ({AGAIN.name: NOISE, NORMS.name: drawn()}, {}, ProofVerdict.DISPROVEN, "random generator"),
        ({NORMS.name: KILLED}, None, ProofVerdict.DISPROVEN, "ended by signal 9 after 0 steps"),
        ({NORMS.name: trained(NORMS, None, None)}, None, ProofVerdict.NO_PROOF, "did not end in 1 s"),
        ({NORMS.name: trained(NORMS, [witnessed(0)])}, None, ProofVerdict.NO_PROOF, "ranks 1 left nothing"),
    ],
)
def test_what_each_training_shows_decides(
    changed: dict[str, Any], repeated: dict[str, Any] | None, verdict: ProofVerdict, said: str
) -> None:
    proof = proof_of(changed, repeated, fixed=repeated is not None)
    assert proof.verdict is verdict
    assert said in rendered(headline(proof))


def test_a_step_with_norms_that_waits_twice_breaks_the_promise() -> None:
    ranks = [witnessed(0), witnessed(1)]
    ranks[1].waits = {"schedules.py:7": 2, "align_hooks/torch_side/norms.py:1": 2}
    proof = proof_of({NORMS.name: ranks})
    assert proof.waiting == {"align_hooks/torch_side/norms.py:1": 2}
    assert proof.verdict is ProofVerdict.DISPROVEN
    assert "norms.py:1 2" in rendered(headline(proof))


def test_a_wait_of_the_job_itself_does_not_accuse() -> None:
    ranks = [witnessed(0), witnessed(1)]
    ranks[1].waits = {"schedules.py:9": 2}  # as often as before, on another line
    assert proof_of({NORMS.name: ranks}).verdict is ProofVerdict.PROVEN
    ranks[1].waits = {"schedules.py:7": 5}
    assert proof_of({NORMS.name: ranks, AGAIN.name: ranks}).verdict is ProofVerdict.PROVEN


def test_a_contradiction_disproves_and_what_is_short_is_no_proof() -> None:
    proof = proof_of()
    proof.contradicts = True
    assert proof.verdict is ProofVerdict.DISPROVEN
    for shortfall, changed in SHORT.items():
        proof = changed(proof_of())
        assert (proof.verdict, [*proof.shortfalls]) == (ProofVerdict.NO_PROOF, [shortfall])
        assert rendered(headline(proof)) == rendered(shortfall)


def without_losses(proof: Proof) -> Proof:
    for each in proof.ways:
        for seen in each.trained.witnessed:
            seen.steps[2].losses = []
    return proof


def without_updates(proof: Proof) -> Proof:
    for each in proof.ways:
        for seen in each.trained.witnessed:
            seen.final = seen.initial
    return proof


def with_problems(proof: Proof) -> Proof:
    proof.ways[-1] = WayResult(replace(proof.ways[-1].trained, problems=["no such step was reached"]))
    return proof


def without_record(proof: Proof) -> Proof:
    proof.health = None
    return proof


SHORT = {
    Shortfall.NO_LOSS: without_losses,
    Shortfall.NO_UPDATE: without_updates,
    Shortfall.NOT_RECORDED: with_problems,
    Shortfall.NOT_WHOLE: without_record,
}


class Scripted(Trials):
    """Trials whose trainings are written down."""

    script: list[Trained] = []

    def start(self, way: Way, at: str) -> Trained:
        return replace(self.script.pop(0), way=way)


@pytest.mark.parametrize(
    ("first", "later", "verdict"),
    [
        (with_loss(2, 2.0), [trained(), trained(NORMS, with_loss(2, 2.0))], ProofVerdict.DISPROVEN),
        (with_loss(2, 2.0), [trained(), trained(NORMS, with_loss(2, 2.1))], ProofVerdict.UNDECIDED),
        (with_loss(2, 2.0), [trained(), trained(NORMS)], ProofVerdict.UNDECIDED),
        (with_loss(2, 2.0), [trained(OFF, with_loss(1, 2.0)), trained(NORMS, with_loss(2, 2.0))], ProofVerdict.UNDECIDED),
        (KILLED, [trained(NORMS)], ProofVerdict.PROVEN),
        (KILLED, [KILLED], ProofVerdict.DISPROVEN),
        (trained(NORMS, [], 1), [], ProofVerdict.NO_PROOF),
    ],
)
def test_an_accusation_is_confirmed_before_it_is_made(first: Any, later: list[Trained], verdict: ProofVerdict, tmp_path: Path) -> None:
    proof = proof_of({NORMS.name: first})
    trials = Scripted(proof, tmp_path, 1.0, print)
    trials.script = later
    trials.confirm()
    assert trials.script == []
    assert proof.verdict is verdict


@pytest.mark.parametrize(
    ("ended", "failure"),
    [
        (trained(), None),
        (trained(code=2), Failure.FAILED),
        (trained(code=139), Failure.KILLED),
        (trained(code=None), Failure.TOO_LONG),
        (trained(seen=[], code=127), Failure.NOT_STARTED),
        (trained(seen=[]), Failure.UNTRAINED),
        (trained(seen=[witnessed(1)]), Failure.MISSING_RANKS),
        (replace(trained(), asked=9), Failure.SHORT),
        (trained(seen=[], code=2, refusals=["no"]), Failure.REFUSED),
    ],
)
def test_why_a_training_is_no_part_of_a_proof(ended: Trained, failure: Failure | None) -> None:
    assert ended.failure is failure
    if failure is not None:
        proof = Proof(["train"], STEPS, [WayResult(ended)])
        assert proof.verdict is ProofVerdict.NO_PROOF and rendered(headline(proof)).startswith("without hooks ")


def test_a_ratio_is_of_medians_and_waits_are_beyond_those_without() -> None:
    slow = [witnessed(0), witnessed(1)]
    for step, seconds in zip((2, 3), (0.5, 0.75), strict=True):
        slow[1].steps[step].seconds = seconds
    slow[0].waits = {"schedules.py:7": 3}
    slow[0].host_memory = 5000
    found = cost([trained(), trained(AGAIN)], trained(NORMS, slow))
    assert (found.ratio, found.low, found.high) == (2.5, 2.0, 3.0)
    assert (found.waits, dict(found.lines), found.host_memory, found.device_memory) == (1, {"schedules.py:7": 1}, 4000, None)


def test_everything_is_every_quantity_and_the_jobs_own_variables_stay() -> None:
    variables = EVERYTHING.variables("run", "1")
    assert variables["ALIGN_HOOKS_WEIGHTS"] == "1" and variables["ALIGN_HOOKS_LOCAL_NORMS"] == "all"
    assert {name.removeprefix("ALIGN_HOOKS_").lower() for name in variables} == {*ALL, "run"}
    assert OFF.variables("run", "all") == {}
    assert own({**variables, "ALIGN_HOOKS_ON_ERROR": "raise", "ALIGN_HOOKS_SEED": "1", "RANK": "0"}) == {
        "ALIGN_HOOKS_SEED": "1",
        "RANK": "0",
    }


def test_what_is_refused_is_left_out_and_nothing_else() -> None:
    refused = trained(EVERYTHING, [], 2, refusals=["ALIGN_HOOKS_ACTIVATIONS: not under CUDA graphs"])
    lesser = without_refused(refused)
    assert lesser is not None and {*ALL} - {*lesser.recorded} == {"activations"}
    assert without_refused(trained(NORMS, [], 2, refusals=["ALIGN_HOOKS_LOCAL_NORMS: no"])) is None
    assert without_refused(trained(EVERYTHING, [], 2, refusals=["this trainer is not supported"])) is None


def test_what_is_as_large_as_the_model_is_recorded_at_one_step_or_none_where_the_disk_is_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    each = 4 * 2 * 10 * EVERYTHING.copies
    for free, steps, large in ((10 * each * STEPS, "all", True), (2 * each, "2", True), (each, "2", False)):
        monkeypatch.setattr(trials.shutil, "disk_usage", lambda path, free=free: type("Usage", (), {"free": free}))
        proof = Proof(["train"], STEPS, [WayResult(trained())])
        way, at = fitted(EVERYTHING, proof, tmp_path)
        assert (at, {*LARGE} <= {*way.recorded}, proof.spared) == (steps, large, None if steps == "all" else 2)
        assert "routing" not in way.recorded  # nothing in the model has experts


def test_the_last_proof_of_an_environment_is_kept_and_said_while_it_counts(tmp_path: Path) -> None:
    proof = proof_of()
    for seen in proof.plain.witnessed:
        seen.prefix = str(tmp_path)
    keep(proof)
    kept = last(str(tmp_path))
    assert kept is not None and kept.verdict == "proven" and kept.device == "CPU"
    assert "since" not in kept.described({"torch": "2.13.0", "mindspore": "2.9.0"})
    assert kept.described({"torch": "2.14.0"}).endswith("since then torch 2.13.0 -> 2.14.0: run it again")
    for text in ("", "{", "[]", json.dumps({"verdict": "proven"})):
        (tmp_path / FILE).write_text(text)
        assert last(str(tmp_path)) is None


def test_a_witness_reads_back_what_it_wrote(tmp_path: Path) -> None:
    for seen in (witnessed(1), witnessed(0)):
        (tmp_path / f"{seen.rank}.json").write_text(json.dumps(to_builtins(seen)))
    assert read(tmp_path) == [witnessed(0), witnessed(1)]


def test_the_last_error_of_a_log_is_what_its_last_lines_end_with(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("start\n\nTraceback (most recent call last):\n[rank0]: ValueError: no\nW1128 warns\n==========\n")
    assert last_lines(log) == ["start", "Traceback (most recent call last):", "[rank0]: ValueError: no"]
    log.write_bytes(b"\xff\nonly words\n")
    assert last_lines(log)[-1] == "only words"


def test_a_refusal_before_the_first_step_is_one_though_a_witness_has_begun() -> None:
    process = Process(1, "ms", 0, "train.py", ended=REFUSED, problems=["ALIGN_HOOKS_OPTIMIZER_STATE: no"])
    begun = replace(witnessed(), steps=[])
    assert refused([process, process], [begun]) == refused([process], []) == ["ALIGN_HOOKS_OPTIMIZER_STATE: no"]
    assert refused([process], [witnessed()]) == []
