"""What a recorded quantity is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto


class Numbering(Enum):
    """What the number of a recorded one counts: the step that made it, or the updates that were made before it.

    A run of K steps has K of the first and K + 1 of the second.
    """

    STEP = auto()
    STATE = auto()


@dataclass(frozen=True, slots=True)
class VariableOption:
    """A further variable of a quantity: its name in small letters, the values that it takes, the default first, and what it does. Without
    values it takes patterns in a comma list."""

    name: str
    values: tuple[str, ...]
    effect: str


@dataclass(frozen=True, slots=True)
class Switch:
    """A variable that asks for a quantity at some steps.

    ``name`` is the variable's without the prefix and in small letters; ``effect`` is what the table of variables says, and ``options``
    stand behind it there. What is ``printed`` needs no record.
    """

    name: str
    effect: str
    options: tuple[VariableOption, ...] = ()
    printed: bool = False


@dataclass(frozen=True, slots=True)
class Quantity:
    """One kind of thing that a run records.

    ``name`` is what rows, manifests and reports call it. ``switch`` asks for it, None where it is always recorded. ``files`` are those that
    ``step_N/rank_M`` may hold of it, and ``whole`` is the one that is written last: a step has the quantity where this is. Those of a state
    lie in a folder that has its name. A kind without files is rows: ``NAME/rank_M.jsonl`` has one a step. ``shared`` are files of the run.

    ``of_gradients`` is what an overflow spoils, ``trainable`` what only trainable tensors have, and ``sketch_of`` the kind whose sketches
    it is. ``saved_by_hand`` is what the guide's snippet saves without hooks.

    ``copies`` is how many numbers in fp32 are written for every element of the model: they pass through the host's memory.
    ``token_bytes`` is what is written for every token of a batch, ``choice_bytes`` for every expert of it in every layer.
    ``kept_on_device`` is what MindFormers copies on the device first.
    """

    name: str
    switch: Switch | None
    numbering: Numbering = Numbering.STEP
    files: tuple[str, ...] = ()
    whole: str = ""
    shared: tuple[str, ...] = ()
    of_gradients: bool = False
    trainable: bool = False
    sketch_of: Quantity | None = None
    saved_by_hand: bool = False
    copies: int = 0
    token_bytes: int = 0
    choice_bytes: int = 0
    kept_on_device: bool = False

    @property
    def variable(self) -> str:
        """The name of the switch that asks for it; its own name where it is always recorded."""
        return self.name if self.switch is None else self.switch.name

    @property
    def is_state(self) -> bool:
        """Whether it is numbered by updates made."""
        return self.numbering is Numbering.STATE

    @property
    def is_rows(self) -> bool:
        """Whether it is a row a step, and no files of its own."""
        return not self.files

    def numbers(self, steps: range) -> range:
        """The numbers that a run of ``steps`` can have it of."""
        return range(steps.start, steps.stop + 1) if self.is_state else steps

    def possible(self, steps: Iterable[int]) -> set[int]:
        """The same of ``steps`` that may have gaps."""
        made = set(steps)
        return made | {step + 1 for step in made} if self.is_state else made
