"""A resumed run against the unbroken one, by iteration: what was not restored is named, and nothing where all was."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from align_hooks import open_run
from align_hooks.comparison.finding import Finding, at_step
from align_hooks.comparison.pipeline import compare
from align_hooks.comparison.verdict import ComparisonResult, Verdict
from align_hooks.messages import message, rendered
from align_hooks.record.format.state import SAMPLES, SCHEDULER, UPDATES
from chosen import slow_but
from real import frameworks
from real.test_noninterference import DROPOUT

STEPS, BROKEN = 4, 2
BY_HAND = {"tokens.npy", "labels.npy", "loss_mask.npy", "position_ids.npy"}
CHANGE = {"--train-iters": str(STEPS), "--ckpt-format": "torch", "--lr-decay-iters": "8", "--lr-decay-style": "linear"}
BREAKS = {"--save": "saved", "--save-interval": str(BROKEN), "--exit-interval": str(BROKEN)}
SCRIPT = frameworks.SCRIPTS / "planted_resuming.py"


class Megatron:
    """A run of Megatron of all steps, and what goes on from the checkpoint of its like after two."""

    def __init__(self, change: Mapping[str, str] = CHANGE, **given: object) -> None:
        self.given = {"train": frameworks.megatron, **given}
        self.whole = open_run(frameworks.recorded(**self.given, change=change))
        saved = frameworks.kept(**self.given, change={**change, **BREAKS}).where / "saved"
        self.change = {**change, "--load": str(saved)}

    def resumed(self, fault: str = "", **variables: object) -> ComparisonResult:
        """The unbroken run against one that goes on from the checkpoint with a fault, none where there is no name."""
        script = {"script": SCRIPT, "environment": {"PLANTED": fault}} if fault else {}
        return compare(self.whole, open_run(frameworks.recorded(**self.given, change=self.change, **script, **variables)))


class MindFormers:
    """The same of MindFormers, on a reference's weights and batches.

    Of the older models: MindFormers 1.9 resumes a newer one, which has biases of experts, under ``use_parallel: True`` alone.
    """

    def __init__(self, source: Path) -> None:
        self.source = source
        self.change: dict[str, object] = {"lr_schedule.total_steps": STEPS, "output_dir": "out"}
        self.whole = open_run(frameworks.recorded(frameworks.mindformers, change=self.change, **frameworks.fed_by(source)))
        saver = {"type": "CheckpointMonitor", "prefix": "llama", "save_checkpoint_steps": BROKEN}
        part = self.change | {"callbacks": [{"type": "MFLossMonitor"}, saver]}
        feed = {"REPLAY_BATCHES": f"{source}@0-{BROKEN - 1}", "LOAD_WEIGHTS": source}
        saved = frameworks.kept(frameworks.mindformers, change=part, **feed).where / "out" / "checkpoint"
        self.change |= {"load_checkpoint": str(saved), "resume_training": True}

    def resumed(self, fault: str = "", batches: Path | None = None, **variables: object) -> ComparisonResult:
        """As of Megatron; ``batches`` feeds it."""
        script = frameworks.SCRIPTS / "planted_resuming_mindformers.py"
        planted = {"script": script, "environment": {"PLANTED": fault}} if fault else {}
        given = {"change": self.change, "REPLAY_BATCHES": batches or self.source, **planted, **variables}
        return compare(self.whole, open_run(frameworks.recorded(frameworks.mindformers, **given)))


@pytest.fixture(scope="module")
def megatron(real_corpus: Path) -> Megatron:
    return Megatron()


@pytest.fixture(scope="module")
def mindformers(megatron: Megatron) -> MindFormers:
    return MindFormers(megatron.whole.path)


def test_every_step_says_what_it_starts_from(megatron: Megatron) -> None:
    (states,) = zip(*(megatron.whole.state(step).values() for step in range(STEPS)), strict=True)
    assert [state[SAMPLES] for state in states] == [0, 4, 8, 12]
    assert [state[SCHEDULER] for state in states] == [0, 4, 8, 12]
    assert [state[UPDATES] for state in states] == [0, 1, 2, 3]


@pytest.mark.parametrize("side", slow_but(["megatron", "mindformers"], "megatron"))
def test_a_run_that_restored_everything_is_aligned(side: str, request: pytest.FixtureRequest) -> None:
    comparison = request.getfixturevalue(side).resumed()
    assert comparison.verdict is Verdict.ALIGNED, (comparison.first, comparison.blame)
    assert "training state" in [stage.name for stage in comparison.stages]


def diverged(comparison: ComparisonResult, stage: str, place: str) -> tuple[Finding, ...]:
    """What the stage found that decided; it and the place to blame must be these."""
    assert comparison.verdict is Verdict.DIVERGED
    assert comparison.first is not None and comparison.blame is not None
    assert (comparison.first.name, comparison.blame.place) == (stage, place)
    return comparison.first.findings


@pytest.mark.slow
@pytest.mark.parametrize(
    ("side", "fault", "name"),
    [("megatron", "scheduler_twice", SCHEDULER), ("megatron", "batch_again", SAMPLES), ("mindformers", "update_more", UPDATES)],
)
def test_a_count_that_was_not_restored_is_named_with_its_step(side: str, fault: str, name: str, request: pytest.FixtureRequest) -> None:
    found = diverged(request.getfixturevalue(side).resumed(fault), "training state", "state")
    assert [finding.what for finding in found] == [at_step(name, BROKEN)]


@pytest.mark.slow
@pytest.mark.parametrize("side", ["megatron", "mindformers"])
def test_moments_that_were_exchanged_are_named(side: str, request: pytest.FixtureRequest) -> None:
    found = diverged(request.getfixturevalue(side).resumed("moments_exchanged"), "initial optimizer state", "state")
    if side == "mindformers":
        moved = {rendered(finding.what) for finding in found if finding.limit_ratio > 1}
        assert len(moved) == 4 and all("self_attn.o_proj.weight" in what for what in moved), moved


@pytest.mark.slow
def test_a_batch_that_the_sampler_repeats_is_named_where_no_batch_is_recorded(megatron: Megatron) -> None:
    found = diverged(megatron.resumed("sampler_repeats", BATCHES=None), "batches", "data")
    assert [finding.step for finding in found] == [BROKEN + 1]


@pytest.mark.slow
def test_a_run_with_dropout_that_restored_everything_is_aligned(real_corpus: Path) -> None:
    """On their own data: a data loader must not draw from the generator that dropout draws from, as on a device it does not."""
    comparison = Megatron({**DROPOUT, "--train-iters": str(STEPS), "--ckpt-format": "torch"}).resumed()
    assert comparison.verdict is Verdict.ALIGNED, (comparison.first, comparison.blame)
    states = {stage.name: stage.summary for stage in comparison.stages}["initial optimizer state"]
    assert states == message("optimizer_state.to_the_bit", count=42)


@pytest.mark.slow
def test_generators_that_were_not_restored_are_named_where_the_model_draws(real_corpus: Path) -> None:
    comparison = Megatron(CHANGE | DROPOUT).resumed(flags=("--no-load-rng",))
    assert comparison.verdict is Verdict.DIVERGED
    assert comparison.blame is not None
    assert (comparison.blame.place, comparison.blame.causes[0]) == ("state", "random_numbers")


@pytest.mark.slow
def test_the_biases_of_experts_that_were_not_saved_are_named(real_corpus: Path) -> None:
    plain = {"--train-iters": str(STEPS), "--ckpt-format": "torch"}
    found = diverged(Megatron(plain, family="deepseek_v3").resumed("bias_not_saved"), "training state", "state")
    assert all(str(finding.step) == str(BROKEN) for finding in found)
    assert "expert_bias" in rendered(found[0].what)


def late_batches(where: Path, source: Path) -> None:
    """Write a directory as the guide's snippet makes it, whose batches after the break are each one too early."""
    for step in range(STEPS):
        batch = source / f"step_{step - (step >= BROKEN)}" / "rank_0"
        shutil.copytree(batch, where / f"step_{step}" / "rank_0", ignore=lambda _, names: {*names} - BY_HAND)


@pytest.mark.slow
@pytest.mark.parametrize("variables", [{}, {"BATCHES": None}], ids=["recorded", "by digest"])
def test_a_batch_that_mindformers_was_fed_twice_is_named(mindformers: MindFormers, variables: dict[str, object]) -> None:
    comparison = mindformers.resumed("", frameworks.derived(late_batches, mindformers.source), **variables)
    assert {finding.step for finding in diverged(comparison, "batches", "data")} == set(range(BROKEN, STEPS))
