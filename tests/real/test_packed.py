"""Packed samples of Megatron-LM, each line of a text a document: recorded, replayed packed and not, compared, and faults of boundaries."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from align_hooks import open_run
from align_hooks.comparison.data.batch_differences import Made
from align_hooks.comparison.data.token_losses import AffectedRows, LossDivergence
from align_hooks.messages import Side
from align_hooks.oracle.arbitrate import arbitrate
from align_hooks.record.format.documents import ends_of
from real import frameworks
from real.test_noninterference import same
from real.test_refusals import refused
from synthetic import save_by_hand

SCRIPT = frameworks.SCRIPTS / "packed_samples.py"
PACKED, RESET = ("--dataloader-inter-document-masking",), ("--reset-position-ids", "--reset-attention-mask")
ROUNDING = 1e-6
"""Of a token's loss, that of a document in a row of its own beside the same in a pack."""


def lines(where: Path) -> None:
    """Write the corpus of lines."""
    frameworks.python(where.parent, [str(frameworks.SCRIPTS / "lines_corpus.py"), str(where)], {}, {}).succeeded()


@pytest.fixture(scope="module")
def corpus(real_corpus: Path) -> dict[str, str]:
    """The argument for the corpus of lines."""
    return {"--data-path": str(frameworks.derived(lines))}


@pytest.fixture(scope="module")
def packed(corpus: dict[str, str]) -> Path:
    return frameworks.recorded(frameworks.megatron, script=SCRIPT, flags=PACKED, change=corpus)


def replayed(run: Path, *flags: str, fault: str = "", **change: str) -> Path:
    """Train on a run's batches and weights."""
    environment = {"PACKED_FAULT": fault} if fault else {}
    given = frameworks.fed_by(run) | {"change": change, "environment": environment}
    return frameworks.recorded(frameworks.megatron, script=SCRIPT, flags=flags, **given)


def test_documents_are_recorded_in_the_rows_of_the_data_set(packed: Path) -> None:
    batch = open_run(packed).batch(0)
    assert batch.tokens is not None and batch.documents is not None and batch.position_ids is not None
    assert batch.tokens.shape == (4, 128)
    assert np.array_equal(np.diff(batch.documents, axis=1) == 1, batch.tokens[:, :-1] == 10)
    assert np.array_equal(batch.position_ids == 0, np.diff(batch.documents, axis=1, prepend=-1) == 1)
    assert not open_run(packed).unrecorded_inputs


def test_a_replay_is_aligned_and_documents_that_meet_in_attention_are_named(packed: Path) -> None:
    frameworks.aligned(packed, replayed(packed, *PACKED))
    judged = frameworks.diverged(packed, replayed(packed, *PACKED, fault="unseen"))
    first = frameworks.first(judged)
    assert first.name == "token losses"
    assert isinstance(first.evidence, LossDivergence)
    assert first.evidence.rows.rows is AffectedRows.DOCUMENTS
    assert first.evidence.documents is not None
    assert first.evidence.documents.arguments["document"] == 1
    assert judged.blame.causes[0] == "across_documents"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "change"),
    [(PACKED, {"--micro-batch-size": "1"}), (PACKED, {"--micro-batch-size": "4"}), (("--sft",), {}), (RESET, {})],
    ids=["rows apart", "all rows in one", "for --sft", "by masks"],
)
def test_another_packing_of_the_same_documents_is_aligned(flags: tuple[str, ...], change: dict[str, str], packed: Path) -> None:
    candidate = replayed(packed, *flags, **change)
    frameworks.aligned(packed, candidate)
    assert (open_run(candidate).batch(0).documents is None) is (flags == RESET)


@pytest.mark.slow
def test_masks_that_start_anew_are_the_same_documents(packed: Path, corpus: dict[str, str]) -> None:
    reset = frameworks.recorded(frameworks.megatron, script=SCRIPT, flags=RESET, change=corpus)
    frameworks.aligned(packed, reset)
    frameworks.aligned(reset, replayed(reset, *PACKED))


@pytest.mark.slow
def test_mindformers_is_aligned_with_packed_samples_by_a_mask_of_its_own(corpus: dict[str, str]) -> None:
    packed = frameworks.recorded(frameworks.megatron, family="qwen3", script=SCRIPT, flags=PACKED, change=corpus)
    change = {"model.model_config.use_eod_reset": True}
    frameworks.aligned(packed, frameworks.recorded(frameworks.mindformers, family="qwen3", change=change, **frameworks.fed_by(packed)))
    refused(frameworks.mindformers, "use_eod_reset", family="qwen3", REPLAY_BATCHES=packed)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen3_moe", "deepseek_v3"])
def test_experts_and_latent_attention_of_packed_samples(family: str, corpus: dict[str, str]) -> None:
    given = {"family": family, "script": SCRIPT, "ROUTING": "all"}
    reset = frameworks.recorded(frameworks.megatron, flags=RESET, change=corpus, **given)
    fed = frameworks.fed_by(reset) | {"REPLAY_ROUTING": reset}
    packed = frameworks.recorded(frameworks.megatron, flags=PACKED, **given, **fed)
    frameworks.aligned(reset, packed)
    ours, theirs = (open_run(run) for run in (reset, packed))
    for name, experts in ours.routing(0).items():
        assert np.array_equal(experts, theirs.routing(0)[name])
    assert {*ours.activations(0).names} == {*theirs.activations(0).names}


LAYOUTS = {
    "TP2": (("--tensor-model-parallel-size", "2"), "2"),
    "TP2, its sequence cut": (("--tensor-model-parallel-size", "2", "--sequence-parallel"), "1"),
    "PP2": (("--pipeline-model-parallel-size", "2"), "1"),
    "DP2": ((), "1"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("flags", "rows"), LAYOUTS.values(), ids=LAYOUTS)
def test_layouts_of_packed_samples_are_aligned(flags: tuple[str, ...], rows: str, packed: Path) -> None:
    given = {"script": SCRIPT, "flags": (*PACKED, *flags), "ranks": 2, "change": {"--micro-batch-size": rows}}
    frameworks.aligned(packed, frameworks.recorded(frameworks.megatron, **given, **frameworks.fed_by(packed)))


@pytest.mark.slow
@pytest.mark.parametrize("rotation", ["of documents", "of rows"])
def test_a_third_opinion_judges_each_side_by_its_own_rotation(rotation: str, packed: Path) -> None:
    reference = packed if rotation == "of documents" else replayed(packed, *RESET)
    said = arbitrate(open_run(reference), open_run(replayed(packed, *PACKED, fault="unseen")))
    first = said.first(Side.CANDIDATE)
    assert said.right(Side.REFERENCE)
    assert first is not None and first.point == "model.layers.0.self_attn.core"
    assert said.alike is (rotation == "of documents")


def alone(where: Path, packed: Path) -> None:
    """Write each document of the first step in a row of its own, padded with what does not count."""
    batch = open_run(packed).batch(0)
    rows: dict[str, list[np.ndarray]] = {"tokens": [], "labels": [], "loss_mask": []}
    for row, ends in enumerate(ends_of(batch.documents)):
        for start, stop in pairwise(ends):
            for name, of_documents in rows.items():
                of_documents.append(np.pad(getattr(batch, name)[row, start:stop], (0, 128 - (stop - start))))
    save_by_hand(where, 0, {name: np.stack(of_documents) for name, of_documents in rows.items()})


@pytest.mark.slow
def test_a_document_in_a_row_of_its_own_has_the_same_losses(packed: Path) -> None:
    folder = frameworks.derived(alone, packed)
    rows = len(np.load(folder / "step_0" / "rank_0" / "tokens.npy"))
    change = {"--micro-batch-size": str(rows), "--global-batch-size": str(rows), "--train-iters": "1"}
    run = frameworks.recorded(frameworks.megatron, change=change, REPLAY_BATCHES=folder, LOAD_WEIGHTS=packed)
    ours, theirs = (open_run(each).batch(0) for each in (packed, run))
    losses = theirs.token_losses[theirs.loss_mask > 0]
    np.testing.assert_allclose(losses, ours.token_losses.reshape(-1), rtol=ROUNDING)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "pattern", "cause"),
    [
        ("crossing", Made.DOCUMENTS_MEET, "documents_apart"),
        ("shifted", Made.DOCUMENTS_LATER, "documents_end"),
        ("positions", Made.POSITIONS_ANEW_AFTER, "documents_apart"),
    ],
)
def test_faults_of_boundaries_are_found_in_the_batches(fault: str, pattern: Made, cause: str, packed: Path) -> None:
    judged = frameworks.diverged(packed, replayed(packed, *PACKED, fault=fault))
    assert (frameworks.first(judged).name, frameworks.first(judged).pattern) == ("batches", pattern)
    assert judged.blame.causes[0] == cause


@pytest.mark.slow
def test_recording_leaves_packed_samples_bitwise_as_they_were(corpus: dict[str, str]) -> None:
    given = {"script": SCRIPT, "flags": PACKED, "change": corpus, "environment": {"WITNESS": "witness.npz"}}
    runs = [frameworks.kept(frameworks.megatron, **given, **asked) for asked in ({}, {"RUN": "run"} | frameworks.EVERYTHING)]
    plain, recorded = (run.where / "witness.npz" for run in runs)
    same(plain, recorded, losses=2 * 2 * 128 * frameworks.STEPS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("says", "flags", "change"),
    [
        ("use a global batch size of 4", PACKED, {"--global-batch-size": "8"}),
        ("train with 128", PACKED, {"--seq-length": "64"}),
        ("several documents in a row", ("--no-create-attention-mask-in-dataloader",), {}),
        ("one context-parallel rank", (*PACKED, "--context-parallel-size", "2"), {}),
    ],
)
def test_another_cut_is_refused(says: str, flags: tuple[str, ...], change: dict[str, str], packed: Path) -> None:
    refused(frameworks.megatron, says, script=SCRIPT, flags=flags, change=change, **frameworks.fed_by(packed))
