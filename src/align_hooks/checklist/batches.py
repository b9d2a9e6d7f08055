"""Recorded batches, looked at one by one: what the guide's data check asks to be done by eye.

Ids within the vocabulary, labels that are the next token, what the loss mask leaves out, special ids, samples that repeat, and samples
that no text makes: one id over and over, nothing that counts. A tokenizer that is named decodes what is odd, and the first sample.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from align_hooks.configuration.values import Setting
from align_hooks.errors import AlignHooksError, shown
from align_hooks.messages import Message, message
from align_hooks.process.paths import path_of

Array: TypeAlias = NDArray[Any]
"""Ids or weights, in whatever type they were recorded."""
Decode: TypeAlias = Callable[[Sequence[int]], str]
"""What makes text of ids."""
SHORTEST, FEW = 32, 0.02
"""A sample of at least so many tokens is odd if the different ids among them are no more than this part."""
SHOWN, WORDS = 3, 48
"""Samples that are decoded, and tokens of each."""
ARRAYS = ("tokens", "labels", "loss_mask")
SPECIAL = ("bos_token_id", "eos_token_id", "pad_token_id")


@dataclass(frozen=True, slots=True)
class Occurs:
    """How often an id is a token, and how many of these tokens count or have a token that counts after them in their sample."""

    times: int = 0
    followed: int = 0


@dataclass(slots=True)
class Look:
    """What one run's batches hold.

    ``problems`` are what no training wants, ``notes`` what a reader should know. ``special`` says how often a special id is a token, how
    often it is one where the loss counts, and the id. ``occurs`` says of other ids how often each is a token. ``samples`` are the places of
    each sample by its digest, to see repeats and to lay two runs side by side. ``decoded`` is the place and the text of some samples.
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
    samples: dict[str, list[Message]] = field(default_factory=dict)
    problems: list[Message] = field(default_factory=list)
    notes: list[Message] = field(default_factory=list)
    decoded: list[tuple[Message, str]] = field(default_factory=list)
    digests: dict[int, dict[str, str]] = field(default_factory=dict)


def look(
    batches: Iterable[tuple[int, Mapping[str, Array]]],
    vocabulary: int | None,
    special: Mapping[str, int | None],
    decode: Decode | None = None,
    ids: Iterable[int] = (),
) -> Look:
    """Look at every batch in turn, and hold no more than one; ``special`` are ids by name, ``ids`` others that are to be counted,
    ``decode`` is a tokenizer's.

    A batch is its step and its arrays: tokens and labels (int, [rows, length]) and loss mask (float, of the same shape).
    """
    seen = Look(occurs=dict.fromkeys(ids, Occurs()))
    for step, batch in batches:
        seen.steps.append(step)
        arrays = {name: np.asarray(array) for name, array in batch.items() if name in ARRAYS}
        if "tokens" not in arrays or arrays["tokens"].dtype.kind not in "iu":
            seen.notes.append(message("batches.no_tokens", step=step, iteration=step + 1))
            continue
        tokens = arrays["tokens"].reshape(-1, arrays["tokens"].shape[-1] if arrays["tokens"].ndim else 1)
        fit = {name: array.reshape(tokens.shape) for name, array in arrays.items() if array.size == tokens.size}
        seen.notes += [message("batches.other_shape", name=name, step=step, iteration=step + 1) for name in arrays if name not in fit]
        counted = fit["loss_mask"] > 0 if "loss_mask" in fit else np.ones(tokens.shape, bool)
        _count(seen, tokens, fit.get("labels"), counted)
        for name, token in special.items():
            if token is not None:
                _special(seen, name, int(token), tokens, counted)
        _occurs(seen, tokens, fit.get("labels"), counted)
        for row, sample in enumerate(tokens):
            _sample(seen, message("batches.place", step=step, iteration=step + 1, row=row), sample, counted[row], decode)
        seen.digests[step] = {name: digest(array) for name, array in fit.items()}
    _conclude(seen, vocabulary)
    return seen


def digest(array: Array) -> str:
    """What tells two arrays apart, whatever type they were recorded in."""
    return hashlib.sha256(np.ascontiguousarray(array, np.float64 if array.dtype.kind == "f" else np.int64)).hexdigest()


def _count(seen: Look, tokens: Array, labels: Array | None, counted: Array) -> None:
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


def _special(seen: Look, name: str, token: int, tokens: Array, counted: Array) -> None:
    occurs = tokens == token
    times, times_counted, _ = seen.special.get(name, (0, 0, token))
    seen.special[name] = (times + int(occurs.sum()), times_counted + int((occurs & counted).sum()), token)


def _occurs(seen: Look, tokens: Array, labels: Array | None, counted: Array) -> None:
    if labels is not None:
        counted = counted & (labels >= 0)  # ids that are to be ignored are below 0
    followed = np.logical_or.accumulate(counted[:, ::-1], axis=1)[:, ::-1]
    for id, before in seen.occurs.items():
        here = tokens == id
        seen.occurs[id] = Occurs(before.times + int(here.sum()), before.followed + int((here & followed).sum()))


def _sample(seen: Look, place: Message, sample: Array, counted: Array, decode: Decode | None) -> None:
    seen.samples.setdefault(digest(sample), []).append(place)
    odd, different = None, len(np.unique(sample))
    if sample.size >= SHORTEST and different <= max(1, FEW * sample.size):
        odd = message("batches.few_ids", place=place, different=different, ids=sample.size)
    elif not counted.any():
        odd = message("batches.row_does_not_count", place=place)
    if odd is not None:
        seen.problems.append(odd)
    if decode is not None and (odd is not None or not seen.decoded) and len(seen.decoded) < SHOWN:
        seen.decoded.append((place, decode([int(token) for token in sample[:WORDS]])))


def _conclude(seen: Look, vocabulary: int | None) -> None:
    """Problems of the whole, the gravest first."""
    first: list[Message] = []
    if seen.smallest is not None and seen.smallest < 0:
        first.append(message("batches.below", id=seen.smallest))
    if vocabulary and seen.largest is not None and seen.largest >= vocabulary:
        first.append(message("batches.above", id=seen.largest, last=vocabulary - 1))
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
        seen.notes.append(message("batches.repeats", count=len(repeats), place=repeats[0][0], other=repeats[0][1]))
    if seen.tokens and not seen.counted:
        first.append(message("batches.nothing_counts"))
    seen.problems[:0] = first


def shared_steps(reference: Look | None, candidate: Look | None) -> list[int]:
    """Steps whose batch was looked at in both runs, ascending."""
    return sorted(reference.digests.keys() & candidate.digests.keys()) if reference is not None and candidate is not None else []


def side_by_side(reference: Look | None, candidate: Look | None) -> tuple[Message | None, bool | None]:
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
        if set(reference.samples) == set(candidate.samples):
            return message("two_runs.other_order", step=differ[0], iteration=differ[0] + 1), False
        return message("two_runs.other_tokens", **numbers, both=len(reference.samples.keys() & candidate.samples.keys())), False
    return message("two_runs.same", steps=len(shared)), True


def tokenizer(path: str) -> Decode:
    """What decodes ids with a tokenizer of Hugging Face: a ``tokenizer.json``, or a directory that holds one.

    :raises AlignHooksError: there is none, or the library is not installed.
    """
    try:
        import tokenizers
    except ModuleNotFoundError:
        raise AlignHooksError("--tokenizer needs tokenizers, which is not installed; pip install 'align-hooks[tokenizer]'") from None
    try:
        file = path_of(path)
        file = file / "tokenizer.json" if file.is_dir() else file
        missing = not file.is_file()
    except (OSError, ValueError) as error:
        raise AlignHooksError(f"--tokenizer {shown(path)} {getattr(error, 'strerror', None) or error}") from None
    if missing:
        raise AlignHooksError(f"--tokenizer {shown(path)}: there is no {file}; name a tokenizer.json, or a directory that holds one")
    try:
        opened = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:
        raise AlignHooksError(f"--tokenizer {file} cannot be read: {str(error).splitlines()[0]}; name a tokenizer.json") from None
    return lambda ids: str(opened.decode([token for token in ids if token >= 0], skip_special_tokens=False))


def special_ids(values: Mapping[str, Setting]) -> dict[str, int | None]:
    """The special ids that a configuration names, by the names of the guide; None where an id is not set, or no id."""
    ids = {name: values.get(name) for name in SPECIAL}
    return {name: id if isinstance(id, int) and not isinstance(id, bool) and id >= 0 else None for name, id in ids.items()}
