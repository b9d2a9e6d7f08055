"""A record held against itself: its ranks together hold every element once, and copies are copies.

Each rank writes its own shards and reads no other rank's. So only a reader of all ranks can notice a shard that was lost or counted
twice: the norm made of all recorded squared sums must be the norm that the framework took of gradients of its own
choice. Copies, of norms under tensor parallelism or of everything under data parallelism, must have one norm on all ranks. The
ranks of one data-parallel place must have been fed one batch. All ranks must have clipped by one norm. A loss function must have counted
the tokens of its mask, and its loss must be the mean of theirs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

import numpy as np

from align_hooks.errors import RecordError
from align_hooks.messages import Message, message
from align_hooks.record.format import layout
from align_hooks.record.format.layout import Array
from align_hooks.record.format.rows import RankRow
from align_hooks.record.read.batch import Batch, read_batch, sizes_of
from align_hooks.record.read.loss_weights import counts_agree
from align_hooks.record.read.rank_rows import KNOWN, SKIPPED, SPREADS
from align_hooks.record.read.run_rows import RunRows
from align_hooks.record.read.sums import counted_totals

SAME = 2e-6
"""How far a norm may be from itself taken again: both sums of the ranks' parts are fp32, in different orders."""
EXACT = 1e-6
"""How far two sums of the same squares may be apart: chunks are summed in fp32, and the pieces of a gradient are cut differently."""
UNKNOWN = 1e-4
"""How far a framework's norm may be from ours where its way cannot be repeated (compiled graphs)."""
MEAN = 1e-4
"""How far a loss may be from the mean of its tokens' losses, relative: both are sums in fp32 of one set of fp32 numbers."""
COPY = {"float32": 1e-5}
"""How far the norms of two copies may be apart, by compute type; :data:`HALF` for another."""
HALF = 1e-3
WEIGHT = 1e-4
"""How far two tokens' weights in the loss may be apart, relative, where they should be equal."""


class ContradictionKind(Enum):
    """What a record says twice and differently; the value is a message's id."""

    RANKS_OF_NORM = "self_check.ranks_of_norm"
    NORM_TAKEN_AGAIN = "self_check.norm_taken_again"
    NORM_OF_RANKS = "self_check.norm_of_ranks"
    ELEMENTS = "self_check.elements"
    LEFT_OUT = "self_check.left_out"
    COUNTED_ALONE = "self_check.counted_alone"
    GRADIENT_COPIES = "self_check.gradient_copies"
    WEIGHT_COPIES = "self_check.weight_copies"
    BATCH = "self_check.batch"
    GRAD_NORM = "self_check.grad_norm"
    LOSS_SCALE = "self_check.loss_scale"
    SKIPPED = "self_check.skipped"
    LOSS = "self_check.loss"
    COUNT = "self_check.count"
    WEIGHTS_OF_TOKENS = "self_check.weights_of_tokens"


OF_LOSS = (ContradictionKind.COUNT, ContradictionKind.WEIGHTS_OF_TOKENS, ContradictionKind.LOSS)
"""What a loss function of the script's own does, the cause before what follows from it."""


class Witness(Enum):
    """The source of a claim; the value is a message's id. The weight of tokens has no number: its id ends so."""

    FRAMEWORK = "self_check.by_framework"
    RECORD = "self_check.recorded"
    SAME_GRADIENTS = "self_check.by_same_gradients"
    COUNTED_GRADIENTS = "self_check.by_counted_gradients"
    RECORDED_NORMS = "self_check.by_recorded_norms"
    FIRST_RANK = "self_check.on_first_rank"
    LATER_RANK = "self_check.on_later_rank"
    COPY = "self_check.copy_on_rank"
    ARRAY = "self_check.array_on_rank"
    OTHER_ARRAY = "self_check.other_array_on_rank"
    RANK = "self_check.on_rank"
    RUN = "self_check.by_run"
    TOKEN_LOSSES = "self_check.by_token_losses"
    LOSS_FUNCTION = "self_check.by_loss_function"
    MASK = "self_check.by_mask"
    SETTINGS = "by_settings"
    DERIVATIVE = "in_derivative"


class Weighing(Enum):
    """The weight of tokens in a loss: equal for all tokens, equal for all micro-batches, or neither."""

    ALIKE = "alike"
    BY_MICRO_BATCH = "by_micro_batch"
    NEITHER = "neither"


@dataclass(frozen=True, slots=True)
class Statement:
    """One of two things that a record says of the same: its source, a value, None where there is no number to show, and the rank."""

    witness: Witness
    value: float | Weighing | None = None
    rank: int | None = None

    @property
    def words(self) -> Message:
        """The claim as a message."""
        if isinstance(self.value, Weighing):
            return message(f"self_check.{self.value.value}_{self.witness.value}")
        return message(self.witness.value, **_without_none(value=self.value, rank=self.rank))


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A step's fact that a record says twice and differently, with the two claims. ``name`` is the tensor or the array, ``rank`` the odd
    rank where there is one, ``place`` its data-parallel rank where that was fed otherwise, and ``count`` how many ranks are odd where their
    numbers are unknown."""

    step: int
    kind: ContradictionKind
    first: Statement
    second: Statement
    name: str = ""
    rank: int | None = None
    place: int | None = None
    count: int | None = None

    @property
    def is_of_loss(self) -> bool:
        """Whether a loss function of the script's own makes the two claims: none counts NaN or infinitely many tokens."""
        claims = (self.first.value, self.second.value)
        finite = all(math.isfinite(value) for value in claims if isinstance(value, float))
        return self.kind is ContradictionKind.LOSS or (self.kind in OF_LOSS and finite)

    @property
    def subject(self) -> Message:
        """The fact that the two claims are about, as a message."""
        return message(self.kind.value, **_without_none(name=self.name or None, rank=self.rank, place=self.place, count=self.count))


def _without_none(**arguments: str | float | None) -> dict[str, str | float]:
    return {name: value for name, value in arguments.items() if value is not None}


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """``steps`` are the steps whose norms were held against the framework's, ``unchecked`` those at which the framework took none.
    ``copies`` is how many copies on other ranks were compared; ``inexact`` the largest relative distance between the framework's norm and
    the exact norm, which is the framework's own rounding."""

    steps: tuple[int, ...]
    unchecked: tuple[int, ...]
    copies: int
    inexact: float
    contradictions: tuple[Contradiction, ...]

    @property
    def of_layout(self) -> list[Contradiction]:
        """Contradictions of what was recorded: shards, copies, batches, numbers of ranks."""
        return [contradiction for contradiction in self.contradictions if not contradiction.is_of_loss]

    @property
    def of_losses(self) -> list[Contradiction]:
        """What the run's own loss function makes otherwise than its tokens' losses and its mask say: the record is whole."""
        return [contradiction for contradiction in self.contradictions if contradiction.is_of_loss]


def self_check(run: RunRows) -> SelfCheck:
    """Hold a run, made by ``open_run``, against itself, every recorded step; raises RecordError where a file is not whole. The norms of a
    run that lacks a rank are unchecked: elements of the missing rank are not lost."""
    contradictions: list[Contradiction] = []
    checked: list[int] = []
    unchecked: list[int] = []
    inexact = 0.0
    limit = COPY.get(run.facts.training.compute_type or "float32", HALF)
    copies = copies_of(run)
    whole = len(run.manifests) == run.world_size
    norms = run.local_norm_steps()
    ours = counted_totals(run, norms)
    for step in norms:
        calls = taken_norms(run, step) if whole else []
        (checked if calls else unchecked).append(step)
        contradictions += [*recomputed(step, calls), *accounted(run, step, calls, ours[step])]
        inexact = max([inexact, *(_apart(call.norm, math.sqrt(call.exact)) for call in calls if call.exact is not None)])
    contradictions += unlike_gradients(run, norms, copies, limit)
    for step in run.weight_steps():
        squares = {rank: run.weight_squares(rank, step) for rank in run.manifests}
        contradictions += unlike_weights(step, copies, squares, limit)
    if run.manifests:
        for step in run.batch_steps():
            contradictions += [*fed_alike(run, step), *averaged(run, step), *counted(run, step)]
        for step in suspects(run):
            rows = run.rank_rows(step)
            contradictions += [*agreed(rows, step), *weighed(run, rows, step)]
    ordered = tuple(sorted(contradictions, key=lambda contradiction: contradiction.step))
    return SelfCheck(tuple(checked), tuple(unchecked), sum(len(ranks) - 1 for ranks in copies.values()), inexact, ordered)


@dataclass(frozen=True, slots=True)
class NormRecheck:
    """One norm that the framework took: its result, and the sum of its ranks' squares in the framework's way and in ours."""

    norm: float
    same: float | None
    exact: float | None
    ranks: int
    expected: int
    repeated: tuple[float, ...]


def taken_norms(run: RunRows, step: int) -> list[NormRecheck]:
    """The norms that the framework took at a step: one norm, or one of experts and one of the other parameters. Where ranks took the same
    norm of copies (data-parallel ranks, without a distributed optimizer) the first group is used."""
    tables = {rank: run.norm_rows(rank).taken[step] for rank in run.manifests}
    norms = []
    for index in range(max(map(len, tables.values()), default=0)):
        rows = [table[index] for table in tables.values() if index < len(table)]
        first = min(row.first for row in rows)
        group = [row for row in rows if row.first == first]
        same, exact = _sum([row.same for row in group]), _sum([row.exact for row in group])
        norms.append(NormRecheck(rows[0].norm, same, exact, len(group), group[0].ranks, tuple(row.norm for row in rows[1:])))
    return norms


def _sum(parts: Sequence[float | None]) -> float | None:
    """The sum of all parts; None where a part is unknown."""
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def recomputed(step: int, calls: Sequence[NormRecheck]) -> Iterator[Contradiction]:
    """Whether each norm is the norm of its gradients, taken again in the same way, and the same on all ranks."""
    for call in calls:
        if call.ranks != call.expected:
            yield Contradiction(
                step, ContradictionKind.RANKS_OF_NORM, Statement(Witness.FRAMEWORK, call.expected), Statement(Witness.RECORD, call.ranks)
            )
        elif call.same is not None and _apart(call.norm, math.sqrt(call.same)) > SAME:
            norms = Statement(Witness.FRAMEWORK, call.norm), Statement(Witness.SAME_GRADIENTS, math.sqrt(call.same))
            yield Contradiction(step, ContradictionKind.NORM_TAKEN_AGAIN, *norms)
        odd = [norm for norm in call.repeated if _apart(call.norm, norm) > SAME]
        if odd:
            norms = Statement(Witness.FIRST_RANK, call.norm), Statement(Witness.LATER_RANK, odd[0])
            yield Contradiction(step, ContradictionKind.NORM_OF_RANKS, *norms, count=len(odd))


def accounted(run: RunRows, step: int, calls: Sequence[NormRecheck], ours: float) -> Iterator[Contradiction]:
    """Whether the recorded norms, of squared sum ``ours``, make up the framework's: no gradient is lost, none counts twice."""
    if not calls:
        return
    exact = all(call.exact is not None for call in calls)
    theirs = math.fsum(call.exact if call.exact is not None else call.norm * call.norm for call in calls)
    if _apart(math.sqrt(theirs), math.sqrt(ours)) > (EXACT if exact else UNKNOWN):
        norms = Statement(Witness.COUNTED_GRADIENTS, math.sqrt(theirs)), Statement(Witness.RECORDED_NORMS, math.sqrt(ours))
        rank, native = _culprit(run, step, ours - theirs, ours * 4 * EXACT) or (None, "")
        kind = (
            ContradictionKind.ELEMENTS if rank is None else ContradictionKind.LEFT_OUT if ours > theirs else ContradictionKind.COUNTED_ALONE
        )
        yield Contradiction(step, kind, *norms, name=native, rank=rank)


def _culprit(run: RunRows, step: int, difference: float, blur: float) -> tuple[int, str] | None:
    """The rank and the parameter whose squares are the difference; None where no parameter or several fit."""
    squares = {rank: run.norm_rows(rank).named(step) for rank in run.manifests}
    sums: dict[tuple[int, str], float] = {}
    for rank in run.manifests:
        for shard in run.shards(rank):
            if shard.trainable:
                key = rank, shard.native
                sums[key] = sums.get(key, 0.0) + squares[rank].get(shard.name, 0.0)
    near = [key for key, squared in sums.items() if squared > 0 and abs(squared - abs(difference)) <= max(blur, 1e-4 * squared)]
    alone = len({native for _, native in near}) == 1
    return max(near) if alone else None  # the first copy counts, so a later copy is the odd one


Extent: TypeAlias = tuple[str, tuple[tuple[int, int], ...], tuple[int, int] | None]
"""Canonical name, box and range of a shard."""


def copies_of(run: RunRows) -> dict[Extent, list[int]]:
    """The extents that several ranks hold, to these ranks; the rank that counts comes first."""
    holders: dict[Extent, list[tuple[bool, int]]] = {}
    for rank in run.manifests:
        for shard in run.shards(rank):
            if shard.trainable:
                holders.setdefault((shard.name, shard.box, shard.flat), []).append((not shard.counted, rank))
    return {extent: [rank for _, rank in sorted(ranks)] for extent, ranks in holders.items() if len(ranks) > 1}


def unlike_gradients(run: RunRows, steps: Sequence[int], copies: Mapping[Extent, list[int]], limit: float) -> Iterator[Contradiction]:
    """Copies of a gradient whose norm is not that on the rank that counts; the worst rank of each tensor, at every step."""
    for (name, _, _), ranks in copies.items():
        norms = np.sqrt(np.stack([run.norm_rows(rank).column(name, steps) for rank in ranks]))
        with np.errstate(invalid="ignore"):
            error = np.abs(norms - norms[0]) / np.maximum(norms, norms[0])
        error[(norms == norms[0]) | np.isnan(norms) | np.isnan(norms[0])] = 0.0
        error[np.isnan(error)] = np.inf
        for index in np.flatnonzero((error > limit).any(axis=0)).tolist():
            worst = int(error[:, index].argmax())
            counts, differs = (Statement(Witness.COPY, float(norms[copy, index]), ranks[copy]) for copy in (0, worst))
            yield Contradiction(steps[index], ContradictionKind.GRADIENT_COPIES, counts, differs, name=name, rank=ranks[worst])


def unlike_weights(
    step: int, copies: Mapping[Extent, list[int]], squares: Mapping[int, Mapping[str, float]], limit: float
) -> Iterator[Contradiction]:
    """The same of weights."""
    for (name, _, _), ranks in copies.items():
        norms = {rank: math.sqrt(squares[rank][name]) for rank in ranks if name in squares[rank]}
        counted = norms.pop(ranks[0], math.nan)
        apart = [(error, rank) for rank, norm in norms.items() if (error := _apart(counted, norm)) > limit]
        if apart and not math.isnan(counted):
            rank = max(apart)[1]
            claims = Statement(Witness.COPY, counted, ranks[0]), Statement(Witness.COPY, norms[rank], rank)
            yield Contradiction(step, ContradictionKind.WEIGHT_COPIES, *claims, name=name, rank=rank)


def fed_alike(run: RunRows, step: int) -> Iterator[Contradiction]:
    """Arrays of the batch that differ between ranks of one data- and context-parallel place, by their digests."""
    seen: dict[tuple[int, int, str], tuple[int, str]] = {}
    for rank, fed in run.batch_descriptions(step).items():
        place = run.manifests[rank].place
        digests = {name: stored.sha256 for name, stored in fed.arrays.items() if name in layout.FED}
        digests |= {"attention_mask": "causal"} if fed.attention_mask == "causal" else {}
        for name, digest in digests.items():
            key = (0, 0, name) if fed.joined_first and fed.joined_first.whole else (place.get("dp", rank), place.get("cp", 0), name)
            first, expected = seen.setdefault(key, (rank, digest))
            if digest != expected:
                arrays = Statement(Witness.ARRAY, rank=first), Statement(Witness.OTHER_ARRAY, rank=rank)
                yield Contradiction(step, ContradictionKind.BATCH, *arrays, name=name, rank=rank, place=key[0])


def agreed(rows: Mapping[int, RankRow], step: int) -> Iterator[Contradiction]:
    """Numbers of a step that must be equal on every rank."""
    first, reference = next(iter(rows.items()))
    for key, kind in (
        ("grad_norm", ContradictionKind.GRAD_NORM),
        ("loss_scale", ContradictionKind.LOSS_SCALE),
        ("skipped", ContradictionKind.SKIPPED),
    ):
        for rank, row in rows.items():
            expected, value = getattr(reference, key), getattr(row, key)
            if expected is not None and value is not None and _apart(float(expected), float(value)) > SAME:
                yield Contradiction(step, kind, Statement(Witness.RANK, expected, first), Statement(Witness.RANK, value, rank), rank=rank)
                break


def suspects(run: RunRows) -> list[int]:
    """The whole steps that :func:`agreed` and :func:`weighed` have to look at: by columns, nothing is found at any other."""
    columns = run.columns(run.steps)
    suspect = np.zeros(len(run.steps), bool)
    first, *others = columns.values()
    for of_rank in columns.values():
        suspect |= of_rank["kept"]
    for of_rank in others:
        for key in ("grad_norm", "loss_scale"):
            suspect |= _may_differ(first[key], of_rank[key])
        known = first["flags"] & of_rank["flags"] & KNOWN
        suspect |= (known > 0) & ((first["flags"] ^ of_rank["flags"]) & SKIPPED > 0)
    names = SPREADS[:2] if run.facts.training.per_token_loss else SPREADS[2:]
    least, most = (np.array([of_rank[name] for of_rank in columns.values()]) for name in names)
    lowest, highest = np.fmin.reduce(least), np.fmax.reduce(most)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        alike = np.isnan(highest) | ((lowest > 0) & np.isfinite(highest) & (highest / lowest - 1 <= WEIGHT / 2))
    return [run.steps[index] for index in np.flatnonzero(suspect | ~alike).tolist()]


def _may_differ(ours: Array, theirs: Array) -> Array:
    """Where two numbers, both known, are so far apart that it matters, or nearly."""
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(ours - theirs) > SAME / 2 * np.maximum(np.abs(ours), np.abs(theirs))
    return np.asarray(apart & ~np.isnan(ours) & ~np.isnan(theirs))


def averaged(run: RunRows, step: int) -> Iterator[Contradiction]:
    """Whether a step's loss is the mean of its tokens' losses under the mask, as both frameworks' own loss functions make it. Where it is
    not, the script weighs tokens otherwise, or adds a term that belongs to no token. A loss whose number of tokens nobody says is the mean
    over micro-batches, each of which is the mean of its own tokens; of context-parallel ranks nobody knows what each divides by."""
    row = run.row(step)
    try:
        batch = read_batch(run, step, ("token_losses", "loss_mask"))
    except RecordError:  # the reading of the batch reports the error
        return
    losses, mask = batch.token_losses, batch.loss_mask
    loss, counted = (None, None) if row is None else (row.loss, row.valid_tokens)
    if loss is None or not math.isfinite(loss) or losses is None or mask is None or mask.shape != losses.shape:
        return
    weights = mask.astype(np.float64)
    weighted = np.where(weights > 0, losses, 0) * weights  # the loss of a token that does not count is arbitrary
    if counted is None:
        if not batch.slices and _apart(mean := _mean_of_micro_batches(weighted, weights, batch), loss) > MEAN:
            yield Contradiction(step, ContradictionKind.LOSS, Statement(Witness.RUN, loss), Statement(Witness.TOKEN_LOSSES, mean))
        return
    total = float(weighted.sum())
    counts = [float(count) for count in (weights.sum(), counted) if count]  # Megatron counts a mask's weights in whole tokens
    mean = total / counts[0] if counts else loss
    if all(_apart(total / count, loss) > MEAN for count in counts) and counts:
        yield Contradiction(step, ContradictionKind.LOSS, Statement(Witness.RUN, loss), Statement(Witness.TOKEN_LOSSES, mean))


def _mean_of_micro_batches(weighted: Array, weights: Array, batch: Batch) -> float:
    """The mean over micro-batches of all data-parallel ranks of the mean over the tokens of each."""
    cuts = np.cumsum(sizes_of(batch.rows))[:-1]
    means = [float(of.sum()) / max(float(by.sum()), 1.0) for of, by in zip(np.split(weighted, cuts), np.split(weights, cuts), strict=True)]
    return sum(means) / len(means)


def counted(run: RunRows, step: int) -> Iterator[Contradiction]:
    """Whether the tokens that a step's loss function counted are those of its mask. Where they are not, it divides by another number, or
    something else was recorded for the mask."""
    row = run.row(step)
    try:
        batch = read_batch(run, step, ("loss_mask",))
    except RecordError:  # the reading of the batch reports the error
        return
    count = None if row is None else row.valid_tokens
    if count is None or batch.loss_mask is None or counts_agree(batch, count):
        return
    total = float(batch.loss_mask.sum(dtype=np.float64))
    yield Contradiction(step, ContradictionKind.COUNT, Statement(Witness.LOSS_FUNCTION, count), Statement(Witness.MASK, total))


def weighed(run: RunRows, rows: Mapping[int, RankRow], step: int) -> Iterator[Contradiction]:
    """The weight of tokens in the differentiated objective, against the weight by the run's settings. A micro-batch's share of the
    objective over its sum of losses is the weight of each of its tokens: one weight for all with a per-token loss, one over the
    micro-batch's number of tokens without."""
    shares = [share for row in rows.values() for share in row.micro_batches]
    known = [
        (objective / loss, tokens)
        for loss, tokens, objective in shares
        if loss and tokens and objective is not None and math.isfinite(loss)
    ]
    by_count, by_micro_batch = _spread([weight for weight, _ in known]), _spread([weight * tokens for weight, tokens in known])
    per_token = bool(run.facts.training.per_token_loss)
    if (by_count if per_token else by_micro_batch) > WEIGHT:
        seen = Weighing.BY_MICRO_BATCH if by_micro_batch <= WEIGHT else Weighing.ALIKE if by_count <= WEIGHT else Weighing.NEITHER
        asked = Statement(Witness.SETTINGS, Weighing.ALIKE if per_token else Weighing.BY_MICRO_BATCH)
        yield Contradiction(step, ContradictionKind.WEIGHTS_OF_TOKENS, asked, Statement(Witness.DERIVATIVE, seen))


def _spread(values: Sequence[float]) -> float:
    """How far apart weights are, relative; infinite for a weight that is negative, 0 or not a number."""
    if not all(math.isfinite(value) and value > 0 for value in values):
        return math.inf
    return max(values) / min(values) - 1 if values else 0.0


def _apart(a: float, b: float) -> float:
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    if not (math.isfinite(a) and math.isfinite(b)):
        return math.inf
    return abs(a - b) / max(abs(a), abs(b))
