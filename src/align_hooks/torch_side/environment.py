"""Environment variables that Megatron, NCCL and HCCL read at start, as the guide's stage 1 wants them."""

from align_hooks.errors import SettingsError
from align_hooks.process.ranks import Launch
from align_hooks.quantities.local_norms import POINT
from align_hooks.settings import PREFIX, Settings
from align_hooks.torch_side.session import TorchSession

FRAMEWORK = ("torch",)
DETERMINISTIC = {
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "NCCL_ALGO": "Ring",  # Megatron's own deterministic mode accepts this value in every supported version
    "NVTE_ALLOW_NONDETERMINISTIC_ALGO": "0",
    "HCCL_DETERMINISTIC": "true",  # like the next one also set by MindSpeed's --npu-deterministic, in the running process
    "CLOSE_MATMUL_K_SHIFT": "1",
    "ASCEND_LAUNCH_BLOCKING": "1",
}
RENDEZVOUS = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
"""The address at which a rehearsal of one process meets itself. Port 0 gives each process a free port of its own."""
WATCHED = (
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_LAUNCH_BLOCKING",
    "NVTE_FLASH_ATTN",
    "NVTE_FUSED_ATTN",
    "NVTE_UNFUSED_ATTN",
    "NCCL_PROTO",
    "HCCL_ALGO",  # no value fits every cluster
    "LCCL_DETERMINISTIC",
    "ATB_MATMUL_SHUFFLE_K_ENABLE",
    "INF_NAN_MODE_ENABLE",
    "TORCHDYNAMO_DISABLE",
)
"""Other variables that a run may depend on. Records keep their values; no hook sets them."""


def make_session(settings: Settings, launch: Launch) -> TorchSession:
    """Return the session of this side."""
    if settings.choice(POINT) == "local":
        raise SettingsError(
            f"{PREFIX}LOCAL_NORMS_POINT=local: Megatron reduces inside its gradient buckets and has no such point; unset it"
        )
    return TorchSession("torch", settings, launch)
