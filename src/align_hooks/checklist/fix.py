"""A candidate's YAML with all edits of a check, or a file of these that overrides it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from align_hooks.checklist.canonical_values import UNSET
from align_hooks.checklist.edits import Edit
from align_hooks.checklist.result import Checklist
from align_hooks.checklist.suggest_edits import applied
from align_hooks.configuration.files import read_text
from align_hooks.configuration.mindformers import read_yaml
from align_hooks.configuration.source import has_model_args
from align_hooks.configuration.values import MINDFORMERS, Configuration, ConfigurationError
from align_hooks.configuration.yaml_edits import with_settings
from align_hooks.errors import shown


class Fixed(Struct, frozen=True):
    """A YAML file before and after its edits."""

    before: str
    after: str
    configuration: Configuration


def is_yaml(candidate: str) -> bool:
    """Return whether a side is given as a YAML file."""
    return candidate.lower().endswith((".yaml", ".yml"))


def fixed(candidate: str, checklist: Checklist) -> Fixed:
    """Return the candidate's YAML with all edits of a check; what else stands in it stays as it is, to the letter.

    :raises ConfigurationError: the candidate is no YAML of MindFormers, or more than the edits would change.
    """
    path, side = Path(candidate), checklist.sides[1]
    if side.framework != MINDFORMERS or side.recorded or not is_yaml(candidate):
        raise ConfigurationError(f"--fix mends a YAML file of MindFormers, and {shown(candidate)} is none; put the YAML second")
    before = read_text(path)
    if has_model_args(before):
        raise ConfigurationError(f"--fix mends a YAML file of MindFormers, and {shown(candidate)} holds arguments of Megatron-LM")
    was = read_yaml(before, path.name, path.parent)
    # what stands first in the file is written first, so that an alias behind its anchor has its value by then
    lines = {name: value.place.line for name, value in was.values.items() if value.place is not None}
    edits = sorted(checklist.edits, key=lambda edit: lines.get(edit.key) or 0)
    after = with_settings(before, path.name, {edit.name: None if edit.value is UNSET else edit.written for edit in edits})
    mended = read_yaml(after, path.name, path.parent)
    _refuse_more(was, mended, checklist.edits)
    return Fixed(before, after, mended)


def _refuse_more(was: Configuration, mended: Configuration, edits: Sequence[Edit]) -> None:
    """Raise ConfigurationError where a mended file holds anything else than what it held and the edits."""
    wanted = applied(was, {edit.key: edit.value for edit in edits}).values
    for key in {**wanted, **mended.values}:
        ours, theirs = (values[key].written if key in values else None for values in (wanted, mended.values))
        if ours != theirs:
            raise ConfigurationError(
                f"{was.source}: {key} would come to {shown(str(theirs))} and not to {shown(str(ours))}; write the settings by hand"
            )
