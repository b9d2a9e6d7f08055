"""The metadata of a card that model hubs read: the ``model-index`` of Hugging Face's model cards."""

from __future__ import annotations

from align_hooks.configuration.yaml_files import yaml_text
from align_hooks.scenarios.card import Card

METRIC = "relative-error"
TAGS = {"tags": ["align-hooks"]}
FRONT = f"---\n{yaml_text(TAGS)}"
"""How a page of ours begins."""
TASK = {"type": "text-generation", "name": "training"}


def hub_metadata(card: Card) -> str:
    """Return the metadata as YAML, a result an item with numbers, whose metrics are the errors of the stages."""
    results = []
    for name, item in card.items.items():
        stages = {id_: stage for id_, stage in item.stages.items() if stage.error is not None}
        metrics = [{"type": METRIC, "name": id_, "value": stage.error, "args": {"limit": stage.limit}} for id_, stage in stages.items()]
        compared = f"{name}: {item.candidate.framework} against {item.reference.framework}"
        if metrics:
            results.append({"task": TASK, "dataset": {"type": "align-hooks", "name": compared}, "metrics": metrics})
    return yaml_text({**TAGS, "model-index": [{"name": card.title, "results": results}]})
