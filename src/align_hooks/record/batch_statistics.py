"""Statistics of recorded batches: the data check that the guide asks to be done by eye.

Problems are ids outside the vocabulary, labels that are not the next token, and samples that no text makes: one id over
and over, or nothing that counts. Notes are special ids that count and repeated samples. ``check``, ``compare`` and
``show`` report the same statistics.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from msgspec import Struct, field

from align_hooks.errors import RecordError
from align_hooks.messages import Message, message
from align_hooks.messages.progress import Progress, silent
from align_hooks.record.format.layout import Array

if TYPE_CHECKING:  # `check` of two files opens no record
    from align_hooks.record.read.batch import Batch
    from align_hooks.record.reader import Run

Decode: TypeAlias = Callable[[Sequence[int]], str]
"""A tokenizer's decoding of ids to text."""
SHORTEST, FEW = 32, 0.02
"""The fewest tokens of a sample that may be odd, and the largest share of different ids in an odd sample."""
SHOWN, WORDS = 3, 48
"""The most samples that are decoded or reported, and the tokens of each that are decoded."""
ARRAYS = ("tokens", "labels", "loss_mask")
ALIKE = 1e-9
"""The largest relative distance of two equal weights of a token, both computed in fp64."""
WEIGHTS = "weights"
"""The name of the array of tokens' weights in the objective (:mod:`.read.loss_weights`)."""
Place: TypeAlias = tuple[int, int]
"""Step and row of a sample."""


class SampleRelation(Enum):
    """How the samples of two runs relate that have different tokens."""

    OTHER_ORDER = "the same samples in another order"
    OTHER_TIMES = "the same samples, some of them more often on one side"
    OTHER_SAMPLES = "different samples"


class Occurs(Struct, frozen=True):
    """The occurrences of an id among tokens."""

    times: int = 0
    followed: int = 0
    """Occurrences that count, or are followed by a token of their sample that counts."""


class BatchStatistics(Struct):
    """Statistics of one run's batches."""

    steps: list[int] = field(default_factory=list)
    rows: int = 0
    tokens: int = 0
    counted: int = 0
    """Tokens in the loss."""
    smallest: int | None = None
    """The lowest id; None without tokens."""
    largest: int | None = None
    """The highest id; None without tokens."""
    shifted: int = 0
    """Pairs whose label is the next token."""
    pairs: int = 0
    """Labels in the loss that have a next token in their sample."""
    special: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """Name of a special id to its occurrences, those in the loss, and the id."""
    occurs: dict[int, Occurs] = field(default_factory=dict)
    """Occurrences of other ids."""
    samples: dict[str, list[Place]] = field(default_factory=dict)
    """Digest of a sample to all its places."""
    problems: list[Message] = field(default_factory=list)
    """Faults of the data, the gravest first."""
    notes: list[Message] = field(default_factory=list)
    """Properties of the data that may be intended."""
    decoded: list[tuple[Message, str]] = field(default_factory=list)
    """Place and text of some samples."""
    digests: dict[int, dict[str, str]] = field(default_factory=dict)
    """Step to the digest of each array."""
    weighs: dict[int, Array] = field(default_factory=dict)
    """Step to the smallest and the largest weight of a token in the loss, ``[rows, 2]``."""

    def add(self, step: int, batch: Mapping[str, Array], special: Mapping[str, int | None], decode: Decode | None = None) -> None:
        """Add the batch of a step; arguments as of :func:`statistics_of`."""
        self.steps.append(step)
        arrays = {name: np.asarray(array) for name, array in batch.items() if name in ARRAYS}
        if "tokens" not in arrays or arrays["tokens"].dtype.kind not in "iu":
            self.notes.append(message("batches.no_tokens", step=step, iteration=step + 1))
            return
        tokens = arrays["tokens"].reshape(-1, arrays["tokens"].shape[-1] if arrays["tokens"].ndim else 1)
        fit = {name: array.reshape(tokens.shape) for name, array in arrays.items() if array.size == tokens.size}
        self.notes += [message("batches.other_shape", name=name, step=step, iteration=step + 1) for name in arrays if name not in fit]
        counted = fit["loss_mask"] > 0 if "loss_mask" in fit else np.ones(tokens.shape, bool)
        _count(self, tokens, fit.get("labels"), counted)
        for name, token in special.items():
            if token is not None:
                occurs = tokens == int(token)
                times, times_counted, _ = self.special.get(name, (0, 0, token))
                self.special[name] = (times + int(occurs.sum()), times_counted + int((occurs & counted).sum()), int(token))
        for row, sample in enumerate(tokens):
            _sample(self, (step, row), sample, counted[row], decode)
        self.digests[step] = {name: digest(array) for name, array in fit.items()}
        weights = batch.get(WEIGHTS)
        if weights is not None and weights.size:
            least = np.where(weights > 0, weights, np.inf).min(axis=1)
            self.weighs[step] = np.stack([least, weights.max(axis=1)], axis=1)


def statistics_of(
    batches: Iterable[tuple[int, Mapping[str, Array]]],
    vocabulary: int | None,
    special: Mapping[str, int | None],
    decode: Decode | None = None,
    rows: int | None = None,
    ids: Iterable[int] = (),
) -> BatchStatistics:
    """Return statistics of batches, of which memory holds one at a time.

    A batch is its step and its arrays, ``[rows, length]``: int tokens and labels, a float loss mask, and the tokens'
    weights where known. ``special`` are ids by name, ``rows`` those of the embedding with padding, ``ids`` others to count.
    """
    seen = BatchStatistics(occurs=dict.fromkeys(ids, Occurs()))
    for step, batch in batches:
        seen.add(step, batch, special, decode)
    conclude(seen, vocabulary, rows)
    return seen


def of_run(
    run: Run, special: Mapping[str, int | None], decode: Decode | None = None, progress: Progress = silent, ids: Iterable[int] = ()
) -> BatchStatistics | None:
    """Return statistics of every batch that a run recorded; None without batches."""
    steps = run.batch_steps()
    if not steps:
        return None

    def batches() -> Iterator[tuple[int, Mapping[str, Array]]]:
        for index, step in enumerate(steps):
            progress(message("progress.batch", step=step, iteration=step + 1), index, len(steps))
            yield step, arrays_of(run, run.batch(step, ARRAYS))

    return statistics_of(batches(), vocabulary_of(run), special, decode, run.facts.padded_vocabulary, ids)


def arrays_of(run: Run, batch: Batch) -> dict[str, Array]:
    """Return the arrays of a run's batch for its statistics."""
    from align_hooks.record.read.loss_weights import weights_of_tokens

    weights = weights_of_tokens(batch, run.facts.training)
    return batch.arrays() | ({} if weights is None else {WEIGHTS: weights})


def vocabulary_of(run: Run) -> int | None:
    """Return the number of ids of a run's model; None where unknown."""
    size = run.facts.model.get("vocab_size") or run.facts.padded_vocabulary
    return size if isinstance(size, int) else None


def digest(array: Array) -> str:
    """Return the digest of an array's numbers, equal for all recorded types."""
    return hashlib.sha256(np.ascontiguousarray(array, np.float64 if array.dtype.kind == "f" else np.int64)).hexdigest()


def _count(seen: BatchStatistics, tokens: Array, labels: Array | None, counted: Array) -> None:
    if labels is not None:
        counted = counted & (labels >= 0)  # ids that are to be ignored are below 0
    seen.rows += len(tokens)
    seen.tokens += tokens.size
    seen.counted += int(counted.sum())
    if tokens.size:
        least, most = int(tokens.min()), int(tokens.max())
        seen.smallest = least if seen.smallest is None else min(least, seen.smallest)
        seen.largest = max(most, -1 if seen.largest is None else seen.largest)
    if labels is not None and tokens.shape[1] > 1:
        seen.pairs += int(counted[:, :-1].sum())
        seen.shifted += int((counted[:, :-1] & (labels[:, :-1] == tokens[:, 1:])).sum())
    followed = np.logical_or.accumulate(counted[:, ::-1], axis=1)[:, ::-1]
    for id, before in seen.occurs.items():
        here = tokens == id
        seen.occurs[id] = Occurs(before.times + int(here.sum()), before.followed + int((here & followed).sum()))


def _sample(seen: BatchStatistics, place: Place, sample: Array, counted: Array, decode: Decode | None) -> None:
    seen.samples.setdefault(digest(sample), []).append(place)
    odd, fewest = None, max(1, int(FEW * sample.size))
    if sample.size >= SHORTEST and len(np.unique(sample[: 8 * fewest])) <= fewest and (different := len(np.unique(sample))) <= fewest:
        odd = message("batches.few_ids", place=_place(place), different=different, ids=sample.size)
    elif not counted.any():
        odd = message("batches.row_does_not_count", place=_place(place))
    if odd is not None:
        seen.problems.append(odd)
    if decode is not None and (odd is not None or not seen.decoded) and len(seen.decoded) < SHOWN:
        seen.decoded.append((_place(place), decode([int(token) for token in sample[:WORDS]])))


def _place(place: Place) -> Message:
    step, row = place
    return message("batches.place", step=step, iteration=step + 1, row=row)


def conclude(seen: BatchStatistics, vocabulary: int | None, rows: int | None = None) -> None:
    """Add the problems of all batches together, the gravest first, once every batch was added."""
    first: list[Message] = []
    if seen.smallest is not None and seen.smallest < 0:
        first.append(message("batches.below", id=seen.smallest))
    if vocabulary and seen.largest is not None and seen.largest >= vocabulary:
        last = {"id": seen.largest, "last": vocabulary - 1}
        if rows and seen.largest < rows:
            seen.notes.append(message("batches.in_the_padding", rows=rows, **last))
        else:
            first.append(message("batches.above", **last))
    if seen.pairs and seen.shifted < seen.pairs:
        labels = {"labels": seen.pairs - seen.shifted, "pairs": seen.pairs}
        if seen.shifted / seen.pairs < 0.5:
            first.append(message("batches.not_shifted", **labels))
        else:
            seen.notes.append(message("batches.documents_meet", **labels))
    _, counted, token = seen.special.get("pad_token_id", (0, 0, 0))
    if counted:
        seen.notes.append(message("batches.padding_counts", id=token, times=counted))
    if seen.tokens and not seen.pairs:
        seen.notes.append(message("batches.no_labels"))
    repeats = [places for places in seen.samples.values() if len(places) > 1]
    if repeats:
        seen.notes.append(message("batches.repeats", count=len(repeats), place=_place(repeats[0][0]), other=_place(repeats[0][1])))
    if seen.tokens and not seen.counted:
        first.append(message("batches.nothing_counts"))
    seen.problems[:0] = first


def problems_of(seen: BatchStatistics | None) -> list[Message]:
    """Return the first problems, and the number of further ones: an odd sample seldom comes alone."""
    problems = seen.problems if seen is not None else []
    more = [message("batches.more_problems", count=len(problems) - SHOWN)] if len(problems) > SHOWN else []
    return [*(message("batches.problem", what=problem) for problem in problems[:SHOWN]), *more]


def of_data(run: Run) -> Iterator[Message]:
    """Yield problems of the recorded batches, as ``check`` reports them, and a loss mask that was not seen."""
    try:
        seen = of_run(run, {})
        unseen = [run.batch(step, ("tokens", "loss_mask")) for step in run.batch_steps()[:1]]
    except RecordError:  # the check of digests reports an incomplete file
        return
    yield from problems_of(seen)
    for batch in unseen:
        row = run.row(batch.step)
        count = row.valid_tokens if row is not None else None
        if batch.loss_mask is None and batch.tokens is not None and count not in (None, batch.tokens.size):
            yield message("health.mask_unseen", count=count, all=batch.tokens.size)


def shared_steps(reference: BatchStatistics | None, candidate: BatchStatistics | None) -> list[int]:
    """Return the steps with statistics of both runs, ascending."""
    return sorted(reference.digests.keys() & candidate.digests.keys()) if reference is not None and candidate is not None else []


def side_by_side(reference: BatchStatistics | None, candidate: BatchStatistics | None) -> tuple[Message | None, bool | None]:
    """Describe how two runs' samples relate, and say whether they are equal; None without statistics of a common step."""
    if reference is None or candidate is None:
        return None, None
    shared = shared_steps(reference, candidate)
    if not shared:
        return message("two_runs.no_step"), None
    for name in ARRAYS:
        digests = {step: {run.digests[step].get(name, "") for run in (reference, candidate)} for step in shared}
        differ = [step for step, of_step in digests.items() if len(of_step) > 1 and "" not in of_step]
        if not differ:
            continue
        numbers = {"differing": len(differ), "steps": len(shared), "step": differ[0], "iteration": differ[0] + 1}
        if name != "tokens":
            return message("two_runs.other_arrays", name=name, **numbers), False
        relation = relation_of(reference, candidate)
        if relation is SampleRelation.OTHER_ORDER:
            return message("two_runs.other_order", step=differ[0], iteration=differ[0] + 1), False
        if relation is SampleRelation.OTHER_TIMES:
            rows = {"reference": _times(reference, shared).total(), "candidate": _times(candidate, shared).total()}
            return message("two_runs.other_times", step=differ[0], iteration=differ[0] + 1, **rows), False
        return message("two_runs.other_tokens", **numbers, both=len(reference.samples.keys() & candidate.samples.keys())), False
    return message("two_runs.same", steps=len(shared)), True


def relation_of(reference: BatchStatistics, candidate: BatchStatistics) -> SampleRelation:
    """Return how the samples of the common steps relate, whose tokens differ."""
    shared = shared_steps(reference, candidate)
    times, other_times = (_times(run, shared) for run in (reference, candidate))
    if times == other_times:
        return SampleRelation.OTHER_ORDER
    return SampleRelation.OTHER_TIMES if times.keys() == other_times.keys() else SampleRelation.OTHER_SAMPLES


def _times(seen: BatchStatistics, steps: Sequence[int]) -> Counter[str]:
    """Return the number of occurrences of each sample at some steps."""
    among = {*steps}
    return Counter({sample: times for sample, places in seen.samples.items() if (times := sum(step in among for step, _ in places))})


def weigh_alike(reference: BatchStatistics | None, candidate: BatchStatistics | None) -> bool | None:
    """Return whether both objectives weigh the tokens of common steps equally; None where tokens or masks differ, or were not recorded."""
    if reference is None or candidate is None:
        return None
    shared = sorted(reference.weighs.keys() & candidate.weighs.keys())
    of_both = [[(run.digests[step].get("tokens"), run.digests[step].get("loss_mask")) for step in shared] for run in (reference, candidate)]
    if not shared or of_both[0] != of_both[1]:
        return None
    return all(np.allclose(reference.weighs[step], candidate.weighs[step], rtol=ALIKE, atol=0) for step in shared)
