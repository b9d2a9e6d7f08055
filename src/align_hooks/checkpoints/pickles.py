"""A pickle, read as plain data: nothing is imported, and nothing is called.

Megatron-LM's checkpoints are pickles, and Python's own reader runs any code that a pickle names. This reader has only the opcodes of data.
An object becomes an :class:`Object` with the name of its class, its arguments and its state. A class that is on no list is refused: such a
file is none of Megatron-LM's, and another tool might run it.
"""

from __future__ import annotations

import pickletools
import struct
from collections.abc import Callable, Collection, Mapping
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct, field

from align_hooks.data_file import sections
from align_hooks.errors import RecordError, shown
from align_hooks.record.format.files import in_words

Value: TypeAlias = Any
"""A value of a pickle: a number, a text, a container, or an object of ours."""


class Class(Struct, frozen=True):
    """The name of a class, or a function, that a pickle would import."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class Object(Struct, eq=False):
    """An object in a pickle."""

    of: Class
    made: tuple[Value, ...] = ()
    """The arguments of the class."""
    state: dict[str, Value] = field(default_factory=dict)
    items: dict[Value, Value] = field(default_factory=dict)
    """The items that were added to a mapping."""


class Reference(Struct, frozen=True):
    """A reference of a pickle into the archive around it, such as to the numbers of a tensor."""

    to: Value


DATA = (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError, RecursionError, MemoryError, struct.error)
"""Errors of a malformed pickle."""
OLDER = {"__builtin__": "builtins", "copy_reg": "copyreg"}
"""Python 2's name of a module, as in a pickle of protocol 2, to Python 3's."""
LONGEST = 20_000_000
"""Most opcodes of a pickle; enough for a million tensors."""
CONTAINERS = 3_000_000
"""Most containers and objects of a pickle; each takes far more memory than in the file."""
PLAIN_VALUES, PLAIN_DEPTH = 100_000, 32
"""Most values of unfolded plain data, shared ones counted each time, and most levels."""


@cache
def classes(head: str) -> tuple[str, ...]:
    """Return the full names of a section of ``classes.txt``."""
    lines = sections(Path(__file__).with_name("classes.txt"))[head]
    return tuple(f"{module}.{name}" for module, *names in map(str.split, lines) for name in names)


def read_pickle(content: bytes, allowed: Collection[str], where: object) -> Value:
    """Return the value of a pickle; raises RecordError for a malformed one, and for a class not ``allowed`` by name or ``package.*``."""
    try:
        return _Machine(allowed, where).run(content)
    except DATA as error:
        raise RecordError(f"{where} is no whole pickle ({shown(in_words(error))}); copy it again") from None


class _Machine:
    """The stack on which a pickle builds its value."""

    def __init__(self, allowed: Collection[str], where: object) -> None:
        self.exact = {name for name in allowed if not name.endswith(".*")}
        self.packages = tuple(name.removesuffix("*") for name in allowed if name.endswith(".*"))
        self.where = where
        self.stack: list[Value] = []
        self.below: list[list[Value]] = []  # the stacks under marks
        self.memo: dict[int, Value] = {}
        self.containers = 0

    def run(self, content: bytes) -> Value:
        for number, (opcode, argument, _) in enumerate(pickletools.genops(BytesIO(content))):
            if number > LONGEST:
                raise ValueError(f"it has more than {LONGEST} opcodes")
            if opcode.name == "STOP":
                (value,) = self.stack
                return value
            if opcode.name not in OPERATIONS:
                name = f"the pickle opcode {opcode.name}, which no checkpoint needs"
                raise RecordError(f"{self.where} holds {name}; convert a checkpoint that you trust")
            OPERATIONS[opcode.name](self, argument)
        raise ValueError("it has no end")

    def push(self, value: Value) -> None:
        self.stack.append(value)  # which may be another stack than before the value was made

    def count(self) -> None:
        self.containers += 1
        if self.containers > CONTAINERS:
            raise ValueError(f"it has more than {CONTAINERS} lists, dictionaries and objects")

    def build(self, container: Value) -> None:
        self.count()
        self.stack.append(container)

    def mark(self) -> None:
        self.count()
        self.below.append(self.stack)
        self.stack = []

    def members(self) -> list[Value]:
        """Return the values since the last mark, and return to the stack below."""
        members, self.stack = self.stack, self.below.pop()
        return members

    def named(self, module: object, name: object) -> None:
        found = Class(OLDER.get(str(module), str(module)), str(name))
        if str(found) not in self.exact and not (found.module.startswith(self.packages) and "." not in found.name):
            why = "which no checkpoint needs (nothing was run)"
            raise RecordError(f"{self.where} names {shown(str(found))}, {why}; convert a checkpoint that you trust")
        self.stack.append(found)

    def made(self, arguments: Value) -> None:
        """Put the object of the class on the stack there, or the plain data for which the class stands."""
        of = self.stack.pop()
        if not isinstance(of, Class) or not isinstance(arguments, tuple):
            raise ValueError("it calls what is no class")
        make = PLAIN.get(str(of))
        self.build(Object(of, arguments) if make is None else make(*arguments))

    def state(self) -> None:
        state, last = self.stack.pop(), self.stack[-1]
        if isinstance(last, Object):
            last.state = state if isinstance(state, dict) else {"": state}

    def add(self, pairs: list[Value]) -> None:
        last = self.stack[-1]
        items = last.items if isinstance(last, Object) else last
        if not isinstance(items, dict) or len(pairs) % 2:
            raise ValueError("it adds keys to what is no dictionary")
        items.update(zip(map(_key, pairs[::2]), pairs[1::2], strict=True))

    def extend(self, values: list[Value]) -> None:
        last = self.stack[-1]
        if isinstance(last, set):
            last.update(map(_key, values))
        elif isinstance(last, list):
            last.extend(values)
        else:
            raise ValueError("it adds values to what is no list")

    def take(self, count: int) -> list[Value]:
        if len(self.stack) < count:
            raise ValueError("a value is missing")
        values = self.stack[-count:]
        del self.stack[-count:]
        return values


def _key(value: Value) -> Value:
    """Return a key of a dictionary or a set; raises ValueError for a nested key, whose hash may take for ever."""
    flat = value if isinstance(value, tuple) else (value,)
    if not all(isinstance(one, str | bytes | int | float | Object | Class | None) for one in flat):
        raise ValueError("a key of a dictionary is no plain one")
    return value


def plain(value: Value) -> Value:
    """Return a copy of plain data that shares nothing; raises ValueError for other data, and for too many values."""
    count = 0

    def copied(inside: Value, depth: int) -> Value:
        nonlocal count
        count += 1
        if count > PLAIN_VALUES or depth > PLAIN_DEPTH:
            raise ValueError(f"it unfolds into more than {PLAIN_VALUES} values, or {PLAIN_DEPTH} levels")
        if isinstance(inside, dict) and all(isinstance(key, str) for key in inside):
            return {key: copied(item, depth + 1) for key, item in inside.items()}
        if isinstance(inside, list | tuple):
            return [copied(item, depth + 1) for item in inside]
        if not isinstance(inside, str | int | float | None):
            raise ValueError(f"it holds a {type(inside).__name__}")
        return inside

    return copied(value, 0)


PLAIN: Mapping[str, Callable[..., Value]] = {
    "collections.OrderedDict": lambda pairs=(), *_: {_key(key): item for key, item in (pairs if isinstance(pairs, list) else ())},
    "collections.defaultdict": lambda *arguments: {},
    "torch.Size": lambda sizes: tuple(sizes),
    "builtins.set": lambda *arguments: {_key(one) for members in arguments for one in members},
}
"""Class to the plain data for which it stands."""
NUMBERS_AND_TEXTS = (
    *("BININT", "BININT1", "BININT2", "LONG1", "INT", "LONG", "BINFLOAT", "FLOAT", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE"),
    *("BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BINSTRING", "SHORT_BINSTRING"),
)
"""Opcodes that put their argument on the stack."""
Operation: TypeAlias = Callable[[_Machine, Any], object]
OPERATIONS: Mapping[str, Operation] = {
    **dict.fromkeys(("PROTO", "FRAME"), lambda machine, argument: None),
    **dict.fromkeys(NUMBERS_AND_TEXTS, lambda machine, value: machine.push(value)),
    "NONE": lambda machine, _: machine.push(None),
    "NEWTRUE": lambda machine, _: machine.push(True),
    "NEWFALSE": lambda machine, _: machine.push(False),
    "EMPTY_LIST": lambda machine, _: machine.build([]),
    "EMPTY_DICT": lambda machine, _: machine.build({}),
    "EMPTY_SET": lambda machine, _: machine.build(set()),
    "EMPTY_TUPLE": lambda machine, _: machine.push(()),
    "MARK": lambda machine, _: machine.mark(),
    "POP": lambda machine, _: machine.take(1),
    "POP_MARK": lambda machine, _: machine.members(),
    "TUPLE": lambda machine, _: machine.push(tuple(machine.members())),
    "TUPLE1": lambda machine, _: machine.push(tuple(machine.take(1))),
    "TUPLE2": lambda machine, _: machine.push(tuple(machine.take(2))),
    "TUPLE3": lambda machine, _: machine.push(tuple(machine.take(3))),
    "LIST": lambda machine, _: machine.push(machine.members()),
    "APPEND": lambda machine, _: machine.extend(machine.take(1)),
    **dict.fromkeys(("APPENDS", "ADDITEMS"), lambda machine, _: machine.extend(machine.members())),
    "SETITEM": lambda machine, _: machine.add(machine.take(2)),
    "SETITEMS": lambda machine, _: machine.add(machine.members()),
    "GLOBAL": lambda machine, names: machine.named(*names.split(" ", 1)),
    "STACK_GLOBAL": lambda machine, _: machine.named(*machine.take(2)),
    **dict.fromkeys(("REDUCE", "NEWOBJ"), lambda machine, _: machine.made(*machine.take(1))),
    "BUILD": lambda machine, _: machine.state(),
    "BINPERSID": lambda machine, _: machine.push(Reference(*machine.take(1))),
    "MEMOIZE": lambda machine, _: machine.memo.update({len(machine.memo): machine.stack[-1]}),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT", "PUT"), lambda machine, index: machine.memo.update({index: machine.stack[-1]})),
    **dict.fromkeys(("BINGET", "LONG_BINGET", "GET"), lambda machine, index: machine.push(machine.memo[index])),
}
"""Opcode to its effect, for the opcodes that data needs."""
