"""Environment variables that Megatron, NCCL and HCCL read at start, as the guide's stage 1 wants them."""

from pathlib import Path

from align_hooks.data_file import sections
from align_hooks.errors import SettingsError
from align_hooks.process.ranks import Launch
from align_hooks.quantities.local_norms import POINT
from align_hooks.settings import PREFIX, Settings
from align_hooks.torch_side.session import TorchSession

FRAMEWORK = ("torch",)
_TABLES = sections(Path(__file__).with_name("environment.txt"))
DETERMINISTIC = dict(line.split(" ", 1) for line in _TABLES["deterministic"])
WATCHED = tuple(_TABLES["watched"])
"""Other variables that a run may depend on. Records keep their values; no hook sets them."""
RENDEZVOUS = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
"""The address at which a rehearsal of one process meets itself. Port 0 gives each process a free port of its own."""


def make_session(settings: Settings, launch: Launch) -> TorchSession:
    """Return the session of this side."""
    if settings.choice(POINT) == "local":
        raise SettingsError(
            f"{PREFIX}LOCAL_NORMS_POINT=local: Megatron reduces inside its gradient buckets and has no such point; unset it"
        )
    return TorchSession("torch", settings, launch)
