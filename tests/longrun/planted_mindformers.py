"""``run_mindformer.py`` with one fault that a long run shows: the embedding's weight does not decay."""

import runpy
from pathlib import Path
from typing import Any

from mindformers.trainer import base_trainer

grouped = base_trainer.get_optimizer_grouped_parameters


def undecayed(*args: Any, **kwargs: Any) -> list[dict[str, Any]]:
    """MindFormers' groups of parameters, the embedding among those without decay."""
    decaying, others, *order = grouped(*args, **kwargs)
    assert decaying["weight_decay"] > others["weight_decay"] == 0
    (embedding,) = (parameter for parameter in decaying["params"] if "tok_embeddings" in parameter.name)
    kept = [parameter for parameter in decaying["params"] if parameter is not embedding]
    return [decaying | {"params": kept}, others | {"params": [*others["params"], embedding]}, *order]


if __name__ == "__main__":
    base_trainer.get_optimizer_grouped_parameters = undecayed
    runpy.run_path(str(Path(__file__).parents[2] / "launch" / "run_mindformer.py"), run_name="__main__")
