"""MindFormers' YAML files, over those that ``base_config`` names and the ``config.json`` of ``pretrained_model_dir``.

A command that starts MindFormers sets what its YAML sets, and options replace settings.
"""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from align_hooks.configuration.beside import folders_above, program_of
from align_hooks.configuration.files import read_text
from align_hooks.configuration.pynative import OF_FSDP, PYNATIVE, as_graph, is_pynative
from align_hooks.configuration.script import ShellWord
from align_hooks.configuration.values import MINDFORMERS, Configuration, ConfigurationError, IncompleteSide, Setting, SourceLocation, Value
from align_hooks.configuration.yaml_files import leaves
from align_hooks.errors import shown
from align_hooks.messages import Message, message
from align_hooks.regular import whole_number

MOST_BASES = 8
"""Largest depth of ``base_config``."""
MODEL = "model.model_config."
SECTIONS = ("model.", "runner_config.", "trainer.", "optimizer.", "model_config.")
COPIES = ("train_dataset_task.dataset_config.", "eval_dataset_task.dataset_config.")
"""Sections that MindFormers overwrites with ``train_dataset`` and ``eval_dataset`` (1.9, ``trainer/base_trainer.py:1038``)."""
HUGGING_FACE = ("pretrained_model_dir", "model.pretrained_model_dir", "model.model_config.pretrained_model_dir")
SCRIPT = "run_mindformer.py"
"""The script of MindFormers' repository that trains by the YAML of ``--config``."""
OF_YAML = {
    **{name: name for name in ("run_mode", "use_parallel", "seed", "load_checkpoint", "auto_trans_ckpt", "resume_training", "output_dir")},
    **{name: f"runner_config.{name}" for name in ("epochs", "batch_size", "gradient_accumulation_steps", "sink_mode")},
    "train_dataset_dir": "train_dataset.data_loader.dataset_dir",
}
"""Option of :data:`SCRIPT` to the key of the YAML that it replaces."""
FROM_SCRIPT = ("config", "register_path")
"""Options whose paths start at the folder of ``run_mindformer.py``, not at the working directory (1.3 to 2.1, ``main``)."""


def read_yaml(text: str, name: str, folder: Path) -> Configuration:
    """Read a YAML file, the files of its ``base_config``, and the ``config.json`` in its ``pretrained_model_dir``, if that is here.

    :raises ConfigurationError: a file is no YAML, holds a tag or a key twice, or is no configuration of the trainer of GRAPH_MODE.
    """
    values = _with_bases(text, name, folder, (), {})
    if any(key.startswith("training.") for key in values) and any(key.startswith(OF_FSDP) for key in values):
        raise ConfigurationError(
            f"{name} has the sections of MindSpeed-LLM's FSDP2, which are not read yet; name a YAML of MindFormers, or a run"
        )
    if is_pynative(values):
        return Configuration(MINDFORMERS, name, as_graph(values), trainer=PYNATIVE)
    if not any(key.startswith(SECTIONS) for key in values):
        raise ConfigurationError(f"{name} is no MindFormers configuration: it has no section model, runner_config or optimizer")
    values = {key: value for key, value in values.items() if not key.startswith(COPIES)}
    notes, unread = _hugging_face(values, folder)
    return Configuration(MINDFORMERS, name, values, notes=notes, unread=unread)


def _with_bases(text: str, name: str, folder: Path, above: tuple[Path, ...], known: dict[Path, dict[str, Value]]) -> dict[str, Value]:
    """Return a file's values, with those of its base files as defaults; ``known`` has the files that were read already."""
    values = leaves(text, name)
    named = values.pop("base_config", None)
    bases = [] if named is None else named.value if isinstance(named.value, list) else [named.value]
    for base in reversed(bases):
        file = (folder / str(base)).resolve()
        if file in above or len(above) > MOST_BASES:
            raise ConfigurationError(f"{name} stands over base_config {shown(str(file))}, which stands over it; take one out")
        try:
            if file not in known:
                known[file] = _with_bases(read_text(file), shown(file.name), file.parent, (*above, file), known)
            below = known[file]
        except ConfigurationError as error:
            raise ConfigurationError(
                f"{name} stands over base_config {shown(str(file))}, which cannot be read: {error}; copy it beside the YAML"
            ) from None
        for key, value in below.items():
            values.setdefault(key, value)
    return values


def _hugging_face(values: dict[str, Value], folder: Path) -> tuple[list[Message], str]:
    """Add the values of the Hugging Face configuration as defaults; return notes, and the file's path where it is not here."""
    folder_value = next((values[key] for key in HUGGING_FACE if key in values and values[key].value), None)
    if folder_value is None:
        return [], ""
    file = folder / str(folder_value.value) / "config.json"
    if not file.is_file():
        return [IncompleteSide("configuration.no_model_file", {"place": folder_value.where, "file": str(file)})], str(file)
    try:
        facts = json.loads(read_text(file), parse_int=whole_number)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{shown(str(file))} cannot be read as JSON: {str(error).splitlines()[0]}") from None
    if not isinstance(facts, dict):
        raise ConfigurationError(f"{shown(str(file))} is no Hugging Face configuration: it holds no table")
    own = {name.removeprefix(MODEL).partition(".")[0] for name in values if name.startswith(MODEL)}
    for key, value in facts.items():
        if key.partition(".")[0] in own:  # a table of the YAML replaces all of the file's
            continue
        nested = {f"{key}.{name}": inner for name, inner in value.items()} if isinstance(value, dict) else {key: value}
        for name, inner in nested.items():
            values.setdefault(MODEL + name, Value(inner, SourceLocation(str(file))))
    return [message("configuration.model_file", file=str(file))], ""


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
    read = read_yaml(read_text(file), shown(file.name), file.parent)
    own = {OF_YAML[key]: Value(_typed(text), SourceLocation(name, name=f"--{key}")) for key, text in options.items() if key in OF_YAML}
    if (workers := options.get("worker_num") or _of_launcher(words)).isdigit():
        own["device_num"] = Value(int(workers), SourceLocation(name, name="worker_num"))
    return replace(read, values={**read.values, **own}, notes=[*absent, *read.notes], misplaced=absent, program=program, lost=lost)


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
