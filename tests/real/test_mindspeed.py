"""A Megatron that was patched in MindSpeed's ways is recorded as one that was not. MindSpeed itself needs an NPU: untried."""

import json
from pathlib import Path

import numpy as np
import pytest

from align_hooks import open_run
from real import frameworks

STAND_IN = Path(__file__).parents[1] / "hooking"
STARTS = {"launcher": ("-m", "align_hooks.torch_side"), "run": ("-m", "align_hooks", "run", "--", "python")}


@pytest.mark.slow
@pytest.mark.parametrize("start", STARTS)
def test_a_patched_megatron_is_recorded_like_a_plain_one(reference: Path, start: str) -> None:
    given = {"script": frameworks.SCRIPTS / "mindspeed_pretrain.py", "environment": {"PYTHONPATH": str(STAND_IN)}}
    run = frameworks.recorded(frameworks.megatron, launcher=STARTS[start], **given)
    plain, patched = open_run(reference), open_run(run)
    assert patched.problems == []
    for ours, theirs in zip(plain.scalars(), patched.scalars(), strict=True):
        assert [ours[name] for name in ours if name != "seconds"] == [theirs[name] for name in ours if name != "seconds"]
    for step in plain.steps:
        assert all(np.array_equal(plain.gradients(step)[name], patched.gradients(step)[name]) for name in plain.gradients(step))
        assert np.array_equal(plain.batch(step).tokens, patched.batch(step).tokens)
    calls = [json.loads((run / "manifest/rank_0.json").read_text())["hooks"] for run in (reference, run)]
    assert calls[1].pop("mindspeed")["state"] == "attached"
    calls[0].pop("mindspeed")
    assert calls[1] == calls[0]
