"""A training loop that is not Megatron-LM's: recorded, fed and compared as Megatron-LM's own, where it passes megatron.core."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from align_hooks import Run, open_run
from real import frameworks
from real.test_survival import HOOKS, PLANTED, REFUSED

SCRIPT = frameworks.SCRIPTS / "own_loop.py"
NO_SEED = {"DEVICE": "cpu"}
"""Variables of a rehearsal, without a seed, which such a loop does not take."""


def own(
    where: Path,
    *,
    variations: str = "",
    ranks: int = 1,
    planting: bool = False,
    environment: Mapping[str, str] | None = None,
    **variables: object,
) -> frameworks.Ended:
    """Train with the loop of one's own; ``planting`` lets calls of ours fail."""
    port = str(frameworks.free_port())
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--master-port", port] if ranks > 1 else []
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port} if ranks == 1 else {}
    given = {"OWN_LOOP": variations, "CUDA_DEVICE_MAX_CONNECTIONS": "1", **alone, **(environment or {})}
    scripts = [str(PLANTED)] * planting + [str(SCRIPT)]
    return frameworks.python(where, [*launcher, "-m", "align_hooks.torch_side", *scripts], NO_SEED | variables, given)


@pytest.fixture(scope="module")
def reference(real_corpus: Path) -> Run:
    return open_run(frameworks.recorded(own))


def test_every_step_and_no_evaluation_is_recorded(reference: Run) -> None:
    assert reference.steps == list(range(frameworks.STEPS))
    assert [manifest.ended for manifest in reference.manifests.values()] == ["finished"]
    assert [row.consumed_samples for row in reference.rows] == [4, 8, 12]
    assert reference.facts.planned_steps is None
    assert reference.facts.arguments is None
    assert reference.facts.training.global_batch_size == 4
    assert reference.self_check.contradictions == ()


def test_megatron_fed_by_it_is_aligned(reference: Run) -> None:
    fed = frameworks.recorded(frameworks.megatron, **frameworks.fed_by(reference.path))
    frameworks.aligned(reference.path, fed)


def test_fed_by_megatron_it_is_aligned(real_corpus: Path) -> None:
    megatron = frameworks.recorded(frameworks.megatron)
    fed = frameworks.recorded(own, **frameworks.fed_by(megatron), INJECT_GRADIENTS=f"{megatron}@1")
    assert open_run(fed).facts.injected.steps == (1,)
    frameworks.aligned(megatron, fed)


def test_a_forward_pass_that_overrides_megatrons_is_seen(reference: Run) -> None:
    frameworks.aligned(reference.path, frameworks.recorded(own, variations="own forward", **frameworks.fed_by(reference.path)))


def test_a_step_without_an_update_is_said_and_not_taken_for_a_part_of_the_next(real_corpus: Path) -> None:
    done = frameworks.kept(own, variations="left", RUN="run", LOCAL_NORMS="all")
    assert "step 0 (iteration 1) made no update" in done.ours
    assert open_run(done.run).steps == [1, 2]


def test_a_batch_that_is_no_dictionary_is_named_under_a_replay(tmp_path: Path, reference: Run) -> None:
    done = own(tmp_path, variations="object", **frameworks.fed_by(reference.path))
    assert done.code != 0
    assert "forward_step reads '.to' of a batch, and recorded batches have tokens" in done.output


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["tp2", "pp2", "dp2"])
def test_on_two_ranks_it_is_aligned_with_one(reference: Run, layout: str) -> None:
    fed = frameworks.recorded(own, variations=layout, ranks=2, **frameworks.fed_by(reference.path))
    frameworks.aligned(reference.path, fed)


@pytest.mark.parametrize("variations", ["dropout", pytest.param("dropout,bf16", marks=pytest.mark.slow)])
def test_recording_leaves_it_bitwise_as_it_was(real_corpus: Path, variations: str) -> None:
    environment = {"WITNESS": "witness.npz"}
    asked = ({}, {"RUN": "run"} | frameworks.EVERYTHING)
    plain, watched = (frameworks.kept(own, variations=variations, environment=environment, **each).where for each in asked)
    with np.load(plain / "witness.npz") as one, np.load(watched / "witness.npz") as other:
        assert one["losses"].size == frameworks.STEPS * 3  # with an evaluation's
        assert len(one.files) > 15
        assert one.files == other.files
        assert all((one[name] == other[name]).all() for name in one.files)


@pytest.mark.slow
def test_a_call_of_ours_that_fails_leaves_it_as_it_was(real_corpus: Path) -> None:
    steps = {"OWN_STEPS": "60", "WITNESS": "witness.npz"}
    planted = {"PLANTED": "planted.json", "PLANTED_ONLY": HOOKS["megatron"]} | REFUSED
    plain = frameworks.kept(own, variations="dropout", environment=steps).where
    asked = {"RUN": "run"} | frameworks.EVERYTHING
    failing = frameworks.kept(own, (0, 3), variations="dropout", planting=True, environment=steps | planted, **asked).where
    assert json.loads((failing / "planted.json").read_text())["tried"] >= 200
    with np.load(plain / "witness.npz") as one, np.load(failing / "witness.npz") as other:
        assert one["losses"].size == 60 * 3
        assert all((one[name] == other[name]).all() for name in one.files)


def test_only_the_first_of_several_models_is_recorded(real_corpus: Path, reference: Run) -> None:
    done = frameworks.kept(own, variations="two models", RUN="run", **frameworks.EVERYTHING)
    assert done.ours.count("this process trains several models: only the first that trains is recorded") == 1
    run = open_run(done.run)
    assert run.steps == reference.steps
    assert run.self_check.contradictions == ()
    assert run.optimizer_state(frameworks.STEPS).updates == frameworks.STEPS


def test_several_calls_of_a_schedule_before_an_update_end_recording_and_not_training(real_corpus: Path) -> None:
    done = frameworks.kept(own, 3, variations="two calls", RUN="run", LOCAL_NORMS="all", environment={"WITNESS": "witness.npz"})
    assert "calls a schedule several times before an update" in done.ours
    with np.load(done.where / "witness.npz") as witness:
        assert witness["losses"].size == frameworks.STEPS * 5


def test_a_step_that_is_never_made_is_said_at_the_end(real_corpus: Path) -> None:
    done = frameworks.kept(own, 3, RUN="run", WEIGHTS="0", GRADIENTS="7")
    assert "ALIGN_HOOKS_GRADIENTS=7: no such step was reached" in done.ours
    assert open_run(done.run).steps == list(range(frameworks.STEPS))


@pytest.mark.parametrize(("name", "value"), [("SEED", "1"), ("LEARNING_RATE", "1e-4"), ("DETERMINISTIC", "1")])
def test_what_acts_through_arguments_is_refused_before_training(tmp_path: Path, name: str, value: str) -> None:
    done = own(tmp_path, RUN="run", environment={"WITNESS": "witness.npz"}, **{name: value})
    assert done.code != 0
    assert f"ALIGN_HOOKS_{name}: this training loop is not Megatron-LM's" in done.output
    assert not (tmp_path / "witness.npz").exists()


def test_a_run_that_resumes_is_refused(tmp_path: Path) -> None:
    state = {"OWN_STATE": str(tmp_path / "state.pt")}
    own(tmp_path, environment=state).succeeded()
    done = own(tmp_path, RUN="run", environment=state | {"WITNESS": "witness.npz"})
    assert done.code != 0
    assert "this run resumes, and its training loop does not say at which step" in done.output
    assert not (tmp_path / "witness.npz").exists()
