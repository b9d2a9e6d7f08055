"""What to do about a difference: what to write, or why nothing can be written. Reports are made from this data."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from enum import Enum

from msgspec import Struct

from align_hooks.checklist.canonical_values import UNSET
from align_hooks.checklist.lookup import MODEL
from align_hooks.configuration.megatron import FLAGS, RENAMED
from align_hooks.configuration.pynative import own_key
from align_hooks.configuration.values import MINDFORMERS, Setting
from align_hooks.messages import Argument, message, sentences

PLAIN = re.compile(r"[A-Za-z_/][\w./-]*")
NO_TEXT = ("true", "false", "yes", "no", "on", "off", "y", "n", "null")
"""Words that YAML 1.1 makes no text of."""
LONGEST_SHOWN = 80
"""Letters of a value that stands in a line."""


class Action(Enum):
    """What is to be done about a difference."""

    WRITE = "write"
    COME_TO = "come_to"
    CHANGE_REFERENCE = "change_reference"
    BOTH_SIDES = "both_sides"
    FOLLOWS = "follows"
    NONE = "none"


class Form(Enum):
    """How a setting is given."""

    WRITE = "write"
    ADD = "add"
    LEAVE_OUT = "leave_out"


class Edit(Struct, frozen=True):
    """One setting of a candidate and its new value."""

    framework: str
    key: str
    """A key of the static graph's YAML with dots, or the attribute of a flag."""
    value: Setting
    anchor: str = ""
    """The anchor by which the key is given what another key is given; empty where the row itself asks for it."""
    trainer: str = ""
    """The trainer of whose file the key is; empty for the usual one."""

    @property
    def form(self) -> Form:
        """How the candidate is given the value; Megatron's switches are flags without a value, there or not."""
        if self.framework == MINDFORMERS:
            return Form.LEAVE_OUT if self.value is UNSET else Form.WRITE
        _, constant = flag_of(self.key)
        if self.value in (None, UNSET) or (isinstance(self.value, bool) and self.value is not (True if constant is None else constant)):
            return Form.LEAVE_OUT
        return Form.ADD if isinstance(self.value, bool) else Form.WRITE

    @property
    def name(self) -> str:
        """The setting as its framework names it: a full key, or a flag with its dashes."""
        if self.framework == MINDFORMERS:
            return own_key(self.key) if self.trainer else self.key
        return named(flag_of(self.key)[0], self.framework)

    @property
    def written(self) -> str:
        """The value as it is written: of a YAML so that YAML 1.1 reads it back."""
        return in_yaml(self.value) if self.framework == MINDFORMERS else in_command(self.value)

    @property
    def words(self) -> Argument:
        """The edit as a report shows it."""
        setting, written = self.name.removeprefix(MODEL), self.written
        if self.anchor:
            return message("change.tied", name=setting, anchor=self.anchor)
        if self.framework == MINDFORMERS and len(written) > LONGEST_SHOWN:  # the block to be pasted has all of it
            written = f"{written[:LONGEST_SHOWN]}…"
        forms: Mapping[Form, Argument] = {
            Form.WRITE: f"{setting}{':' if self.framework == MINDFORMERS else ''} {written}",
            Form.ADD: message("change.add", flag=setting),
            Form.LEAVE_OUT: message("change.leave_out", flag=setting),
        }
        return forms[self.form]


class SuggestedEdit(Struct, frozen=True):
    """What to do in the candidate, or in the reference where the candidate's ``framework`` has no setting."""

    action: Action
    framework: str
    edits: tuple[Edit, ...] = ()
    """All that is to be written."""
    value: Argument = None
    """Without edits the value that the candidate, the reference or both are to have."""
    key: str = ""
    """The setting for ``value``; empty without one."""
    breaks: Argument = None
    """The name of a row that agrees now and would differ after the change; None without one."""
    worthwhile: bool = True
    """False where the change costs more than it mends."""
    optional: bool = False
    """Whether only the rounding changes."""
    why: Argument = None
    """Why the candidate cannot be changed, or how a reader comes to the value."""

    @property
    def is_safe(self) -> bool:
        """Whether the edits leave every other row as it is."""
        return self.action is Action.WRITE and self.breaks is None

    @property
    def of_model(self) -> bool:
        """Whether a setting stands under MindFormers' ``model_config``."""
        return any(key.startswith(MODEL) for key in (self.key, *(edit.name for edit in self.edits)))

    @property
    def words(self) -> Argument:
        """The suggestion as a report shows it."""
        actions: Mapping[Action, Argument] = {
            Action.WRITE: sentences(*(edit.words for edit in self.edits)),
            Action.COME_TO: self.why
            if self.why is not None
            else message("change.come_to", value=self.value, name=named(self.key, self.framework).removeprefix(MODEL)),
            Action.CHANGE_REFERENCE: self._of_reference,
            Action.BOTH_SIDES: message("change.both_sides", value=self.value),
            Action.FOLLOWS: message("change.follows", changes=self.value),
            Action.NONE: message("change.no_setting", framework=self.framework, value=self.value),
        }
        done = actions[self.action]
        moved = done if self.breaks is None else sentences(done, message("change.moves", row=self.breaks))
        if self.optional and self.worthwhile and self.action in (Action.WRITE, Action.COME_TO):
            return message("change.optional", change=moved)
        return moved if self.worthwhile else message("change.nothing_alone", change=moved)

    @property
    def _of_reference(self) -> Argument:
        if self.why is None and self.value == str(None):
            return message("change.reference_unset", framework=self.framework)
        if self.why is None:
            return message("change.reference", framework=self.framework, value=self.value)
        return sentences(self.why, message("change.reference_alone", value=self.value))


def named(key: str, framework: str) -> str:
    """Return a key as users of a framework write it."""
    return key if framework == MINDFORMERS else "--" + key.replace("_", "-")


def flag_of(attribute: str) -> tuple[str, Setting]:
    """Return the flag of Megatron's that sets an attribute, with underscores, and the value where the flag itself is the value."""
    flags = [(flag, constant) for flag, (name, constant) in RENAMED.items() if name == attribute]
    own = attribute.replace("_", "-") in FLAGS and all(constant is None for _, constant in flags)
    return flags[0] if flags and not own else (attribute, None)


def in_yaml(value: Setting) -> str:
    """Return a value as YAML 1.1 reads it back: a number with a point, ambiguous text in quotes."""
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(in_yaml, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {in_yaml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, str):
        return value if PLAIN.fullmatch(value) and value.lower() not in NO_TEXT else "'" + value.replace("'", "''") + "'"
    if isinstance(value, float):  # every digit of it: a rate that was cut would be another
        digits, mark, power = repr(value).partition("e")
        return f"{digits}.0{mark}{power}" if mark and "." not in digits else f"{digits}{mark}{power}"
    return "null" if value is None else str(value)


def in_command(value: Setting) -> str:
    """Return a value as the words that follow a flag, quoted where a shell would make something else of it."""
    text = " ".join(map(in_command, value)) if isinstance(value, list | tuple) else str(value)
    return shlex.quote(text) if set("*|") & set(text) else text


def block(edits: Sequence[Edit], base: str = "") -> str:
    """Return edits as sections of a YAML; with ``base`` as a file that stands over that one, as MindFormers reads it."""
    tree: dict[str, object] = {"base_config": base} if base else {}
    for edit in (edit for edit in edits if edit.form is not Form.LEAVE_OUT):
        *path, last = edit.name.split(".")
        section = tree
        for part in path:
            inner = section.setdefault(part, {})
            assert isinstance(inner, dict)  # no edit is a section of another
            section = inner
        section[last] = edit
    return "\n".join(_lines(tree, ""))


def _lines(tree: Mapping[str, object], margin: str) -> list[str]:
    lines: list[str] = []
    for key, value in tree.items():
        if isinstance(value, Mapping):
            lines += [f"{margin}{key}:", *_lines(value, margin + "  ")]
        else:
            lines.append(f"{margin}{key}: {value.written if isinstance(value, Edit) else in_yaml(value)}")
    return lines
