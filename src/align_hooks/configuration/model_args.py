"""The arguments of Megatron-LM's own tests: a YAML file with ``MODEL_ARGS``, a flag and its value a line, and ``ENV_VARS``.

``tests/functional_tests/shell_test_utils/_run_training.sh`` makes words of bash of them, and so does this module.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from align_hooks.configuration.megatron import read_script
from align_hooks.configuration.values import Configuration, SourceLocation, Value
from align_hooks.configuration.yaml_files import YamlNode, parsed

ARGUMENTS, ENVIRONMENT = "MODEL_ARGS", "ENV_VARS"


def has_model_args(text: str) -> bool:
    """Return whether a YAML text has a section of arguments."""
    return re.search(rf"^{ARGUMENTS}:", text, re.MULTILINE) is not None


def read_model_args(text: str, name: str, environment: Mapping[str, str]) -> Configuration:
    """Return the configuration of a file; ``environment`` wins over the file's own variables.

    :raises ConfigurationError: the text is no YAML, or its arguments start no training.
    """
    lines, variables = [""] * (text.count("\n") + 1), dict[str, Value]()
    with parsed(text, name) as (loader, root):
        sections = {key.value: node for key, node in root.value if node.id == "mapping"}
        for section, node in sections.items():
            loader.flatten_mapping(node)
            for key, value in node.value:
                if section == ARGUMENTS:
                    lines[key.start_mark.line] += f" {key.value} {_words(value)}"
                elif section == ENVIRONMENT:
                    variables[str(key.value)] = Value(str(value.value), SourceLocation(name, key.start_mark.line + 1))
    own = {key: value.value for key, value in variables.items()}
    return replace(read_script("\n".join(lines), name, {**own, **environment}), environment=variables)


def _words(node: YamlNode) -> str:
    """Return a value as the runner writes it for bash: in quotes where bash would split it."""
    if node.id == "sequence":
        return " ".join(map(_words, node.value))
    text = str(node.value).strip()
    if text.lower() == "true":  # a flag that takes no value
        return ""
    if re.fullmatch(r"\[[^]]+\]", text):
        return text[1:-1]
    return f'"{text}"' if re.search(r"[ |()]", text) else text
