"""Every ``ALIGN_HOOKS_*`` variable: its name, its parser, its effect (for a recorded quantity see :mod:`.quantities`).

The ``env`` command, the table of docs/reference.md, the refusal of unknown names and the settings in a record are made from the fields of
:class:`Settings`. Parsing reports every problem at once.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from msgspec import Struct

from align_hooks.errors import SettingsError, meant, shown
from align_hooks.process.paths import ADDRESS, path_of, well_formed
from align_hooks.process.storage import place_of
from align_hooks.quantities.activations import ACTIVATIONS, FILTER, WHOLE
from align_hooks.quantities.batches import BATCHES
from align_hooks.quantities.gradients import GRADIENTS
from align_hooks.quantities.kind import Quantity, Switch, VariableOption
from align_hooks.quantities.local_norms import LOCAL_NORMS, POINT, PRINTED
from align_hooks.quantities.optimizer_state import OPTIMIZER_STATE
from align_hooks.quantities.registry import SWITCHES
from align_hooks.quantities.routing import ROUTING
from align_hooks.quantities.sketches import GRADIENT_SKETCHES
from align_hooks.quantities.weights import WEIGHTS

PREFIX = "ALIGN_HOOKS_"
DIGITS = 15
"""The most digits of a step."""


class Steps(Struct, frozen=True):
    """A choice of training steps: ``all``, ``none``, or a comma list of ``N``, ``A-B``, ``A-B/S`` (B included).

    ``5 in Steps.parse("0,4-8/2")`` is False, ``6 in …`` is True. Steps count from 0.
    """

    text: str
    ranges: tuple[range, ...] | None
    """None for every step."""

    @classmethod
    def parse(cls, text: str) -> Steps:
        """Parse a choice of steps; raises ValueError with the offending part."""
        if text == "all":
            return cls(text, None)
        if text == "none":
            return cls(text, ())
        return cls(text, tuple(_range(part.strip()) for part in text.split(",")))

    def __contains__(self, step: object) -> bool:
        return self.ranges is None or any(step in chosen for chosen in self.ranges)

    def __bool__(self) -> bool:
        return self.ranges is None or any(self.ranges)

    def single(self) -> int | None:
        """Return the chosen step; None where none or several are chosen."""
        ends = {end for part in self.ranges or () if part for end in (part[0], part[-1])}
        return ends.pop() if len(ends) == 1 else None

    def count(self, steps: range) -> int:
        """Return how many of ``steps`` are chosen, by arithmetic, as parts may be longer than any run."""
        return len(steps) if self.ranges is None else _distinct([_common(part, steps) for part in self.ranges])

    @property
    def last(self) -> int | None:
        """The highest step named by a number or a range; None where none is."""
        return max((part[-1] for part in self.ranges or () if part), default=None)

    def first_outside(self, known: Container[int]) -> int | None:
        """Return the lowest step named by a number or a range that is not ``known``; None where all are."""
        outside = (next((step for step in part if step not in known), None) for part in self.ranges or ())
        return min((step for step in outside if step is not None), default=None)

    def names(self, step: int) -> bool:
        """Return whether a number or a range, and not ``all``, chooses a step."""
        return self.ranges is not None and step in self


def _range(part: str) -> range:
    numbers, slash, stride = part.partition("/")
    first, dash, last = numbers.partition("-")
    if not all(piece.isascii() and piece.isdigit() for piece, given in ((first, True), (last, dash), (stride, slash)) if given):
        raise ValueError(f"'{shown(part)}' is none of all, none, N, A-B, A-B/S")
    if max(map(len, (first, last, stride))) > DIGITS:
        raise ValueError(f"'{shown(part)}': no run makes so many steps; write a number of at most {DIGITS} digits")
    if dash and int(last) < int(first):
        raise ValueError(f"{part[:60]!r} ends before it begins")
    if slash and (not dash or int(stride) == 0):
        raise ValueError(f"{part[:60]!r}: a stride needs a range A-B and is at least 1")
    return range(int(first), int(last) + 1 if dash else int(first) + 1, int(stride) if slash else 1)


def _common(part: range, other: range) -> range:
    """Return the steps in both ranges, which are a range too (Chinese remainder theorem)."""
    shared, first = math.gcd(part.step, other.step), max(part.start, other.start)
    if (other.start - part.start) % shared:
        return range(0)
    stride, cycle = part.step * other.step // shared, other.step // shared
    met = part.start + (other.start - part.start) // shared * pow(part.step // shared, -1, cycle) % cycle * part.step
    return range(met + -((met - first) // stride) * stride, min(part.stop, other.stop), stride)


def _distinct(parts: Sequence[range]) -> int:
    """Count the numbers in any of ``parts``: solid ranges are joined; from the others what is shared is subtracted."""
    solid = _joined([range(part[0], part[-1] + 1) for part in parts if part and (part.step == 1 or len(part) == 1)])
    total = sum(map(len, solid))
    for part in (part for part in parts if part.step > 1 and len(part) > 1):
        shared = [both for whole in solid if (both := _common(part, whole))]
        if part not in shared:
            total += len(part) - _distinct(shared)
            solid.append(part)
    return total


def _joined(parts: Sequence[range]) -> list[range]:
    joined: list[range] = []
    for part in sorted(parts, key=lambda each: each.start):
        if joined and part.start <= joined[-1].stop:
            joined[-1] = range(joined[-1].start, max(joined[-1].stop, part.stop))
        else:
            joined.append(part)
    return joined


class Patterns(Struct, frozen=True):
    """A comma list of names with wildcards (``*``, ``?``, ``[…]``)."""

    parts: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Patterns:
        """Parse a list of patterns; raises ValueError for an empty one."""
        parts = tuple(part.strip() for part in text.split(","))
        if not all(parts):
            raise ValueError("names nothing between two commas; write patterns, such as model.layers.0.*")
        return cls(parts)

    def __bool__(self) -> bool:
        return bool(self.parts)

    def __str__(self) -> str:
        return ",".join(self.parts)


NO_STEPS, EVERY_STEP = Steps.parse("none"), Steps.parse("all")


class Source(Struct, frozen=True):
    """A recorded run to replay or load from, ``PATH@STEPS``."""

    path: Path
    """A directory, or a place in object storage."""
    steps: Steps

    def __str__(self) -> str:
        return f"{self.path}@{self.steps.text}"


def _source(default_steps: str) -> Callable[[str], Source]:
    def parse(text: str) -> Source:
        path, at, steps = text.rpartition("@")
        if not at:
            path, steps = text, default_steps
        if not path:
            raise ValueError("names no directory")
        where = place_of(path)
        try:
            return Source(where, Steps.parse(steps))
        except ValueError as error:
            raise ValueError(f"after the last @: {error}; write {text}@{default_steps} if the @ is part of the directory's name") from None

    return parse


def _directory(text: str) -> Path:
    if not text:
        raise ValueError("names no directory")
    return path_of(text)


def _flag(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError("is neither 0 nor 1")
    return text == "1"


def _seed(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text.lstrip("0")) <= DIGITS and 0 < int(text) < 2**32):
        raise ValueError("is not an integer from 1 to 4294967295 (Megatron refuses 0)")
    return int(text)


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not (math.isfinite(rate) and rate >= 0):
        raise ValueError("is not a number of 0 or more")
    return rate


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"is not {' or '.join(choices)}")
        return text

    return parse


def _protocols(text: str) -> Patterns:
    names = Patterns.parse(text)
    if odd := next((name for name in names.parts if not ADDRESS.fullmatch(f"{name}://")), None):
        raise ValueError(f"'{shown(odd)}' is no protocol of an address; write s3, or gs,abfs")
    return names


def _variable(parse: Callable[[str], Any], default: Any, value: str, effect: str) -> Any:
    return field(default=default, metadata={"parse": parse, "value": value, "effect": effect})


def _recorded(kind: Quantity) -> Any:
    """Return the field of the variable that asks for a quantity."""
    return _variable(Steps.parse, NO_STEPS, "steps", kind.switch.effect if kind.switch is not None else "")


def _option(option: VariableOption) -> Any:
    """Return the field of a further variable of a quantity."""
    if option.values:
        return _variable(_one_of(*option.values), option.values[0], ", ".join(option.values), option.effect)
    return _variable(Patterns.parse, Patterns(), "patterns", option.effect)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a process. Field ``x_y`` is variable ``ALIGN_HOOKS_X_Y``."""

    run: Path | None = _variable(_directory, None, "directory", "where this run is recorded; manifest and scalars always when set")
    run_exists: str = _variable(
        _one_of("refuse", "continue", "replace"), "refuse", "refuse, continue, replace", "what to do when the directory holds a run"
    )
    seed: int | None = _variable(
        _seed, None, "integer", "one seed for every generator and the order of Megatron's data, given to the framework before it seeds"
    )
    deterministic: bool = _variable(_flag, False, "0, 1", "deterministic environment and framework switches, read back from what was built")
    batches: Steps = _recorded(BATCHES)
    local_norms: Steps = _recorded(LOCAL_NORMS)
    local_norms_point: str = _option(POINT)
    local_norms_print: str = _option(PRINTED)
    gradients: Steps = _recorded(GRADIENTS)
    weights: Steps = _recorded(WEIGHTS)
    sketches: Steps = _recorded(GRADIENT_SKETCHES)
    optimizer_state: Steps = _recorded(OPTIMIZER_STATE)
    routing: Steps = _recorded(ROUTING)
    activations: Steps = _recorded(ACTIVATIONS)
    activations_filter: Patterns = _option(FILTER)
    activations_tensors: Patterns = _option(WHOLE)
    replay_batches: Source | None = _variable(
        _source("all"), None, "run[@steps]", "train on that run's batches, step N on step N; recorded steps between those named are skipped"
    )
    load_weights: Source | None = _variable(
        _source("0"), None, "run[@step] or HF directory", "start from those weights (step 0 unless said)"
    )
    inject_gradients: Source | None = _variable(
        _source("all"), None, "run[@steps]", "hand those gradients to the optimizer: reduced, unscaled, not yet clipped"
    )
    replay_routing: Source | None = _variable(_source("all"), None, "run[@steps]", "give each token to the experts that it had in that run")
    teacher: Source | None = _variable(
        _source("all"), None, "run[@steps]", "give each block what that run's block was given, and its output the gradient that it had"
    )
    teacher_points: Patterns = _variable(
        Patterns.parse, Patterns(), "patterns", "which points the teacher gives (what the embedding and each block put out unless said)"
    )
    perturb: int | None = _variable(
        _seed, None, "integer", "move every loaded weight by one eps of the compute type, up or down by this seed: compare's --noise"
    )
    learning_rate: float | None = _variable(_rate, None, "number", "constant learning rate; 0 for the weights-not-updated experiment")
    storage: Patterns = _variable(
        _protocols, Patterns(), "protocols", "open addresses of these, such as s3://bucket/run; no other is opened, by any command"
    )
    device: str | None = _variable(_one_of("cpu"), None, "cpu", "rehearsal with no accelerator; everything it changes is listed")
    on_error: str = _variable(_one_of("warn", "raise"), "warn", "warn, raise", "a recorder that fails: stop recording, or stop the run")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        """Read all variables; raises SettingsError with one line for every problem found."""
        problems, values = [], {}
        known = {PREFIX + setting.name.upper(): setting for setting in fields(cls)}
        problems += [
            f"{name}: no such variable; did you mean {near}?"
            for name in sorted(environment)
            if (near := _meant(name, known)) and near not in environment
        ]
        for name in sorted(name for name in environment if name.startswith(PREFIX)):
            if name not in known:
                problems.append(f"{name}: no such variable; {meant(name, known) or 'align-hooks env lists them'}")
                continue
            try:
                values[known[name].name] = known[name].metadata["parse"](environment[name].strip())
            except ValueError as error:
                problems.append(f"{name}='{shown(environment[name])}': {error}")
        problems += _contradictions(values, environment)
        if problems:
            raise SettingsError("\n".join(problems))
        return cls(**values)

    def steps(self, asked: Quantity | Switch) -> Steps:
        """Return the steps at which a quantity is asked for; all for one that is always recorded."""
        switch = asked.switch if isinstance(asked, Quantity) else asked
        chosen: Steps = EVERY_STEP if switch is None else getattr(self, switch.name)
        return chosen

    def choice(self, option: VariableOption) -> str:
        """Return the value of a further variable of a quantity."""
        return str(getattr(self, option.name))

    def patterns(self, option: VariableOption) -> Patterns:
        """Return the patterns of a further variable of a quantity; none where it is not set."""
        chosen: Patterns = getattr(self, option.name)
        return chosen

    def any_set(self) -> bool:
        """Return whether any variable asks for anything; else no hook is installed."""
        asked = (setting for setting in fields(self) if setting.name != "storage")  # a permission asks for nothing
        return any(getattr(self, setting.name) != setting.default for setting in asked)

    def as_text(self) -> dict[str, str | None]:
        """Return field name to text, None where not set, for a record."""
        return {setting.name: _text(getattr(self, setting.name)) for setting in fields(self)}


def _text(value: object) -> str | None:
    if value is None or (isinstance(value, Patterns) and not value):
        return None
    if isinstance(value, Steps):
        return value.text
    return str(int(value)) if isinstance(value, bool) else well_formed(str(value))


def _meant(name: str, known: Iterable[str]) -> str:
    """Return the variable that ``name`` misspells by a letter or in small letters; empty where it is none of ours."""
    if name.startswith(PREFIX) or name[:1] not in ("A", "a"):
        return ""
    return next(iter(difflib.get_close_matches(name.upper(), known, n=1, cutoff=1 - 0.75 / len(name))), "")


def _contradictions(values: dict[str, Any], environment: Mapping[str, str]) -> list[str]:
    problems = []
    recording = [switch.name for switch in SWITCHES if values.get(switch.name) and not switch.printed]
    if recording and PREFIX + "RUN" not in environment:
        names = ", ".join(PREFIX + name.upper() for name in recording)
        problems.append(f"{names}: nowhere to record to; set {PREFIX}RUN to a directory")
    target = values.get("run")
    for name in ("replay_batches", "load_weights", "inject_gradients", "replay_routing", "teacher"):
        source = values.get(name)
        if source is not None and source.path == target:
            problems.append(f"{PREFIX}{name.upper()}: {source.path} is also {PREFIX}RUN; record into another directory")
    source = values.get("load_weights")
    if source is not None and source.steps.single() is None:
        problems.append(f"{PREFIX}LOAD_WEIGHTS={source}: weights are those of one step; write {source.path}@N")
    if values.get("teacher_points") and values.get("teacher") is None:
        problems.append(f"{PREFIX}TEACHER_POINTS names points of a teacher; set {PREFIX}TEACHER to the run that gives them")
    if values.get("perturb") is not None and source is None:
        problems.append(f"{PREFIX}PERTURB moves weights that are loaded; set {PREFIX}LOAD_WEIGHTS to the reference that the noise is of")
    return problems
