"""Environment variables that MindSpore and HCCL read at start, as the guide's stage 1 wants them."""

from align_hooks.ms_side.session import MsSession
from align_hooks.process.ranks import Launch
from align_hooks.settings import Settings

FRAMEWORK = ("mindspore",)
DETERMINISTIC = {"HCCL_DETERMINISTIC": "true", "ASCEND_LAUNCH_BLOCKING": "1"}
WATCHED = (
    "MS_ASCEND_CHECK_OVERFLOW_MODE",
    "MS_DEV_RUNTIME_CONF",
    "MS_ENABLE_LCCL",
    "MS_INTERNAL_DISABLE_CUSTOM_KERNEL_LIST",
    "HCCL_ALGO",
    "LCCL_DETERMINISTIC",
    "CLOSE_MATMUL_K_SHIFT",
    "ATB_MATMUL_SHUFFLE_K_ENABLE",
)
"""Other variables that a run may depend on. The record keeps their values; nothing sets them."""


def make_session(settings: Settings, launch: Launch) -> MsSession:
    """Return the session of this side."""
    return MsSession("ms", settings, launch)
