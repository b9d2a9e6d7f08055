"""What the processes ran in: versions, deterministic switches as they are on the built objects, overflow mode, graph kernels."""

from __future__ import annotations

from typing import Any

from align_hooks.checklist.readings import environment as read
from align_hooks.checklist.readings.environment import PAIRS, variable
from align_hooks.checklist.row import Advice, Effect, Row, Says, boolean, numeric

GROUP = "environment"


def switched(name: str, advice: str, keeps: Any, sources: tuple[str, ...]) -> Row:
    """A read.variable that either side may set; it changes nothing that is computed but its order."""
    return Row(
        name,
        GROUP,
        Says(read=variable(name)),
        Says(read=variable(name)),
        effect=Effect.ROUNDING,
        advice=Advice(advice, keeps),
        sources=sources,
    )


ENVIRONMENT = (
    Row(
        "framework",
        GROUP,
        Says(read=lambda c: read.version(c, "megatron-core")),
        Says(read=lambda c: read.version(c, "mindformers")),
        effect=Effect.NOTHING,
        by_hand="record a run: its run.json holds the versions",
        sources=("CheckList: other: Version Check",),
    ),
    Row(
        "MindSpore beside MindFormers",
        GROUP,
        Says(),
        Says(read=read.paired),
        effect=Effect.NOTHING,
        by_hand="MindFormers goes with one MindSpore and one CANN: " + ", ".join(f"{one} with {other}" for one, other in PAIRS.items()),
        advice=Advice("the MindSpore that this MindFormers was released with", lambda pair: not str(pair).startswith("not")),
        sources=("CheckList: other: Version Check",),
    ),
    Row(
        "CANN",
        GROUP,
        Says(),
        Says(),
        effect=Effect.NOTHING,
        by_hand="on Ascend: cat /usr/local/Ascend/ascend-toolkit/latest/version.cfg, and compare with MindSpore's release notes",
        sources=("CheckList: other: Version Check",),
    ),
    Row(
        "difference from the open-source model",
        GROUP,
        Says(),
        Says(),
        effect=Effect.NOTHING,
        by_hand="of a model built on one that MindFormers ships: diff its folder against the shipped one",
        sources=("CheckList: other: Differences with Open Source",),
    ),
    Row(
        "deterministic algorithms",
        GROUP,
        Says(("deterministic_mode",), read=read.deterministic_megatron),
        Says(("train_precision_sync", "context.deterministic"), read=read.deterministic_mindformers),
        effect=Effect.ROUNDING,
        advice=Advice("on while the runs are compared (ALIGN_HOOKS_DETERMINISTIC=1)", lambda on: on in (True, "ON")),
        sources=("set-up: acceptance: determinism",),
    ),
    Row(
        "seed",
        GROUP,
        Says(("seed",), 1234),
        Says(("seed",), 1),
        form=numeric,
        effect=Effect.NOTHING,
        sources=("set-up: stage 1: seed",),
    ),
    Row(
        "MS_ASCEND_CHECK_OVERFLOW_MODE",
        GROUP,
        Says(),
        Says(read=variable("MS_ASCEND_CHECK_OVERFLOW_MODE")),
        effect=Effect.NOTHING,
        by_hand="on Ascend: export MS_ASCEND_CHECK_OVERFLOW_MODE=INFNAN_MODE, which is what PyTorch does",
        advice=Advice("INFNAN_MODE, which is what PyTorch does", lambda mode: mode in (None, "INFNAN_MODE")),
        sources=("CheckList: other: Overflow Detection",),
    ),
    Row(
        "enable_graph_kernel",
        GROUP,
        Says(),
        Says(("context.enable_graph_kernel", "context.graph_kernel_flags"), None, note="MindFormers 1.9 ignores it"),
        form=boolean,
        effect=Effect.ROUNDING,
        advice=Advice("off", lambda on: not on),
        sources=("CheckList: other: Graph Operator Fusion",),
    ),
    Row(
        "jit_level",
        GROUP,
        Says(),
        Says(("context.jit_config.jit_level", "context.jit_level"), None),
        effect=Effect.ROUNDING,
        advice=Advice("O0: higher levels fuse operators", lambda level: level in (None, "O0")),
        sources=("CheckList: other: Graph Operator Fusion",),
    ),
    switched(
        "HCCL_DETERMINISTIC",
        "true on NPUs",
        lambda on: on is None or str(on).lower() in ("true", "strict"),
        ("set-up: stage 1: HCCL_DETERMINISTIC",),
    ),
    switched("ASCEND_LAUNCH_BLOCKING", "1 on NPUs", lambda on: on is None or str(on) == "1", ("set-up: stage 1: ASCEND_LAUNCH_BLOCKING",)),
    Row(
        "NCCL_ALGO",
        GROUP,
        Says(read=variable("NCCL_ALGO")),
        Says(),
        effect=Effect.ROUNDING,
        advice=Advice("Ring, which is what Megatron's deterministic mode takes", lambda kind: kind in (None, "Ring", "^NVLS")),
        sources=("set-up: acceptance: determinism",),
    ),
    Row(
        "CUBLAS_WORKSPACE_CONFIG",
        GROUP,
        Says(read=variable("CUBLAS_WORKSPACE_CONFIG")),
        Says(),
        effect=Effect.ROUNDING,
        advice=Advice(":4096:8", lambda size: size in (None, ":4096:8", ":16:8")),
        sources=("set-up: acceptance: determinism",),
    ),
    Row(
        "NVTE_ALLOW_NONDETERMINISTIC_ALGO",
        GROUP,
        Says(read=variable("NVTE_ALLOW_NONDETERMINISTIC_ALGO")),
        Says(),
        effect=Effect.ROUNDING,
        advice=Advice("0", lambda on: on in (None, "0")),
        sources=("set-up: acceptance: determinism",),
    ),
)
