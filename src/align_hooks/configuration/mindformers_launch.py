"""A command that starts MindFormers: the settings of its YAML, and the options that replace them."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from align_hooks.configuration.beside import folders_above, program_of
from align_hooks.configuration.files import TEXT, read_text
from align_hooks.configuration.mindformers import read_yaml
from align_hooks.configuration.script import ShellWord
from align_hooks.configuration.values import Configuration, ConfigurationError, Setting, SourceLocation, Value
from align_hooks.errors import shown
from align_hooks.messages import message

SCRIPT = "run_mindformer.py"
"""The script of MindFormers' repository that trains by the YAML of ``--config``."""
OF_YAML = {
    **{name: name for name in ("run_mode", "use_parallel", "seed", "load_checkpoint", "auto_trans_ckpt", "resume_training", "output_dir")},
    **{name: f"runner_config.{name}" for name in ("epochs", "batch_size", "gradient_accumulation_steps", "sink_mode")},
    "train_dataset_dir": "train_dataset.data_loader.dataset_dir",
}
"""Option of the script to the key of the YAML that it replaces."""
FROM_SCRIPT = ("config", "register_path")
"""Options whose paths start at the folder of ``run_mindformer.py``, not at the working directory (1.3 to 2.1, ``main``)."""


def read_launch(words: Sequence[ShellWord], name: str, folder: Path, at: Value | None = None) -> Configuration | None:
    """Return the configuration of a command that starts MindFormers; None of another command.

    A launcher takes the command as one quoted word: ``bash scripts/msrun_launcher.sh "run_mindformer.py --config llama.yaml" 8``.

    :param at: the folder to which the script changed before; None where it did not.
    :raises ConfigurationError: the YAML is not here.
    """
    parts = [(part, word.unknown) for word in words for part in (_split(word.text) if SCRIPT in word.text else [word.text])]
    started = next((part for part in parts if part[0].rpartition("/")[2] == SCRIPT), None)
    if started is None:
        return None
    options = dict(itertools.chain.from_iterable(map(_pairs, itertools.pairwise([*(part for part, _ in parts), ""]))))
    program, lost = program_of(*started, at, folder)
    script = next((path for path in (Path(program), folder / program) if path.is_file()), None)
    expected = {key: script.absolute().parent / options[key] for key in FROM_SCRIPT if script is not None and key in options}
    config = options.get("config", "")
    places = [expected["config"]] if "config" in expected else []
    near = (above / config for above in (Path(), *folders_above(folder)))
    file = next((path for path in (*places, *near) if config and path.is_file()), None)
    if file is None:
        where = "".join(f"; MindFormers looks for {shown(str(path))}" for path in places)
        named = f"its YAML {shown(config)} is not here{where}: name the file itself" if config else "its settings are in a YAML: name that"
        raise ConfigurationError(f"{name} starts MindFormers, and {named}")
    lacking = [(key, path) for key, path in expected.items() if not path.exists()]
    absent = [message("configuration.not_where_looked", option=f"--{key}", place=str(path)) for key, path in lacking]
    read = read_yaml(read_text(file, TEXT), shown(file.name), file.parent)
    own = {OF_YAML[key]: Value(_typed(text), SourceLocation(name, name=f"--{key}")) for key, text in options.items() if key in OF_YAML}
    if (workers := options.get("worker_num") or _of_launcher(words)).isdigit():
        own["device_num"] = Value(int(workers), SourceLocation(name, name="worker_num"))
    values, notes = {**read.values, **own}, [*absent, *read.notes]
    return replace(read, values=values, notes=notes, misplaced=absent, program=program, lost=lost)


def _of_launcher(words: Sequence[ShellWord]) -> str:
    """Return the number of processes, which ``msrun_launcher.sh`` takes behind the quoted command; empty without a quoted command."""
    pairs = itertools.pairwise([*words, ShellWord("", 0)])
    behind = [after.text for word, after in pairs if SCRIPT in word.text and " " in word.text.strip()]
    return behind[0] or "8" if behind else ""


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
