"""What the processes ran in: versions, deterministic switches as they are on the built objects, overflow mode, graph kernels."""

from __future__ import annotations

from functools import partial

from align_hooks.checklist.readings import environment as read
from align_hooks.checklist.readings.environment import PAIRS, variable
from align_hooks.checklist.row import CheckRow, Effect, Keeps, Recommendation, RowGroup, Says
from align_hooks.messages import Argument, Message, message, terms

row = partial(CheckRow, group=RowGroup.ENVIRONMENT)
rounding, harmless = partial(row, effect=Effect.ROUNDING), partial(row, effect=Effect.NOTHING)
"""Rows whose differences change the rounding only, or nothing."""


def switched(name: str, advice: Message, keeps: Keeps) -> CheckRow:
    """Return the row of a variable that either side may set and that changes only the order of computation."""
    either = Says(read=variable(name))
    return rounding(name, either, either, form=None, advice=Recommendation(advice, keeps))


def megatron_variable(name: str, advice: Argument, *kept: str | None) -> CheckRow:
    """Return the row of a variable on which a GPU's bitwise repeatability depends."""
    keeps = Recommendation(advice, lambda value: value in kept)
    return rounding(name, Says(read=variable(name)), Says(), form=None, advice=keeps)


ENVIRONMENT = (
    harmless(
        message("row.framework"),
        Says(read=read.version("megatron-core")),
        Says(read=read.version("mindformers")),
        form=None,
        by_hand=message("by_hand.record_versions"),
    ),
    harmless(
        message("row.mindspore_beside_mindformers"),
        Says(),
        Says(read=read.paired),
        by_hand=message(
            "by_hand.versions",
            pairs=terms(message("by_hand.version_pair", mindformers=name, mindspore=released) for name, released in PAIRS.items()),
        ),
        advice=Recommendation(message("advice.released_with"), lambda pair: pair.fits),
    ),
    harmless("CANN", Says(), Says(), by_hand=message("by_hand.cann")),
    harmless(message("row.difference_from_the_open_source_model"), Says(), Says(), by_hand=message("by_hand.shipped_folder")),
    rounding(
        message("row.deterministic_algorithms"),
        Says(("deterministic_mode",), read=read.deterministic_megatron),
        Says(("train_precision_sync", "context.deterministic"), read=read.deterministic_mindformers),
        advice=Recommendation(message("advice.deterministic"), lambda on: on in (True, "ON")),
    ),
    harmless("seed", Says(("seed",), 1234), Says(("seed",), 1)),
    harmless(
        "MS_ASCEND_CHECK_OVERFLOW_MODE",
        Says(),
        Says(read=variable("MS_ASCEND_CHECK_OVERFLOW_MODE")),
        by_hand=message("by_hand.overflow_mode"),
        advice=Recommendation(message("advice.infnan"), lambda mode: mode in (None, "INFNAN_MODE")),
    ),
    rounding(
        "enable_graph_kernel",
        Says(),
        Says(("context.enable_graph_kernel", "context.graph_kernel_flags"), None, note=message("note.ignored_by_1_9")),
        advice=Recommendation(message("advice.off"), lambda on: not on),
    ),
    rounding(
        "jit_level",
        Says(),
        Says(("context.jit_config.jit_level", "context.jit_level"), None),
        advice=Recommendation(message("advice.jit_level"), lambda level: level in (None, "O0")),
    ),
    switched("HCCL_DETERMINISTIC", message("advice.true_on_npus"), lambda on: on is None or str(on).lower() in ("true", "strict")),
    switched("ASCEND_LAUNCH_BLOCKING", message("advice.one_on_npus"), lambda on: on is None or str(on) == "1"),
    megatron_variable("NCCL_ALGO", message("advice.ring"), None, "Ring", "^NVLS"),
    megatron_variable("CUBLAS_WORKSPACE_CONFIG", ":4096:8", None, ":4096:8", ":16:8"),
    megatron_variable("NVTE_ALLOW_NONDETERMINISTIC_ALGO", "0", None, "0"),
)
