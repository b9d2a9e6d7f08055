"""The description of a recorded quantity."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct


class VariableOption(Struct, frozen=True):
    """A further variable of a quantity."""

    name: str
    """Without the prefix, in small letters."""
    values: tuple[str, ...]
    """The default first; without values the variable takes patterns in a comma list."""
    effect: str


class Switch(Struct, frozen=True):
    """A variable that asks for a quantity at some steps."""

    name: str
    """Without the prefix, in small letters."""
    effect: str
    options: tuple[VariableOption, ...] = ()
    printed: bool = False
    """Whether it is printed where nothing is recorded."""


class Quantity(Struct, frozen=True):
    """A quantity that a run can record. Without files it is a row a step in ``NAME/rank_M.jsonl``."""

    name: str
    switch: Switch | None
    """None where it is always recorded."""
    is_state: bool = False
    """Whether number N is the state after N updates, not what was made in step N."""
    files: tuple[str, ...] = ()
    """Paths in ``step_N/rank_M``; those of a state lie in a folder of its name."""
    whole: str = ""
    """The file that is written last: a step with this file has the quantity."""
    shared: tuple[str, ...] = ()
    """Files of the run, not of a step."""
    of_gradients: bool = False
    """Whether an overflow of gradients spoils it."""
    trainable: bool = False
    """Whether only trainable tensors have it."""
    sketch_of: Quantity | None = None
    """The quantity whose sketches it holds."""
    saved_by_hand: bool = False
    """Whether the guide's snippet saves it without hooks."""
    copies: int = 0
    """fp32 numbers written for each element of the model."""
    token_bytes: int = 0
    """Bytes written for each token of a batch."""
    choice_bytes: int = 0
    """Bytes written for each expert of a token in each layer."""
    kept_on_device: bool = False
    """Whether MindFormers copies it on the device first."""

    @property
    def variable(self) -> str:
        """The switch's name; the quantity's where it is always recorded."""
        return self.name if self.switch is None else self.switch.name

    @property
    def is_rows(self) -> bool:
        """Whether it is a row a step, without files."""
        return not self.files

    def numbers(self, steps: range) -> range:
        """Return the numbers that it can have in a run of ``steps``."""
        return range(steps.start, steps.stop + 1) if self.is_state else steps

    def possible(self, steps: Iterable[int]) -> set[int]:
        """Return the same for ``steps`` with gaps."""
        return {number for step in steps for number in self.numbers(range(step, step + 1))}
