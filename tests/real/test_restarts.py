"""Jobs that torchrun starts again: they end as without us, and leave the record of a job that nothing ended."""

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from align_hooks import Run, open_run
from align_hooks.record.verify import verify
from real import frameworks

pytestmark = pytest.mark.slow
STEPS, TORCHRUN = 4, ("-m", "torch.distributed.run")
FORMS = {"-m": (TORCHRUN, ("-m", "align_hooks.torch_side")), "run": (("-m", "align_hooks", "run", "--", sys.executable, *TORCHRUN), ())}
"""How a script is attached to: what stands before torchrun's options, and what after them."""


def trained(dies: str, *, form: str = "-m", ranks: int = 2, saves: bool = True, **variables: object) -> Path:
    """Train, with a rank that dies as ``dies`` says and is started again; ``saves`` makes a checkpoint a step."""
    before, after = FORMS[form]
    options = ("--nproc-per-node", str(ranks), f"--max-restarts={dies.split()[-1]}", "--monitor-interval", "0.2")
    change = {"--train-iters": str(STEPS), "--ckpt-format": "torch"}
    kept = {"--save": "saved", "--load": "saved", "--save-interval": "1"} if saves else {}
    # the agent's store keeps the addresses of dead ranks, and Gloo connects to them: of torch 2.13, with us or without
    environment = {"DIES": dies, "MICRO_BATCHES": str(2 // ranks), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    given = {"script": frameworks.SCRIPTS / "dies.py", "change": change | kept, "environment": environment}
    variables = {"RUN": "run", **frameworks.EVERYTHING, **variables}
    return frameworks.kept(frameworks.megatron, launcher=(*before, *options, *after), **given, **variables).run


@pytest.fixture(scope="module")
def undisturbed(real_corpus: Path) -> Run:
    return open_run(trained("0 raise 0", saves=False))


def numbers(run: Run, step: int) -> Mapping[str, object]:
    """Everything that is recorded of a step, but for the time that it took."""
    scalars = next(row for row in run.scalars() if row["step"] == step)
    state = run.optimizer_state(step + 1)
    return {
        "scalars": {name: value for name, value in scalars.items() if name != "seconds"},
        "batch": run.batch(step).tokens,
        "norms": run.local_norms(step),
        "gradients": dict(run.gradients(step)),
        "weights": dict(run.weights(step + 1)),
        "first weights": dict(run.weights(0)),
        "moments": {name: dict(tensors) for name, tensors in state.moments.items()},
        "sketches": {name: sums for kind in ("gradients", "weights") for name, sums in run.sketches(kind, step).items()},
    }


def is_like(path: Path, undisturbed: Run, restarts: int) -> None:
    """Hold a record against the undisturbed one, to the bit."""
    run = open_run(path)
    assert run.problems == [] and verify(run).wrong == [] and run.steps == list(range(STEPS))
    assert run.manifests[0].restarts == restarts
    for step in run.steps:
        np.testing.assert_equal(numbers(run, step), numbers(undisturbed, step))


STARTED_AGAIN = {
    "twice and continued": ("1 kill 2", "-m", True),
    "once and replaced": ("0 raise 1", "run", False),
    "while it writes": ("1 between 1", "-m", True),
    "twice and replaced": ("0 kill 2", "run", False),
    "while it starts": ("1 start 1", "run", True),
    "after the last step": ("1 end 1", "run", True),
}


@pytest.mark.parametrize(("dies", "form", "saves"), STARTED_AGAIN.values(), ids=STARTED_AGAIN)
def test_a_job_that_is_started_again_leaves_the_record_of_one_that_is_not(undisturbed: Run, dies: str, form: str, saves: bool) -> None:
    is_like(trained(dies, form=form, saves=saves), undisturbed, int(dies[-1]))


def test_what_was_recorded_and_loaded_before_a_restart_is_not_missed_after_it(undisturbed: Run) -> None:
    """Weights are loaded once, and not over those of the checkpoint; batches that were asked of the first step alone are there."""
    run = open_run(trained("0 kill 1", ranks=1, LOAD_WEIGHTS=undisturbed.path, BATCHES="0"))
    assert run.problems == [] and run.steps_of("batches") == [0]
    losses, expected = ([row["loss"] for row in one.scalars()] for one in (run, undisturbed))
    np.testing.assert_allclose(losses, expected, rtol=1e-6)  # of one rank, where the other run has two
