"""A command that starts MindFormers: the YAML that it names, under what it sets itself."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from align_hooks.configuration.files import TEXT, read_text
from align_hooks.configuration.mindformers import read_yaml
from align_hooks.configuration.values import Configuration, ConfigurationError, Place, Setting, Value
from align_hooks.errors import shown

SCRIPT = "run_mindformer.py"
"""The script of MindFormers' repository that trains by the YAML of ``--config``."""
OF_YAML = {
    **{name: name for name in ("run_mode", "use_parallel", "seed", "load_checkpoint", "auto_trans_ckpt", "resume_training", "output_dir")},
    **{name: f"runner_config.{name}" for name in ("epochs", "batch_size", "gradient_accumulation_steps", "sink_mode")},
    "train_dataset_dir": "train_dataset.data_loader.dataset_dir",
}
"""Option of that script to the key of the YAML in whose place it counts."""
ABOVE = 3
"""Folders above a script in which the YAML may lie: scripts stand in folders of a repository, and name files from its root."""


def read_launch(words: Sequence[str], name: str, folder: Path) -> Configuration | None:
    """Return the configuration of a command that starts MindFormers; None of another command.

    A launcher takes the command as one quoted word: ``bash scripts/msrun_launcher.sh "run_mindformer.py --config llama.yaml" 8``.

    :raises ConfigurationError: the YAML is not here.
    """
    parts = [part for word in words for part in (_split(word) if SCRIPT in word else [word])]
    if not any(part.rpartition("/")[2] == SCRIPT for part in parts):
        return None
    options = dict(itertools.chain.from_iterable(map(_pairs, itertools.pairwise([*parts, ""]))))
    config = options.get("config", "")
    file = next((above / config for above in _folders(folder) if config and (above / config).is_file()), None)
    if file is None:
        named = f"its YAML {shown(config)} is not here: name the file itself" if config else "its settings are in a YAML: name that"
        raise ConfigurationError(f"{name} starts MindFormers, and {named}")
    read = read_yaml(read_text(file, TEXT), shown(file.name), file.parent)
    told = {OF_YAML[key]: Value(_typed(text), Place(name, name=f"--{key}")) for key, text in options.items() if key in OF_YAML}
    return replace(read, values={**read.values, **told})


def _typed(text: str) -> Setting:
    """Return the value of an option as the script's parser holds it."""
    return int(text) if text.isdigit() else {"true": True, "false": False}.get(text.lower(), text)


def _split(word: str) -> list[str]:
    try:
        return shlex.split(word)
    except ValueError:
        return word.split()


def _pairs(pair: tuple[str, str]) -> list[tuple[str, str]]:
    """Return an option with its value, as ``--name value`` or ``--name=value``."""
    word, after = pair
    if not word.startswith("--"):
        return []
    option, mark, value = word[2:].partition("=")
    return [(option, value if mark else after)]


def _folders(folder: Path) -> list[Path]:
    resolved = folder.resolve()
    return [Path(), resolved, *list(resolved.parents)[:ABOVE]]
