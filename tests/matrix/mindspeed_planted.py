"""Faults in operators of the stand-in, which a comparison with Megatron-LM must find: ``mindspeed_planted.py [FAULT ...]``.

A minute for each: MindSpeed-LLM trains as in a cell of ``mindspeed.py``, whose sources and variables are these. So a cell that is
*aligned* has compared what the operators compute.
"""

from __future__ import annotations

import sys
from pathlib import Path

from mindspeed import HOME, reference, train
from reference import make_reference
from training import BUILD, EVERYTHING

from align_hooks import compare
from align_hooks.comparison.verdict import ComparisonResult, Verdict

CELL = "2.3.0:qwen3"
PLANTED = Path(__file__).parent / "standin" / "planted.py"
FOUND = {
    "rms_norm": "model.layers.0.input_layernorm",
    "rotary": "model.layers.0.self_attn.query",
    "attention": "model.layers.0.self_attn.core",
}
"""A fault to the point that must be blamed first."""


def judged(fault: str, corpus: Path) -> ComparisonResult:
    """Return what is found of a fault."""
    where, megatron = HOME / f"planted_{fault}", reference(CELL.partition(":")[2], corpus)
    asked = {"REPLAY_BATCHES": megatron, "LOAD_WEIGHTS": megatron, **EVERYTHING, "RUN": where / "run"}
    train(CELL, where, corpus, asked, [PLANTED, fault])
    return compare(megatron, where / "run")


def main(faults: list[str]) -> int:
    corpus, missed = make_reference(BUILD / "reference").parent / "corpus", 0
    for fault in faults or FOUND:
        result = judged(fault, corpus)
        blamed = result.blame.suspects[0].name if result.blame and result.blame.suspects else None
        named = result.verdict is Verdict.DIVERGED and blamed == FOUND[fault]
        print(f"{fault}: {result.verdict.name.lower()}, {blamed}: {'found' if named else 'MISSED'}", flush=True)
        missed += not named
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
