"""Megatron-LM's arguments, from a launch script, a command line or a bare list of arguments.

An argument is a word that starts with two dashes; its values are the words up to the next such word.
Names are those of the attributes in Megatron-LM's namespace, as in a record.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from align_hooks.configuration import mindspeed
from align_hooks.configuration.bash import evaluate
from align_hooks.configuration.beside import program_of
from align_hooks.configuration.files import SCRIPT, read_text
from align_hooks.configuration.hybrid import as_blocks
from align_hooks.configuration.mindformers import read_launch
from align_hooks.configuration.script import Script, ShellWord
from align_hooks.configuration.values import (
    MEGATRON,
    Configuration,
    ConfigurationError,
    Setting,
    SourceLocation,
    UndecidedVariable,
    UnsetVariable,
    Value,
)
from align_hooks.configuration.words import split
from align_hooks.data_file import sections
from align_hooks.errors import shown
from align_hooks.messages import Argument, Message, message, rendered, with_commands

_TABLES = sections(Path(__file__).parent / "megatron_flags.txt")
RENAMED = mindspeed.renamed(_TABLES["renamed"])
"""Flag whose attribute has another name to the attribute, and the value that the flag sets (None: the flag takes a value)."""
CHOICES: Mapping[str, list[str]] = {flag: values for flag, *values in map(str.split, _TABLES["choices"])}
"""Flag without its dashes to the values that its parser accepts, for the flags that a row of the checklist reads."""
_FLAGS = [line.split(maxsplit=2) for line in _TABLES[""]]
OF_DEEPSPEED = frozenset(["loss_scale", "initial_loss_scale", "min_loss_scale", "loss_scale_window", "hysteresis", "fp16", "bf16"])
OF_DEEPSPEED |= {"clip_grad", "global_batch_size", "micro_batch_size", "optimizer", "lr", "weight_decay"}
OF_DEEPSPEED |= {"adam_beta1", "adam_beta2", "adam_eps"}
"""Arguments in whose place DeepSpeed's own file of settings counts."""
FLAGS: Mapping[str, str] = {flag: takes for flag, takes, _ in _FLAGS}
"""Flag of Megatron-LM 0.19 without its dashes to what it takes: ``nothing``, an ``integer``, a ``number`` or ``text``."""
ARGUMENTS: Mapping[str, Setting] = {
    RENAMED.get(flag.replace("-", "_"), (flag.replace("-", "_"), None))[0]: json.loads(default)
    for flag, _, default in sorted(_FLAGS, key=lambda line: line[2] != "null")  # the flag that has a default wins
}
"""Attribute of Megatron-LM 0.19's arguments to its default."""

_FLAGS_OF_FORK, _ARGUMENTS_OF_FORK = {**mindspeed.FLAGS, **FLAGS}, {**mindspeed.ARGUMENTS, **ARGUMENTS}
_RENAMED_OF_FORK = {**RENAMED, **mindspeed.RENAMED}


def flags_of(fork: str) -> Mapping[str, str]:
    """Return each flag of a fork's parser, and what it takes; Megatron-LM's own wins."""
    return _FLAGS_OF_FORK if fork else FLAGS


def defaults_of(fork: str) -> Mapping[str, Setting]:
    """Return attribute to default of a fork's arguments; Megatron-LM's own default wins."""
    return _ARGUMENTS_OF_FORK if fork else ARGUMENTS


LATEST = "latest_checkpointed_iteration.txt"
"""File with the iteration, beside a checkpoint that ``--load`` names."""
OF_TRAINING = {"num_layers", "hidden_size", "num_attention_heads", "micro_batch_size", "seq_length", "lr", "encoder_num_layers", "yaml_cfg"}
"""Arguments that identify a training command."""
OF_DATA = "seq_length"
"""The argument of :data:`OF_TRAINING` that ``tools/preprocess_data.py`` takes too."""
HARMFUL = re.compile(r"(?:^|[;&|({`])[ \t]*(?:(?:sudo|then|do|else) +)?(p?kill|killall|rm|ray stop)\b", re.MULTILINE)
"""A command that ends processes or deletes files."""
_NUMBER = re.compile(r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$")
ASSIGNED = re.compile(r"\w+=")
LONGEST_NUMBER = 64
LIST_NAME = "_align_hooks_arguments"


def is_bare_list(text: str) -> bool:
    """Return whether a text is a list of arguments and no script: its first line that is no comment begins with a dash."""
    lines = (line.strip() for line in text.splitlines())
    return next((line for line in lines if line and not line.startswith("#")), "").startswith("-")


def read_script(
    text: str, name: str, environment: Mapping[str, str], arguments: Sequence[str] = (), folder: Path | None = None, given: str = ""
) -> Configuration:
    """Return the configuration of a script's training command, a bare list of arguments, or the YAML that a script gives MindFormers.

    :param given: the command that starts the script, for advice; empty for ``bash NAME``.
    :raises ConfigurationError: no command of the script trains, or several do.
    """
    given = given or f"bash {name}"
    bare = is_bare_list(text)
    script = bare_list(text, name, environment) if bare else evaluate(text, name, environment, arguments, folder)
    marked = [(command, OF_TRAINING & {_attribute(word.text) for word in command}) for command, _ in script.started]
    of_models = [command for command, marks in marked if marks - {OF_DATA}]
    trainings = of_models or [command for command, marks in marked if marks]
    if not trainings:
        gaps = [*(gap for command, _ in script.started for gap in _misquoted(command, script)), *script.gaps]
        gap = f" ({rendered(gaps[0])})" if gaps else ""
        if script.ended:
            raise ConfigurationError(
                f"no command of {name} trains{gap}: it ends at {script.place(script.ended)}; what it asks for there may be put before the "
                f"command, 'NAME=... {given}'"
            )
        for command, environment_of in script.started:
            if (launch := read_launch(command, name, folder or Path(), environment_of.get("PWD"))) is not None:
                return launch
        raise ConfigurationError(
            f"no command of {name} trains{gap}: none has --num-layers, --hidden-size or --lr; name the script that starts pretrain_gpt.py, "
            f"put the arguments themselves in a file, or let a run tell them: align-hooks run --arguments-only"
        )
    different = {" ".join(word.text for word in command) for command in trainings}
    if len(different) > 1:
        lines = ", ".join(str(script.located(command[0].line).line) for command in trainings)
        raise ConfigurationError(f"{name} starts {len(different)} trainings that differ (lines {lines}); leave one in")
    configuration = read_words(trainings[0], script, folder)
    if folder is None or not (configuration.gaps or any(value.unknown for value in configuration.values.values())):
        return configuration
    if harmful := HARMFUL.search(text):
        line = text.count("\n", 0, harmful.start(1)) + 1
        by_a_run: Argument = message("configuration.run_does_harm", name=name, line=line, command=harmful[1])
    else:
        by_a_run = with_commands(message("configuration.told_by_a_run"), f"align-hooks run --arguments-only -- {given}")
    return replace(configuration, by_a_run=by_a_run)


def bare_list(text: str, name: str, environment: Mapping[str, str]) -> Script:
    """Read a list of arguments as bash does, with variables; or word by word, where bash would need quotes."""
    script = evaluate(f"{LIST_NAME}=( {text}\n)\n{LIST_NAME} ${{{LIST_NAME}[@]}}", name, environment)
    script.exported.clear()
    globs = "$" not in text and any(word.unknown for command, _ in script.started for word in command)  # a HybridModel's pattern, say
    if not (script.gaps or globs) and script.started:
        return script
    script = Script(name)
    words = [ShellWord(LIST_NAME, 1)]
    for line, content in enumerate(text.replace("\\\n", " \n").splitlines(), 1):
        try:
            words += [ShellWord(word, line) for word in shlex.split(content, comments=True)]
        except ValueError as error:
            raise ConfigurationError(f"{name}:{line} cannot be read as arguments: {str(error).lower()}") from None
    script.start(words, {})
    return script


def read_command(command: str, environment: Mapping[str, str]) -> Configuration:
    """Read a quoted command line: ``bash pretrain.sh 7B``, ``torchrun … pretrain_gpt.py --…``, or only arguments."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigurationError(f"the command {command[:60]!r} cannot be read: {error}") from None
    if (launch := read_launch([ShellWord(word, 0) for word in words], "the command", Path())) is not None:
        return launch
    at = next((at for at, word in enumerate(words) if word.endswith((".sh", ".bash")) and not ASSIGNED.match(word)), None)
    if at is not None and not any(word.startswith("--num-layers") for word in words):
        settings = dict(word.split("=", 1) for word in words[:at] if ASSIGNED.match(word))
        path = Path(words[at])
        given = f"env {command}" if ASSIGNED.match(words[0]) else command
        return read_script(read_text(path, SCRIPT), path.name, {**environment, **settings}, words[at + 1 :], path.parent, given)
    return read_script(command, "the command", environment)


def read_words(words: Sequence[ShellWord], script: Script, folder: Path | None = None) -> Configuration:
    """Return the configuration that a command's words set; of an argument that is given twice the last counts, as in argparse.

    :param folder: the script's folder, in which its program may lie.
    :raises ConfigurationError: a flag that takes no value is given one.
    """
    name = script.name
    values: dict[str, Value] = {}
    flags: dict[str, str] = {}
    notes: list[Argument] = []
    start = _script_word(words)
    environment = dict(next((environment for command, environment in script.started if command is words), {}))
    named = words[start - 1] if start and words[start - 1].text.endswith(".py") else ShellWord("", 0)
    program, lost = program_of(named.text, named.unknown, environment.pop("PWD", None), folder)
    fork = mindspeed.fork_of_words((word.text for word in words[start:]), FLAGS) or mindspeed.fork_of_program(named.text, folder)
    known, renamed = flags_of(fork), _RENAMED_OF_FORK if fork else RENAMED
    for word, values_of_flag in _options(words[start:], known):
        flag, _, attached = word.text.partition("=")
        values_of_flag = [ShellWord(attached, word.line, word.unknown), *values_of_flag] if attached else values_of_flag
        attribute, constant = renamed.get(_attribute(flag, known), (_attribute(flag, known), None))
        where = script.located(word.line, flag) if word.line else SourceLocation("the command", name=flag)
        as_written = f"{where} {_joined(values_of_flag)}".strip()
        unknown = next((value.unknown for value in values_of_flag if value.unknown), None)
        if constant is not None and values_of_flag and not unknown:
            raise ConfigurationError(f"{where} takes no value, and is given {_joined(values_of_flag)[:60]!r}; take it out")
        value = constant if constant is not None else number(_joined(values_of_flag)) if values_of_flag else True
        if attribute in values:
            id = "configuration.given_twice" if values[attribute].written == value and not unknown else "configuration.last_counts"
            notes.append(message(id, flag=flag, first=flags[attribute], second=as_written))
        flags[attribute] = as_written
        values[attribute] = Value(value, where, unknown)
    gaps = [*script.gaps, *_misquoted(words[start:], script)]
    bounded = {} if script.carried else dict.fromkeys(script.absent, frozenset[str]())
    for word in _loose(words[start:], known):
        gaps.append(message("configuration.more_arguments", place=script.place(word.line), text=word.text, why=word.unknown))
        flags_in = _flags_in(word, script, known)
        if flags_in is not None:
            bounded[gaps[-1]] = frozenset(renamed.get(_attribute(flag, known), (_attribute(flag, known),))[0] for flag in flags_in)
    if "deepspeed_config" in values:
        gaps.append(message("configuration.deepspeed", place=values["deepspeed_config"].where))
        bounded[gaps[-1]] = OF_DEEPSPEED
    for word, values_of_flag in _options(words[:start], FLAGS):
        attribute = word.text.partition("=")[0].lstrip("-").replace("-", "_")  # torchrun takes both
        if attribute in ("nproc_per_node", "nnodes") and (values_of_flag or "=" in word.text):
            number_word = ShellWord(word.text.partition("=")[2], word.line) if "=" in word.text else values_of_flag[0]
            values.setdefault(f"launcher.{attribute}", Value(number(number_word.text), script.located(word.line), number_word.unknown))
    read = Configuration(MEGATRON, name, as_blocks(values), environment, notes=notes, program=program, lost=lost, fork=fork)
    return replace(read, gaps=tuple(gaps), bounded=bounded)


def _misquoted(words: Sequence[ShellWord], script: Script) -> list[Message]:
    """Return the words whose quotes Megatron-LM's parser refuses: many arguments in a word, or a comment within a text."""
    ids = {r"--[\w-]+\s+\S.*": "configuration.one_word", r"#(-.*)?": "configuration.comment_in_quotes"}
    return [
        message(id, place=script.place(word.line), text=shown(word.text[:60]))
        for at, word in enumerate(words)
        for text, id in ids.items()
        if not word.unknown and re.fullmatch(text, word.text, re.DOTALL) and not _is_value(words, at, FLAGS)
    ]


def _flags_in(word: ShellWord, script: Script, known: Mapping[str, str]) -> set[str] | None:
    """Return the flags that may be in an unknown word; None where any may be."""
    if word.unknown is None or isinstance(word.unknown, UnsetVariable):  # a variable that nothing sets is empty
        return set()
    if (word.text, word.unknown) not in script.choices:
        return None
    flags: set[str] = set()
    for choice in script.choices[word.text, word.unknown]:
        chosen = [piece for words_of in choice for piece in split(words_of)]
        flags |= {piece.text for piece in chosen if piece.text.startswith("--")}
        for loose in _loose(chosen, known):
            inner = _flags_in(loose, script, known) if loose != word else None
            if inner is None:
                return None
            flags |= inner
    return flags


def _script_word(words: Sequence[ShellWord]) -> int:
    """Return the index at which the training script's own arguments start."""
    for at, word in enumerate(words):
        if word.text.endswith(".py") and not word.text.startswith("--"):
            return at + 1
        if word.text == "-m" and at + 1 < len(words) and "torch" not in words[at + 1].text:
            return at + 2
    return 0


def _options(words: Sequence[ShellWord], known: Mapping[str, str]) -> list[tuple[ShellWord, list[ShellWord]]]:
    """Return each word that names an option, with the words that are its values."""
    options: list[tuple[ShellWord, list[ShellWord]]] = []
    for at, word in enumerate(words):
        if word.text.startswith("--") and len(word.text) > 2:
            options.append((word, []))
        elif options and not (word.unknown and word.text.startswith("$") and not _is_value(words, at, known)):
            options[-1][1].append(word)
    return options


def _loose(words: Sequence[ShellWord], known: Mapping[str, str]) -> list[ShellWord]:
    """Return the unknown words that may hold any number of arguments: they stand where an option may."""
    unknown = [(at, word) for at, word in enumerate(words) if word.unknown and word.text.startswith("$")]
    # a flag that is not known may take no value: what a script sets may then be arguments of its own
    return [
        word
        for at, word in unknown
        if not _is_value(words, at, known) or (isinstance(word.unknown, UndecidedVariable) and words[at - 1].text[2:] not in known)
    ]


def _is_value(words: Sequence[ShellWord], at: int, known: Mapping[str, str]) -> bool:
    """Return whether a word follows an option that takes a value."""
    if at == 0 or not words[at - 1].text.startswith("--") or "=" in words[at - 1].text:
        return False
    flag = words[at - 1].text
    return known.get(flag[2:]) != "nothing" and RENAMED.get(_attribute(flag), ("", None))[1] is None


def _attribute(flag: str, known: Mapping[str, str] = FLAGS) -> str:
    """Return a flag's attribute in Megatron-LM; a flag with a ``_`` that its parser does not know stays as it is."""
    name = flag.partition("=")[0]
    if not name.startswith("--"):
        return ""
    return name if "_" in name and name[2:] not in known else name.lstrip("-").replace("-", "_")


def _joined(words: Sequence[ShellWord]) -> str:
    return " ".join(word.text for word in words)


def number(text: str) -> Setting:
    """Return a value as Megatron-LM's parser holds it: an int, a float, a bool, None, a list or text."""
    if len(text) < LONGEST_NUMBER and _NUMBER.match(text):  # of a long text the pattern tries every way to cut it
        return int(text) if text.lstrip("+-").isdigit() else float(text)
    if text.lower().lstrip("+-") in ("nan", "inf", "infinity"):
        return float(text)
    if text in ("True", "False", "None") or (text[:1] in "[({" and text[-1:] in "])}"):
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            return ast.literal_eval(text)
    return text
