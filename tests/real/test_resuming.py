"""A resumed run against the unbroken one, by iteration: what was not restored is named, and nothing where all was."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from align_hooks import Run, open_run
from align_hooks.comparison.runs import compare
from align_hooks.comparison.verdict import Comparison, Verdict, at_step
from align_hooks.messages import rendered
from align_hooks.record.state import SAMPLES, SCHEDULER, UPDATES
from real import frameworks

STEPS, BROKEN = 4, 2
BY_HAND = {"tokens.npy", "labels.npy", "loss_mask.npy", "position_ids.npy"}
CHANGE = {"--train-iters": str(STEPS), "--ckpt-format": "torch", "--lr-decay-iters": "8", "--lr-decay-style": "linear"}
BREAKS = {"--save": "saved", "--save-interval": str(BROKEN), "--exit-interval": str(BROKEN)}
SCRIPT = frameworks.SCRIPTS / "planted_resuming.py"


@pytest.fixture(scope="module")
def unbroken(real_corpus: Path) -> tuple[Run, Path]:
    """A run of all steps, and the checkpoint of its like after two."""
    run = frameworks.recorded(frameworks.megatron, change=CHANGE)
    return open_run(run), frameworks.kept(frameworks.megatron, change=CHANGE | BREAKS).where / "saved"


def resumed(unbroken: tuple[Run, Path], fault: str, **variables: object) -> Comparison:
    """The unbroken run against one that goes on from the checkpoint with a fault."""
    run, saved = unbroken
    script = {"script": SCRIPT, "environment": {"PLANTED": fault}} if fault else {}
    again = frameworks.recorded(frameworks.megatron, change=CHANGE | {"--load": str(saved)}, **script, **variables)
    return compare(run, open_run(again))


def test_every_step_says_what_it_starts_from(unbroken: tuple[Run, Path]) -> None:
    (states,) = zip(*(unbroken[0].state(step).values() for step in range(STEPS)), strict=True)
    assert [state[SAMPLES] for state in states] == [0, 4, 8, 12]
    assert [state[SCHEDULER] for state in states] == [0, 4, 8, 12]
    assert [state[UPDATES] for state in states] == [0, 1, 2, 3]


def test_a_run_that_restored_everything_is_aligned(unbroken: tuple[Run, Path]) -> None:
    comparison = resumed(unbroken, "")
    assert comparison.verdict is Verdict.ALIGNED, (comparison.first, comparison.blame)
    assert "training state" in [stage.name for stage in comparison.stages]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "stage", "name"),
    [
        ("scheduler_twice", "training state", SCHEDULER),
        ("batch_again", "training state", SAMPLES),
        ("moments_exchanged", "initial optimizer state", ""),
    ],
)
def test_what_was_not_restored_is_named_with_its_step(unbroken: tuple[Run, Path], fault: str, stage: str, name: str) -> None:
    comparison = resumed(unbroken, fault)
    assert comparison.verdict is Verdict.DIVERGED
    assert comparison.first is not None and comparison.blame is not None
    assert (comparison.first.name, comparison.blame.place) == (stage, "state")
    if name:
        assert [finding.what for finding in comparison.first.findings] == [at_step(name, BROKEN)]


@pytest.mark.slow
def test_a_batch_that_the_sampler_repeats_is_named_where_no_batch_is_recorded(unbroken: tuple[Run, Path]) -> None:
    comparison = resumed(unbroken, "sampler_repeats", BATCHES=None)
    assert comparison.verdict is Verdict.DIVERGED
    assert comparison.first is not None and comparison.blame is not None
    assert (comparison.first.name, comparison.blame.place) == ("batches", "data")
    assert [finding.step for finding in comparison.first.findings] == [BROKEN + 1]


@pytest.mark.slow
def test_generators_that_were_not_restored_are_named_where_the_model_draws(real_corpus: Path) -> None:
    drawing = CHANGE | {"--hidden-dropout": "0.1", "--attention-dropout": "0.1"}
    whole = frameworks.recorded(frameworks.megatron, change=drawing)
    part = frameworks.kept(frameworks.megatron, change=drawing | BREAKS)
    again = frameworks.recorded(frameworks.megatron, change=drawing | {"--load": str(part.where / "saved")}, flags=("--no-load-rng",))
    comparison = compare(open_run(whole), open_run(again))
    assert comparison.verdict is Verdict.DIVERGED
    assert comparison.blame is not None
    assert (comparison.blame.place, comparison.blame.causes[0]) == ("state", "random_numbers")


@pytest.mark.slow
def test_the_biases_of_experts_that_were_not_saved_are_named(real_corpus: Path) -> None:
    change = {"--train-iters": str(STEPS), "--ckpt-format": "torch"}
    whole = frameworks.recorded(frameworks.megatron, family="deepseek_v3", change=change)
    part = frameworks.kept(frameworks.megatron, family="deepseek_v3", change=change | BREAKS)
    script = {"script": SCRIPT, "environment": {"PLANTED": "bias_not_saved"}}
    again = frameworks.recorded(frameworks.megatron, family="deepseek_v3", change=change | {"--load": str(part.where / "saved")}, **script)
    comparison = compare(open_run(whole), open_run(again))
    assert comparison.verdict is Verdict.DIVERGED
    assert comparison.first is not None and comparison.blame is not None
    assert (comparison.first.name, comparison.blame.place) == ("training state", "state")
    assert all(str(finding.step) == str(BROKEN) for finding in comparison.first.findings)
    assert "expert_bias" in rendered(comparison.first.findings[0].what)


class MindFormers:
    """A run of MindFormers on a reference's weights and batches, unbroken, and what goes on from the checkpoint of its like.

    Of the older models: MindFormers 1.9 resumes a newer one, which has biases of experts, under ``use_parallel: True`` alone.
    """

    def __init__(self, source: Path) -> None:
        self.source = source
        self.change: dict[str, object] = {"lr_schedule.total_steps": STEPS, "output_dir": "out"}
        whole = frameworks.recorded(frameworks.mindformers, change=self.change, **frameworks.fed_by(source))
        self.whole = open_run(whole)
        saver = {"type": "CheckpointMonitor", "prefix": "llama", "save_checkpoint_steps": BROKEN}
        part = self.change | {"callbacks": [{"type": "MFLossMonitor"}, saver]}
        feed = {"REPLAY_BATCHES": f"{source}@0-{BROKEN - 1}", "LOAD_WEIGHTS": source}
        self.saved = frameworks.kept(frameworks.mindformers, change=part, **feed).where / "out" / "checkpoint"

    def resumed(self, name: str, batches: Path | None = None, **variables: object) -> Comparison:
        """The unbroken run against one that goes on from the checkpoint with a fault, none where there is no name; ``batches`` feeds it."""
        change = self.change | {"load_checkpoint": str(self.saved), "resume_training": True}
        planted = {"script": frameworks.SCRIPTS / "planted_resuming_mindformers.py", "environment": {"PLANTED": name}} if name else {}
        given = {"change": change, "REPLAY_BATCHES": batches or self.source, **planted, **variables}
        again = frameworks.recorded(frameworks.mindformers, **given)
        return compare(self.whole, open_run(again))


@pytest.fixture(scope="module")
def of_mindformers(unbroken: tuple[Run, Path]) -> MindFormers:
    return MindFormers(unbroken[0].path)


@pytest.mark.slow
def test_a_run_of_mindformers_that_restored_everything_is_aligned(of_mindformers: MindFormers) -> None:
    comparison = of_mindformers.resumed("")
    assert comparison.verdict is Verdict.ALIGNED, (comparison.first, comparison.blame)
    assert "training state" in [stage.name for stage in comparison.stages]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "stage", "name"), [("update_more", "training state", UPDATES), ("moments_exchanged", "initial optimizer state", "")]
)
def test_what_mindformers_did_not_restore_is_named(of_mindformers: MindFormers, fault: str, stage: str, name: str) -> None:
    comparison = of_mindformers.resumed(fault)
    assert comparison.verdict is Verdict.DIVERGED
    assert comparison.first is not None and comparison.blame is not None
    assert (comparison.first.name, comparison.blame.place) == (stage, "state")
    if name:
        assert [finding.what for finding in comparison.first.findings] == [at_step(name, BROKEN)]
    else:
        moved = {rendered(finding.what) for finding in comparison.first.findings if finding.excess > 1}
        assert len(moved) == 4 and all("self_attn.o_proj.weight" in what for what in moved), moved


def late_batches(where: Path, source: Path) -> None:
    """Write a directory as the guide's snippet makes it, whose batches after the break are each one too early."""
    for step in range(STEPS):
        batch = source / f"step_{step - (step >= BROKEN)}" / "rank_0"
        shutil.copytree(batch, where / f"step_{step}" / "rank_0", ignore=lambda _, names: {*names} - BY_HAND)


@pytest.mark.slow
@pytest.mark.parametrize("variables", [{}, {"BATCHES": None}], ids=["recorded", "by digest"])
def test_a_batch_that_mindformers_was_fed_twice_is_named(of_mindformers: MindFormers, variables: dict[str, object]) -> None:
    comparison = of_mindformers.resumed("", frameworks.derived(late_batches, of_mindformers.source), **variables)
    assert comparison.verdict is Verdict.DIVERGED
    assert comparison.first is not None and comparison.blame is not None
    assert (comparison.first.name, comparison.blame.place) == ("batches", "data")
    assert {finding.step for finding in comparison.first.findings} == set(range(BROKEN, STEPS))
