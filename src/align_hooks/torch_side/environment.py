"""Environment variables that Megatron, NCCL and HCCL read at start, as the guide's stage 1 wants them.

The guide sets PYTHONHASHSEED inside the running interpreter, where it has no effect; here the interpreter is started
again with it. ``NCCL_ALGO=Ring`` is what Megatron's own deterministic mode accepts in every supported version. MindSpeed's
``--npu-deterministic`` sets ``HCCL_DETERMINISTIC`` and ``CLOSE_MATMUL_K_SHIFT`` in the running process too. ``HCCL_ALGO`` has no value
that fits every cluster, so it is only written down.
"""

from __future__ import annotations

from align_hooks.errors import SettingsError
from align_hooks.job.ranks import Launch
from align_hooks.quantities.local_norms import POINT
from align_hooks.settings import PREFIX, Settings
from align_hooks.torch_side.session import TorchSession

AT_START = ("PYTHONHASHSEED",)
FRAMEWORK = ("torch",)

DETERMINISTIC = {
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "NCCL_ALGO": "Ring",
    "NVTE_ALLOW_NONDETERMINISTIC_ALGO": "0",
    "HCCL_DETERMINISTIC": "true",
    "CLOSE_MATMUL_K_SHIFT": "1",
    "ASCEND_LAUNCH_BLOCKING": "1",
}

RENDEZVOUS = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
"""Where a rehearsal of one process meets itself. At port 0 the system gives each its own: two that start at once share none."""

WATCHED = (
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_LAUNCH_BLOCKING",
    "NVTE_FLASH_ATTN",
    "NVTE_FUSED_ATTN",
    "NVTE_UNFUSED_ATTN",
    "NCCL_PROTO",
    "HCCL_ALGO",
    "LCCL_DETERMINISTIC",
    "ATB_MATMUL_SHUFFLE_K_ENABLE",
    "INF_NAN_MODE_ENABLE",
    "TORCHDYNAMO_DISABLE",
)
"""What else a run may depend on: written down as it is, and left as it is."""


def variables(settings: Settings) -> dict[str, str]:
    """What the settings need in the environment of the process."""
    wanted = {"PYTHONHASHSEED": str(settings.seed or 0)} if settings.seed is not None or settings.deterministic else {}
    return wanted | (DETERMINISTIC if settings.deterministic else {})


def make_session(settings: Settings, launch: Launch) -> TorchSession:
    """The session of this side."""
    if settings.choice(POINT) == "local":
        raise SettingsError(
            f"{PREFIX}LOCAL_NORMS_POINT=local: Megatron reduces inside its gradient buckets and has no such point; unset it"
        )
    return TorchSession("torch", settings, launch)
