"""What the processes ran in: versions, deterministic switches as they are on the built objects, overflow mode, graph kernels."""

from __future__ import annotations

from typing import Any

from align_hooks.checklist.readings import environment as read
from align_hooks.checklist.readings.environment import PAIRS, variable
from align_hooks.checklist.row import Advice, Effect, Group, Row, Says, boolean, numeric
from align_hooks.messages import Message, message, terms

GROUP = Group.ENVIRONMENT


def switched(name: str, advice: Message, keeps: Any, sources: tuple[str, ...]) -> Row:
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
        message("row.framework"),
        GROUP,
        Says(read=lambda c: read.version(c, "megatron-core")),
        Says(read=lambda c: read.version(c, "mindformers")),
        effect=Effect.NOTHING,
        by_hand=message("by_hand.record_versions"),
        sources=("CheckList: other: Version Check",),
    ),
    Row(
        message("row.mindspore_beside_mindformers"),
        GROUP,
        Says(),
        Says(read=read.paired),
        effect=Effect.NOTHING,
        by_hand=message(
            "by_hand.versions",
            pairs=terms(message("by_hand.version_pair", mindformers=one, mindspore=other) for one, other in PAIRS.items()),
        ),
        advice=Advice(message("advice.released_with"), lambda pair: pair.fits),
        sources=("CheckList: other: Version Check",),
    ),
    Row(
        "CANN",
        GROUP,
        Says(),
        Says(),
        effect=Effect.NOTHING,
        by_hand=message("by_hand.cann"),
        sources=("CheckList: other: Version Check",),
    ),
    Row(
        message("row.difference_from_the_open_source_model"),
        GROUP,
        Says(),
        Says(),
        effect=Effect.NOTHING,
        by_hand=message("by_hand.shipped_folder"),
        sources=("CheckList: other: Differences with Open Source",),
    ),
    Row(
        message("row.deterministic_algorithms"),
        GROUP,
        Says(("deterministic_mode",), read=read.deterministic_megatron),
        Says(("train_precision_sync", "context.deterministic"), read=read.deterministic_mindformers),
        effect=Effect.ROUNDING,
        advice=Advice(message("advice.deterministic"), lambda on: on in (True, "ON")),
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
        by_hand=message("by_hand.overflow_mode"),
        advice=Advice(message("advice.infnan"), lambda mode: mode in (None, "INFNAN_MODE")),
        sources=("CheckList: other: Overflow Detection",),
    ),
    Row(
        "enable_graph_kernel",
        GROUP,
        Says(),
        Says(("context.enable_graph_kernel", "context.graph_kernel_flags"), None, note=message("note.ignored_by_1_9")),
        form=boolean,
        effect=Effect.ROUNDING,
        advice=Advice(message("advice.off"), lambda on: not on),
        sources=("CheckList: other: Graph Operator Fusion",),
    ),
    Row(
        "jit_level",
        GROUP,
        Says(),
        Says(("context.jit_config.jit_level", "context.jit_level"), None),
        effect=Effect.ROUNDING,
        advice=Advice(message("advice.jit_level"), lambda level: level in (None, "O0")),
        sources=("CheckList: other: Graph Operator Fusion",),
    ),
    switched(
        "HCCL_DETERMINISTIC",
        message("advice.true_on_npus"),
        lambda on: on is None or str(on).lower() in ("true", "strict"),
        ("set-up: stage 1: HCCL_DETERMINISTIC",),
    ),
    switched(
        "ASCEND_LAUNCH_BLOCKING",
        message("advice.one_on_npus"),
        lambda on: on is None or str(on) == "1",
        ("set-up: stage 1: ASCEND_LAUNCH_BLOCKING",),
    ),
    Row(
        "NCCL_ALGO",
        GROUP,
        Says(read=variable("NCCL_ALGO")),
        Says(),
        effect=Effect.ROUNDING,
        advice=Advice(message("advice.ring"), lambda kind: kind in (None, "Ring", "^NVLS")),
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
