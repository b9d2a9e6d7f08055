"""Files that a configuration names: which of them a run would look for in vain, and a checkpoint that it would go on from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from align_hooks.configuration.megatron import LATEST
from align_hooks.configuration.values import Configuration
from align_hooks.settings import Settings

TOKENIZER = ("tokenizer_model", "vocab_file", "merge_file")
HUB = "HuggingFaceTokenizer"
"""The tokenizer whose model may be a name at a hub."""
DATA = ("data_path", "train_dataset.data_loader.dataset_dir")


def missing(configuration: Configuration, settings: Settings, *, from_here: bool) -> Iterator[str]:
    """Files that a run of ``configuration`` would open and that do not lie here; data only where no recorded batches take their place,
    and relative paths only where the run starts ``from_here``."""
    names = TOKENIZER if _said("tokenizer_type", configuration) != HUB else ()
    for name in (*names, *(DATA if settings.replay_batches is None else ())):
        said = _said(name, configuration)
        paths = [f"{said}.bin", f"{said}.idx"] if name == "data_path" and said else [said]
        lost = next((path for path in paths if path and (from_here or Path(path).is_absolute()) and not Path(path).exists()), None)
        if lost is not None and len(said.split()) == 1:
            yield f"{configuration.values[name].where}: {lost} does not lie here"


def _said(name: str, configuration: Configuration) -> str:
    """A text that is set and known, empty for anything else, such as several data sets with their weights."""
    found = configuration.values.get(name)
    return found.value if found is not None and not found.unknown and isinstance(found.value, str) else ""


def resumes(configuration: Configuration) -> str:
    """That a run would go on from a checkpoint; empty where it would not."""
    found = configuration.values.get("load")
    latest = Path(str(found.value)) / LATEST if found is not None and isinstance(found.value, str | int) else None
    if found is None or latest is None or not latest.is_file():
        return ""
    with latest.open(encoding="utf-8", errors="replace") as file:
        iteration = file.read(20).strip()
    return f"{found.where} finds a checkpoint of iteration {iteration}: the run goes on from there"
