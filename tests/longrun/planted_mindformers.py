"""``run_mindformer.py`` with one fault that a long run shows: the embedding's weight does not decay."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from mindformers.models.llama.llama import LlamaForCausalLM


def undecayed(model: Any) -> set[str]:
    """Parts of the names of weights that MindFormers leaves out of decay."""
    return {"tok_embeddings"}


if __name__ == "__main__":
    LlamaForCausalLM.no_weight_decay_keywords = undecayed
    runpy.run_path(str(Path(__file__).parents[2] / "launch" / "run_mindformer.py"), run_name="__main__")
