"""launch/pretrain_gpt.py of which one rank dies, in its first starts: ``DIES`` has the rank, the moment and how many starts.

``start`` is before the model is built, ``raise`` in the last micro-batch of step 2, ``kill`` the same by SIGKILL, ``between`` by SIGKILL
once step 1 has been made, while it may be written still, and ``end`` after the last step.
"""

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "launch"))

import pretrain_gpt as script
import torch

RANK, MOMENT, STARTS = os.environ["DIES"].split()
DYING = os.environ["RANK"] == RANK and int(os.environ["TORCHELASTIC_RESTART_COUNT"]) < int(STARTS)
MICRO_BATCHES = int(os.environ.get("MICRO_BATCHES", "2"))
calls = []


def forward_step(data_iterator, model):
    calls.append(1)
    step, micro_batch = divmod(len(calls) - 1, MICRO_BATCHES)
    step += script.get_args().iteration
    if DYING and step == 2 and MOMENT not in ("start", "end") and micro_batch == (0 if MOMENT == "between" else MICRO_BATCHES - 1):
        if MOMENT == "raise":
            raise RuntimeError("dies as planned")
        os.kill(os.getpid(), signal.SIGKILL)
    return script.forward_step(data_iterator, model)


if __name__ == "__main__":
    script.datasets_provider.is_distributed = True
    arguments = script.parse_and_validate_args()
    if DYING and MOMENT == "start":
        os.kill(os.getpid(), signal.SIGKILL)
    container = script.pretrain_cfg_container_from_args(arguments, script.gpt_config_from_args(arguments))
    script.pretrain(container, script.datasets_provider, script.ModelType.encoder_or_decoder, forward_step)
    if DYING and MOMENT == "end":
        os.kill(os.getpid(), signal.SIGKILL)
    torch.distributed.destroy_process_group()  # else Gloo's threads may abort the interpreter as it ends
