"""Environment variables that MindSpore and HCCL read at start, as the guide's stage 1 wants them."""

from __future__ import annotations

from align_hooks.launch import Launch
from align_hooks.ms_side.session import MsSession
from align_hooks.replay.batches import Replay
from align_hooks.replay.weights import open_weights
from align_hooks.settings import Settings

AT_START = ("PYTHONHASHSEED",)
FRAMEWORK = ("mindspore",)

DETERMINISTIC = {"HCCL_DETERMINISTIC": "true", "ASCEND_LAUNCH_BLOCKING": "1"}


def variables(settings: Settings) -> dict[str, str]:
    """What the settings need in the environment of the process."""
    wanted = {"PYTHONHASHSEED": str(settings.seed or 0)} if settings.seed is not None or settings.deterministic else {}
    return wanted | (DETERMINISTIC if settings.deterministic else {})


def make_session(settings: Settings, launch: Launch) -> MsSession:
    """The session of this side; sources are opened now, because one that is not there should cost a second, not a job."""
    session = MsSession("ms", settings, launch)
    if settings.replay_batches is not None:
        session.replay = Replay(settings.replay_batches)
        session.replay.run  # noqa: B018
    if settings.load_weights is not None:
        open_weights(settings.load_weights)
    return session
