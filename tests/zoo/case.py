"""What a case of the zoo is, and what it is held against."""

from collections.abc import Mapping
from dataclasses import dataclass, field

MEGATRON, MINDFORMERS, PYNATIVE = "megatron", "mindformers", "pynative"
Flags = Mapping[str, str | None]


@dataclass(frozen=True)
class Reference:
    """A run that candidates are held against. It starts from the weights of the reference ``start``, altered by ``weights``, a function of
    ``altered.py``; from its own without one. ``family`` names the files of its model, as in :class:`Case`.

    ``fed`` names the reference whose batches it is fed, altered by ``batches``, a function of ``altered.py``; without one it trains on its
    own data. With dropout it must be fed: on a CPU masks are drawn from the generator that a data loader seeds itself from.

    ``tree`` is a folder that :mod:`zoo.trees` makes, which it trains in; without one it is the environment's packages. ``recorded`` are
    variables beside ``EVERYTHING`` of ``frameworks.py``, ``environment`` some that are not ours.
    """

    flags: Flags = field(default_factory=dict)
    fed: str = ""
    batches: str = ""
    side: str = MEGATRON
    ranks: int | None = None
    family: str = "llama"
    change: Mapping[str, object] = field(default_factory=dict)
    start: str = "plain"
    weights: str = ""
    tree: str = ""
    recorded: Mapping[str, object] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One pair of runs. ``reference`` names what it is held against: one of ``REFERENCES`` of ``cases.py``. ``family`` names the model's
    files in ``launch/``.

    ``earlier`` are arguments of a first part of training, which ends with a checkpoint after iteration 2 and records nothing; the
    candidate is the second part. ``replayed`` says whether it is fed the reference's batches, or trains on its own data. One of the
    first ``among`` of what is named must match ``culprit``.

    ``commit`` of ``repository`` mended a fault, or claims to change nothing. The candidate trains in ``tree``, where ``edits`` of the
    package have taken it back, or else in its parent; ``forward`` where they make it, for the reference. One of ``causes``, ids of
    hypotheses, may be named in the place of a culprit. ``why`` says why a pair is not counted: it cannot be trained, or its fault not be
    reached. ``report`` is where a fault without a commit was reported. ``untouched`` has the first part of a training in the environment's
    packages.
    """

    name: str
    title: str
    kind: str
    stage: str = ""
    culprit: tuple[str, ...] = ()
    side: str = MEGATRON
    flags: Flags = field(default_factory=dict)
    change: Mapping[str, object] = field(default_factory=dict)
    plant: str = ""
    weights: str = ""
    batches: str = ""
    reference: str = "plain"
    ranks: int | None = None
    earlier: Flags | None = None
    replayed: bool = True
    among: int = 3
    script: str = ""
    family: str = "llama"
    repository: str = ""
    commit: str = ""
    wrong: str = ""
    tree: str = ""
    edits: tuple[Mapping[str, str], ...] = ()
    forward: bool = False
    causes: tuple[str, ...] = ()
    why: str = ""
    report: str = ""
    untouched: bool = False
    recorded: Mapping[str, object] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    def is_in(self, precision: str) -> bool:
        """Whether the case is one where both sides compute in ``precision``: rounding to bfloat16 is no fault of a bfloat16 run. Families
        other than Llama are pairs of both frameworks, in float32."""
        if self.kind == "main parameters":  # which half precision alone has
            return precision == "bfloat16"
        of_megatron = self.side == MEGATRON and self.family == "llama"
        return precision == "float32" or (of_megatron and self.kind != "precision" and self.name != "through_bfloat16")
