"""Environment variables that MindSpore and HCCL read at start, as the guide's stage 1 wants them."""

from pathlib import Path

from align_hooks.data_file import sections
from align_hooks.ms_side.session import MsSession
from align_hooks.process.ranks import Launch
from align_hooks.settings import Settings

FRAMEWORK = ("mindspore",)
_TABLES = sections(Path(__file__).with_name("environment.txt"))
DETERMINISTIC = dict(line.split(" ", 1) for line in _TABLES["deterministic"])
WATCHED = tuple(_TABLES["watched"])
"""Other variables that a run may depend on. The record keeps their values; nothing sets them."""


def make_session(settings: Settings, launch: Launch) -> MsSession:
    """Return the session of this side."""
    return MsSession("ms", settings, launch)
