"""Positions and masks that start anew behind the end of a document, which MindFormers' newer models take with ``use_eod_reset``."""

from pathlib import Path

import numpy as np
import pytest

from align_hooks import open_run
from real import frameworks
from real.test_refusals import refused

pytestmark = pytest.mark.slow
FLAGS = ("--reset-position-ids", "--reset-attention-mask")
SCRIPT = frameworks.SCRIPTS / "lines_are_documents.py"


@pytest.fixture(scope="module")
def reset(real_corpus: Path) -> Path:
    """Megatron on rows of many documents each."""
    return frameworks.recorded(frameworks.megatron, family="qwen3", script=SCRIPT, flags=FLAGS)


def test_they_are_recorded(reset: Path) -> None:
    batch = open_run(reset).batch(0)
    assert not batch.causal
    assert batch.position_ids is not None
    starts = batch.position_ids == 0
    assert starts.sum(axis=1).min() > 1
    assert np.array_equal(starts[:, 1:], batch.tokens[:, :-1] == 10)


@pytest.mark.parametrize("family", ["qwen3", frameworks.LLAMA])
def test_a_model_that_makes_its_own_refuses_them(family: str, reset: Path) -> None:
    refused(frameworks.mindformers, "use_eod_reset", family=family, REPLAY_BATCHES=reset)


def test_a_pair_is_aligned_with_use_eod_reset(reset: Path) -> None:
    change = {"model.model_config.use_eod_reset": True}
    candidate = frameworks.recorded(frameworks.mindformers, family="qwen3", change=change, **frameworks.fed_by(reset))
    frameworks.aligned(reset, candidate)
    ours, theirs = (open_run(run).batch(0) for run in (reset, candidate))
    assert np.array_equal(ours.position_ids, theirs.position_ids)
    assert np.array_equal(ours.attention_mask, theirs.attention_mask)
    assert not theirs.causal
