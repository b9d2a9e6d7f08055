"""``pretrain_gpt.py`` whose ``forward_step`` embeds the tokens itself and hands the model ``decoder_input``."""

import runpy
from functools import partial
from pathlib import Path
from typing import Any

import megatron.training
from megatron.core.utils import unwrap_model

PATH = Path(__file__).parents[3] / "launch" / "pretrain_gpt.py"
ITS = runpy.run_path(str(PATH))


def forward_step(data_iterator: Any, model: Any) -> Any:
    """One micro-batch, embedded here and a thousandth larger than the model itself would."""
    batch = ITS["get_batch"](data_iterator)
    embedded = unwrap_model(model).embedding(input_ids=batch["tokens"], position_ids=batch["position_ids"]) * 1.001
    given = {name: batch[name] for name in ("labels", "loss_mask")}
    output = model(batch["tokens"], batch["position_ids"], batch.get("attention_mask"), decoder_input=embedded, **given)
    return output, partial(ITS["loss_function"], batch["loss_mask"])


if __name__ == "__main__":
    original = megatron.training.pretrain
    megatron.training.pretrain = lambda container, provider, kind, step: original(container, provider, kind, forward_step)
    runpy.run_path(str(PATH), run_name="__main__")
