"""What fails on the device in a step, and shows where a callback waits for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
from types import SimpleNamespace
from align_hooks.ms_side.hooks.step import LOSS
from align_hooks.ms_side.hooks.training import LossTermReader
from align_hooks.process.ranks import Launch
from align_hooks.session.recording import Recording
from align_hooks.settings import Settings

class Loss:
    def __init__(self, error):
        self.error = error

    def asnumpy(self):
        raise self.error

for error in (KeyError("ours"), RuntimeError("of the device")):
    recording = Recording(Settings(), Launch(), writer=object())
    loop = SimpleNamespace(net_outputs={LOSS: Loss(error)})
    try:
        LossTermReader(SimpleNamespace(recording=recording, model=None)).on_train_step_end(SimpleNamespace(original_args=lambda: loop))
        print("trained on:", recording.stopped)
    except RuntimeError as raised:
        print("ended:", raised, recording.stopped)
"""
"""MindSpore needs a variable of protobuf at its import, so a process of its own."""


@pytest.mark.slow
def test_an_error_of_the_device_ends_training_and_one_of_ours_does_not(tmp_path: Path) -> None:
    environment = os.environ | {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    ours, device = done.stdout.splitlines()[-2:]
    assert ours.startswith("trained on: stopped recording") and device == "ended: of the device None"
