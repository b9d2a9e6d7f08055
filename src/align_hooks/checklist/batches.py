"""Recorded batches, looked at one by one: what the guide's data check asks to be done by eye.

Ids within the vocabulary, labels that are the next token, what the loss mask leaves out, special ids, samples that repeat, and samples
that no text makes: one id over and over, nothing that counts. A tokenizer that is named decodes what is odd, and the first sample.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from align_hooks.errors import AlignHooksError, shown
from align_hooks.job.paths import path_of
from align_hooks.messages import Message, message

Array = NDArray[Any]
SHORTEST, FEW = 32, 0.02
"""A sample of so many tokens and more is odd if fewer than this part of its ids differ."""
SHOWN, WORDS = 3, 48
"""Samples that are decoded, and tokens of each."""
ARRAYS = ("tokens", "labels", "loss_mask")
SPECIAL = ("bos_token_id", "eos_token_id", "pad_token_id")


@dataclass(slots=True)
class Look:
    """What one run's batches hold.

    ``problems`` are what no training wants, ``notes`` what a reader should know; ``special`` holds how often a special id is a token, how
    often where the loss counts, and the id; ``samples`` the places of each sample by its digest, to see repeats and to lay two runs side
    by side; ``decoded`` the place and the text of some samples.
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
    samples: dict[str, list[Message]] = field(default_factory=dict)
    problems: list[Message] = field(default_factory=list)
    notes: list[Message] = field(default_factory=list)
    decoded: list[tuple[Message, str]] = field(default_factory=list)
    digests: dict[int, dict[str, str]] = field(default_factory=dict)


def look(
    batches: Iterable[tuple[int, Mapping[str, Array]]],
    vocabulary: int | None,
    special: Mapping[str, int | None],
    decode: Callable[[Sequence[int]], str] | None = None,
) -> Look:
    """Look at every batch in turn; ``special`` are ids by name, ``decode`` a tokenizer's.

    Batches are step and arrays: tokens and labels (int, [rows, length]) and loss mask (float, same shape); one is held at a time.
    """
    found = Look()
    for step, batch in batches:
        found.steps.append(step)
        if "tokens" not in batch or np.asarray(batch["tokens"]).dtype.kind not in "iu":
            found.notes.append(message("batches.no_tokens", step=step))
            continue
        held = {name: np.asarray(array) for name, array in batch.items() if name in ARRAYS}
        tokens = held["tokens"].reshape(-1, held["tokens"].shape[-1]) if held["tokens"].ndim else held["tokens"].reshape(1, 1)
        fit = {name: array.reshape(tokens.shape) for name, array in held.items() if array.size == tokens.size}
        found.notes += [message("batches.other_shape", name=name, step=step) for name in held if name not in fit]
        _count(found, fit, tokens)
        for name, token in special.items():
            if token is not None:
                _special(found, name, int(token), fit, tokens)
        for row, sample in enumerate(tokens):
            _sample(found, step, row, sample, fit, decode)
        found.digests[step] = {name: digest(array) for name, array in fit.items()}
    _conclude(found, vocabulary)
    return found


def digest(array: Array) -> str:
    """What tells two arrays apart, whatever type they were recorded in."""
    return hashlib.sha256(np.ascontiguousarray(array, np.float64 if array.dtype.kind == "f" else np.int64)).hexdigest()


def _count(found: Look, batch: Mapping[str, Array], tokens: Array) -> None:
    labels, mask = batch.get("labels"), batch.get("loss_mask")
    weighs = np.ones(tokens.shape, bool) if mask is None else mask > 0
    if labels is not None:
        weighs &= labels >= 0  # ids that are to be ignored are below 0
    found.rows += len(tokens)
    found.tokens += tokens.size
    found.counted += int(weighs.sum())
    if tokens.size:
        found.smallest = min(int(tokens.min()), int(tokens.max()) if found.smallest is None else found.smallest)
        found.largest = max(int(tokens.max()), -1 if found.largest is None else found.largest)
    if labels is not None and tokens.shape[1] > 1:
        found.pairs += int(weighs[:, :-1].sum())
        found.shifted += int((weighs[:, :-1] & (labels[:, :-1] == tokens[:, 1:])).sum())


def _special(found: Look, name: str, token: int, batch: Mapping[str, Array], tokens: Array) -> None:
    mask = batch.get("loss_mask")
    here = tokens == token
    counts = here if mask is None else here & (mask > 0)
    held, counted, _ = found.special.get(name, (0, 0, token))
    found.special[name] = (held + int(here.sum()), counted + int(counts.sum()), token)


def _sample(
    found: Look, step: int, row: int, sample: Array, batch: Mapping[str, Array], decode: Callable[[Sequence[int]], str] | None
) -> None:
    where = message("batches.place", step=step, row=row)
    found.samples.setdefault(digest(sample), []).append(where)
    mask = batch.get("loss_mask")
    odd = None
    if sample.size >= SHORTEST and len(np.unique(sample)) <= max(1, FEW * sample.size):
        odd = message("batches.few_ids", place=where, different=len(np.unique(sample)), ids=sample.size)
    elif mask is not None and not (mask[row] > 0).any():
        odd = message("batches.row_does_not_count", place=where)
    if odd is not None:
        found.problems.append(odd)
    if decode is not None and (odd is not None or not found.decoded) and len(found.decoded) < SHOWN:
        found.decoded.append((where, decode([int(token) for token in sample[:WORDS]])))


def _conclude(found: Look, vocabulary: int | None) -> None:
    """Problems of the whole, the gravest first."""
    first: list[Message] = []
    if found.smallest is not None and found.smallest < 0:
        first.append(message("batches.below", id=found.smallest))
    if vocabulary and found.largest is not None and found.largest >= vocabulary:
        first.append(message("batches.above", id=found.largest, last=vocabulary - 1))
    if found.pairs and found.shifted < found.pairs:
        labels = {"labels": found.pairs - found.shifted, "pairs": found.pairs}
        if found.shifted / found.pairs < 0.5:
            first.append(message("batches.not_shifted", **labels))
        else:
            found.notes.append(message("batches.documents_meet", **labels))
    _, counted, token = found.special.get("pad_token_id", (0, 0, 0))
    if counted:
        found.notes.append(message("batches.padding_counts", id=token, times=counted))
    if found.tokens and not found.pairs:
        found.notes.append(message("batches.no_labels"))
    repeats = [places for places in found.samples.values() if len(places) > 1]
    if repeats:
        found.notes.append(message("batches.repeats", count=len(repeats), place=repeats[0][0], other=repeats[0][1]))
    if found.tokens and not found.counted:
        first.append(message("batches.nothing_counts"))
    found.problems[:0] = first


def side_by_side(one: Look, other: Look) -> tuple[Message, bool | None]:
    """How the two runs' samples relate, and whether they are the same; None where no step of both was recorded."""
    shared = sorted(one.digests.keys() & other.digests.keys())
    if not shared:
        return message("two_runs.no_step"), None
    apart = [step for step in shared if one.digests[step]["tokens"] != other.digests[step]["tokens"]]
    if apart:
        ours, theirs = set(one.samples), set(other.samples)
        if ours == theirs:
            return message("two_runs.other_order", step=apart[0]), False
        both = len(ours & theirs)
        return message("two_runs.other_tokens", differing=len(apart), steps=len(shared), step=apart[0], both=both), False
    for name in ("labels", "loss_mask"):
        differ = [step for step in shared if one.digests[step].get(name, "") != other.digests[step].get(name, "")]
        known = [step for step in differ if name in one.digests[step] and name in other.digests[step]]
        if known:
            return message("two_runs.other_arrays", name=name, differing=len(known), steps=len(shared), step=known[0]), False
    return message("two_runs.same", steps=len(shared)), True


def tokenizer(path: str) -> Callable[[Sequence[int]], str]:
    """What decodes ids with a tokenizer of Hugging Face: a ``tokenizer.json``, or a directory that holds one.

    :raises AlignHooksError: there is none, or the library is not installed.
    """
    try:
        import tokenizers
    except ModuleNotFoundError:
        raise AlignHooksError("--tokenizer needs tokenizers, which is not installed; pip install 'align-hooks[tokenizer]'") from None
    try:
        found = path_of(path)
        file = found / "tokenizer.json" if found.is_dir() else found
        there = file.is_file()
    except (OSError, ValueError) as error:
        raise AlignHooksError(f"--tokenizer {shown(path)} {getattr(error, 'strerror', None) or error}") from None
    if not there:
        raise AlignHooksError(f"--tokenizer {shown(path)}: there is no {file}; name a tokenizer.json, or a directory that holds one")
    try:
        held = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:
        raise AlignHooksError(f"--tokenizer {file} cannot be read: {str(error).splitlines()[0]}; name a tokenizer.json") from None
    return lambda ids: str(held.decode([token for token in ids if token >= 0], skip_special_tokens=False))


def special_ids(values: Mapping[str, Any]) -> dict[str, int | None]:
    """The special ids that a configuration names, under their guide's names."""
    return {
        name: value if isinstance(value := values.get(name), int) and not isinstance(value, bool) and value >= 0 else None
        for name in SPECIAL
    }
