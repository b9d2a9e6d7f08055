"""Files that a configuration names: those that are missing, and a checkpoint from which a run would go on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from align_hooks.configuration.megatron import LATEST
from align_hooks.configuration.values import Configuration
from align_hooks.doctor.belongs import known
from align_hooks.settings import Settings

TOKENIZER = ("tokenizer_model", "vocab_file", "merge_file")
HUB = "HuggingFaceTokenizer"
"""The tokenizer whose model may be a name at a hub instead of a file."""
DATA = ("data_path", "train_dataset.data_loader.dataset_dir")


def missing(configuration: Configuration, settings: Settings, *, from_here: bool) -> Iterator[str]:
    """Files that a run of ``configuration`` would open and that are missing, a line each. Data files count only where recorded batches do
    not replace them, relative paths only where the run starts ``from_here``."""
    names = TOKENIZER if known(configuration, "tokenizer_type") != HUB else ()
    for name in (*names, *(DATA if settings.replay_batches is None else ())):
        value = known(configuration, name)
        if not isinstance(value, str) or len(value.split()) != 1:  # nothing, or several data sets with their weights
            continue
        paths = [f"{value}.bin", f"{value}.idx"] if name == "data_path" else [value]
        lost = next((path for path in paths if (from_here or Path(path).is_absolute()) and not Path(path).exists()), None)
        if lost is not None:
            yield f"{configuration.values[name].where}: {lost} does not lie here"


def resumes(configuration: Configuration) -> str:
    """A note that a run would go on from a checkpoint; empty where it would not."""
    load = configuration.values.get("load")
    latest = Path(str(load.value)) / LATEST if load is not None and isinstance(load.value, str | int) else None
    if load is None or latest is None or not latest.is_file():
        return ""
    with latest.open(encoding="utf-8", errors="replace") as file:
        iteration = file.read(20).strip()
    return f"{load.where} finds a checkpoint of iteration {iteration}: the run goes on from there"
