"""launch/pretrain_gpt.py that hangs in the second micro-batch of step 2, and says so."""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "launch"))

import pretrain_gpt as script

calls = []


def forward_step(data_iterator, model):
    calls.append(1)
    if len(calls) == 6:
        sys.__stdout__.write("hangs\n")
        sys.__stdout__.flush()
        while True:
            time.sleep(1000)
    return script.forward_step(data_iterator, model)


if __name__ == "__main__":
    script.datasets_provider.is_distributed = True
    arguments = script.parse_and_validate_args()
    container = script.pretrain_cfg_container_from_args(arguments, script.gpt_config_from_args(arguments))
    script.pretrain(container, script.datasets_provider, script.ModelType.encoder_or_decoder, forward_step)
