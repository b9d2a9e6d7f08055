"""``pretrain_gpt.py`` with one fault that a long run, or many batches without updates, show, named by the variable PLANTED."""

import os
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "zoo"))

from megatron.core.models.common.embeddings.language_model_embedding import LanguageModelEmbedding
from megatron.core.optimizer import ParamKey
from megatron.training import get_args, training
from planted_megatron import PLANTS, around, plant

BAD = 400
"""The step whose batch is spoilt."""
RARE, OTHER = ord("Z"), ord("$")
"""An id that few batches hold, and the one that is taken for it."""


@plant(around, training, "get_standard_config_overrides")
def embedding_undecayed(original: Any, *args: Any, **kwargs: Any) -> Any:
    """The embedding's weight does not decay."""
    return {**original(*args, **kwargs), ParamKey(name="*word_embeddings.weight"): {"wd_mult": 0.0}}


def spoilt(iterator: Any) -> Iterator[dict[str, Any]]:
    """The same batches, their labels backwards."""
    while True:
        batch = next(iterator)
        yield {**batch, "labels": batch["labels"].flip(-1)}


@plant(around, training, "train_step")
def bad_batch(original: Any, forward_step: Any, *args: Any, **kwargs: Any) -> Any:
    """One step trains on labels that have nothing to do with their tokens."""

    def forward(iterator: Any, model: Any) -> Any:
        return forward_step(spoilt(iterator) if get_args().curr_iteration == BAD else iterator, model)

    return original(forward, *args, **kwargs)


@plant(around, LanguageModelEmbedding, "forward")
def rare_token(original: Any, embedding: Any, input_ids: Any, *args: Any, **kwargs: Any) -> Any:
    """One id is looked up in another's row, as where two vocabularies differ in it."""
    return original(embedding, input_ids.masked_fill(input_ids == RARE, OTHER), *args, **kwargs)


if __name__ == "__main__":
    PLANTS[os.environ["PLANTED"]]()
    runpy.run_path(str(Path(__file__).parents[2] / "launch" / "pretrain_gpt.py"), run_name="__main__")
