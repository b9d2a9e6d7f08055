"""Recorded batches, looked at one by one: what the guide's data check asks to be done by eye.

Ids within the vocabulary, labels that are the next token, what the loss mask leaves out, special ids, samples that repeat, and samples
that no text makes: one id over and over, nothing that counts. Two looks beside each other say how the samples of two runs relate.
``check``, ``compare`` and ``show`` have it from here, so that they say the same.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

import numpy as np

from align_hooks.errors import RecordError
from align_hooks.messages import Message, message
from align_hooks.messages.progress import Progress, silent
from align_hooks.record.format.layout import Array
from align_hooks.record.read.batch import Batch
from align_hooks.record.read.loss_weights import weights_of_tokens
from align_hooks.record.reader import Run

Decode: TypeAlias = Callable[[Sequence[int]], str]
"""What makes text of ids."""
SHORTEST, FEW = 32, 0.02
"""A sample of at least so many tokens is odd if the different ids among them are no more than this part."""
SHOWN, WORDS = 3, 48
"""Samples that are decoded or told of, and tokens of each that is decoded."""
ARRAYS = ("tokens", "labels", "loss_mask")
ALIKE = 1e-9
"""How far two weights of a token may be apart, relative: each is made in fp64."""
WEIGHTS = "weights"
"""The name under which a look is handed what each token weighs (:mod:`.loss_weights`)."""
Place: TypeAlias = tuple[int, int]
"""Step and row of a sample."""


class SampleRelation(Enum):
    """How the samples of two runs relate that have different tokens."""

    OTHER_ORDER = "the same samples in another order"
    OTHER_TIMES = "the same samples, some of them more often on one side"
    OTHER_SAMPLES = "different samples"


@dataclass(frozen=True, slots=True)
class Occurs:
    """How often an id is a token, and how many of these tokens count or have a token that counts after them in their sample."""

    times: int = 0
    followed: int = 0


@dataclass(slots=True)
class BatchStatistics:
    """What one run's batches hold.

    ``problems`` are what no training wants, ``notes`` what a reader should know. ``special`` says how often a special id is a token, how
    often it is one where the loss counts, and the id. ``occurs`` says of other ids how often each is a token. ``samples`` are the places of
    each sample by its digest, to see repeats and to lay two runs side by side. ``decoded`` is the place and the text of some samples.
    ``weighs`` has of each step the least and the most that a token that counts weighs, ``[rows, 2]``.
    """

    steps: list[int] = field(default_factory=list)
    rows: int = 0
    tokens: int = 0
    counted: int = 0
    smallest: int | None = None
    largest: int | None = None
    shifted: int = 0
    pairs: int = 0
    special: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    occurs: dict[int, Occurs] = field(default_factory=dict)
    samples: dict[str, list[Place]] = field(default_factory=dict)
    problems: list[Message] = field(default_factory=list)
    notes: list[Message] = field(default_factory=list)
    decoded: list[tuple[Message, str]] = field(default_factory=list)
    digests: dict[int, dict[str, str]] = field(default_factory=dict)
    weighs: dict[int, Array] = field(default_factory=dict)

    def add(self, step: int, batch: Mapping[str, Array], special: Mapping[str, int | None], decode: Decode | None = None) -> None:
        """Look at the batch of a step: see :func:`look`."""
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


def look(
    batches: Iterable[tuple[int, Mapping[str, Array]]],
    vocabulary: int | None,
    special: Mapping[str, int | None],
    decode: Decode | None = None,
    rows: int | None = None,
    ids: Iterable[int] = (),
) -> BatchStatistics:
    """Look at every batch in turn, and hold no more than one; ``special`` are ids by name, ``decode`` is a tokenizer's, ``rows`` are those
    of the embedding, with padding, and ``ids`` others that are to be counted.

    A batch is its step and its arrays: tokens and labels (int, [rows, length]), loss mask (float, of the same shape), and what each token
    weighs, where that is known.
    """
    seen = BatchStatistics(occurs=dict.fromkeys(ids, Occurs()))
    for step, batch in batches:
        seen.add(step, batch, special, decode)
    conclude(seen, vocabulary, rows)
    return seen


def of_run(
    run: Run, special: Mapping[str, int | None], decode: Decode | None = None, progress: Progress = silent, ids: Iterable[int] = ()
) -> BatchStatistics | None:
    """A look at every batch that a run recorded; None where it recorded none."""
    steps = run.batch_steps()
    if not steps:
        return None

    def batches() -> Iterator[tuple[int, Mapping[str, Array]]]:
        for index, step in enumerate(steps):
            progress(message("progress.batch", step=step, iteration=step + 1), index, len(steps))
            yield step, arrays_of(run, run.batch(step, ARRAYS))

    return look(batches(), vocabulary_of(run), special, decode, run.facts.padded_vocabulary, ids)


def arrays_of(run: Run, batch: Batch) -> dict[str, Array]:
    """The arrays that a look is handed of a run's batch."""
    weights = weights_of_tokens(batch, bool(run.facts.training.per_token_loss))
    return batch.arrays() | ({} if weights is None else {WEIGHTS: weights})


def vocabulary_of(run: Run) -> int | None:
    """How many ids a run's model knows; None where no record says."""
    size = run.facts.model.get("vocab_size") or run.facts.padded_vocabulary
    return size if isinstance(size, int) else None


def digest(array: Array) -> str:
    """What tells two arrays apart, whatever type they were recorded in."""
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
    """Add the problems of the whole, the gravest first, once every batch was looked at."""
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
    """The first problems of a look, and how many more there are: a sample that is odd seldom comes alone."""
    problems = seen.problems if seen is not None else []
    more = [message("batches.more_problems", count=len(problems) - SHOWN)] if len(problems) > SHOWN else []
    return [*(message("batches.problem", what=problem) for problem in problems[:SHOWN]), *more]


def of_data(run: Run) -> Iterator[Message]:
    """What is wrong with the recorded batches, as ``check`` says it, and whether the loss mask was seen."""
    try:
        seen = of_run(run, {})
        unseen = [run.batch(step, ("tokens", "loss_mask")) for step in run.batch_steps()[:1]]
    except RecordError:  # what is not whole is told by what holds digests against it
        return
    yield from problems_of(seen)
    for batch in unseen:
        row = run.row(batch.step)
        count = row.valid_tokens if row is not None else None
        if batch.loss_mask is None and batch.tokens is not None and count not in (None, batch.tokens.size):
            yield message("health.mask_unseen", count=count, all=batch.tokens.size)


def shared_steps(reference: BatchStatistics | None, candidate: BatchStatistics | None) -> list[int]:
    """Steps whose batch was looked at in both runs, ascending."""
    return sorted(reference.digests.keys() & candidate.digests.keys()) if reference is not None and candidate is not None else []


def side_by_side(reference: BatchStatistics | None, candidate: BatchStatistics | None) -> tuple[Message | None, bool | None]:
    """How the two runs' samples relate, and whether they are the same; None where no step of both was recorded, or looked at."""
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
        times, other_times = (_times(run, shared) for run in (reference, candidate))
        relation = relation_of(reference, candidate)
        if relation is SampleRelation.OTHER_ORDER:
            return message("two_runs.other_order", step=differ[0], iteration=differ[0] + 1), False
        if relation is SampleRelation.OTHER_TIMES:
            rows = {"reference": times.total(), "candidate": other_times.total()}
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
    """How often each sample occurs at some steps."""
    among = {*steps}
    return Counter({sample: times for sample, places in seen.samples.items() if (times := sum(step in among for step, _ in places))})


def weigh_alike(reference: BatchStatistics | None, candidate: BatchStatistics | None) -> bool | None:
    """Whether both runs weigh the tokens of their common steps alike in what they differentiate; None where they had other tokens or
    masks, or that is not on record."""
    if reference is None or candidate is None:
        return None
    shared = sorted(reference.weighs.keys() & candidate.weighs.keys())
    of_both = [[(run.digests[step].get("tokens"), run.digests[step].get("loss_mask")) for step in shared] for run in (reference, candidate)]
    if not shared or of_both[0] != of_both[1]:
        return None
    return all(np.allclose(reference.weighs[step], candidate.weighs[step], rtol=ALIKE, atol=0) for step in shared)
