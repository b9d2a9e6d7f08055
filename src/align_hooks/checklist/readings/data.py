"""Data sets and sequences, as each side works them out."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from align_hooks.checklist.defaults import default
from align_hooks.checklist.meaning import TwoLengths, Words
from align_hooks.checklist.readings.said import known, number, said
from align_hooks.checklist.row import UNSET, model, numeric
from align_hooks.configuration.values import Configuration
from align_hooks.messages import message

LOADER = "train_dataset.data_loader"


def replayed(one: Configuration, other: Configuration) -> Words | None:
    """Data settings mean nothing where a run was fed the other's batches."""
    return message("harmless.replayed") if any(c.fact("settings.replay_batches") for c in (one, other)) else None


def blend(value: Any) -> Any:
    """A data set by its name without the folder, which differs between clusters; several with their parts of the whole."""
    if value in ("", None, []):
        return UNSET
    tokens = value.split() if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else [value]
    parts: list[tuple[float, Any]] = []
    weight = 1.0
    for token in tokens:
        if known(numeric(token)):
            weight = float(numeric(token))
        else:
            parts.append((weight, PurePosixPath(token).name if isinstance(token, str) else token))
    if len(parts) < 2:
        return parts[0][1] if parts else None
    whole = sum(part for part, _ in parts) or 1.0
    return [f"{part / whole:.6g} {name}" for part, name in parts]


def megatron_path(c: Configuration) -> Any:
    """The data set that is trained on."""
    return said(c, ("data_path", "train_data_path"), None)


def seed_of_data(c: Configuration) -> Any:
    """What MindFormers' reader of Megatron's data shuffles by where nothing is said."""
    return 1234 if any(name.startswith(f"{LOADER}.config.") for name in c.values) else UNSET


def sequence(c: Configuration) -> Any:
    """The model's; the data set's own is another key, which must be the same."""
    given = number(c, model("seq_length"))
    of_data = number(c, (f"{LOADER}.config.seq_length",))
    if given is not UNSET and of_data is not UNSET and given != of_data:
        return TwoLengths(given, of_data)
    return given if given is not UNSET else of_data if of_data is not UNSET else default("seq_length")(c)


def resets(c: Configuration) -> Any:
    """Whether attention stops at the end of a document."""
    keys = (f"{LOADER}.config.reset_attention_mask", f"{LOADER}.config.create_compressed_eod_mask", *model("use_eod_attn_mask_compression"))
    return any(said(c, (key,), False) is True for key in keys)
