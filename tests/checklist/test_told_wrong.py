"""What ``check`` once told wrong of real pairs: a difference that was none, one that it did not see, advice that did not mend it."""

from __future__ import annotations

from typing import Any

import pytest

from align_hooks.checklist.judge import Outcome
from align_hooks.checklist.result import check
from checklist.exercises import EXPERTS, LATENT, NEW, OLD, megatron, mindformers, row, to_change

ONLY_LOSS = [{"type": "MFLossMonitor"}]
MOVED = "callbacks: [{type: MFLossMonitor}, {type: TopkBiasBalanceCallback}]"
BIASED = {"m.moe_router_enable_expert_bias": True, "callbacks": ONLY_LOSS}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any], str, Outcome, str]] = {
    # style, flags, keys, the row, how it comes out, and what to change
    "ids of positions that nobody reads": (NEW, {"reset-position-ids": ""}, {}, "reset_position_ids", Outcome.HARMLESS, ""),
    "a window that both write otherwise": (NEW, {"window-size": "128,0"}, {"m.window_size": [128, 0]}, "sliding_window", Outcome.SAME, ""),
    "a window that is none": (NEW, {}, {"m.window_size": [-1, -1]}, "sliding_window", Outcome.SAME, ""),
    "another window": (
        *(NEW, {"window-size": "(127,0)"}, {"m.window_size": [128, 0]}),
        *("sliding_window", Outcome.DIFFERENT, "window_size: [127, 0]"),
    ),
    "an optimizer without bias correction": (
        *(NEW, {}, {"optimizer.type": "FusedAdamWeightDecay"}),
        "optimizer",
        Outcome.DIFFERENT,
        "optimizer.type: AdamW; optimizer.betas: [0.9, 0.95]; leave optimizer.beta1 out; leave optimizer.beta2 out",
    ),
    "a name that an older model does not read": (OLD, {}, {"m.initializer_range": 0.5}, "init_method_std", Outcome.SAME, ""),
    "a bias that nothing moves": (
        *(LATENT, {"moe-router-enable-expert-bias": ""}, BIASED),
        *("that_bias_is_moved", Outcome.DIFFERENT, MOVED),
    ),
    "a scaler of half precision that is not there": (NEW, {"hysteresis": 4}, {}, "hysteresis", Outcome.UNUSED, ""),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_told_right(case: str) -> None:
    style, flags, keys, name, outcome, change = CASES[case]
    one = row(check(megatron(style, flags), mindformers(style, keys)), name)
    assert (one.outcome, to_change(one)) == (outcome, change)


def test_a_thousand_million_layers_take_no_memory() -> None:
    checklist = check(megatron(EXPERTS, {"num-layers": 1_000_000_000}), mindformers(EXPERTS, {}))
    assert row(checklist, "num_layers").outcome is Outcome.DIFFERENT
    assert row(checklist, "layers_with_experts").outcome is Outcome.NOT_TOLD
