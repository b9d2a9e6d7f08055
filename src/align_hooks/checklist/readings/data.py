"""Data sets and sequences, as each side works them out."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from align_hooks.checklist.defaults import default
from align_hooks.checklist.meaning import TwoLengths, Words
from align_hooks.checklist.readings.lookup import are_numbers, has, is_on, value_of
from align_hooks.checklist.readings.mindspeed import of_mindspeed
from align_hooks.checklist.readings.structure import positions
from align_hooks.checklist.row import UNSET, model, plain
from align_hooks.configuration.values import Configuration, Setting
from align_hooks.messages import message

LOADER = "train_dataset.data_loader"
AS_IT_STANDS = ("MindDataset", "TFRecordDataset", "NumpyDataloader")
"""Data sets that give out what the file holds."""
BLANK = re.compile(r"\byour\b|\bpath[_/ -]to\b|\byour[_-]|[_-]here\b|\bx{3,}|\*{3}|[<>{}$]", re.IGNORECASE)
"""Words by which authors of scripts mark a path that a reader is to fill in."""


def replayed(reference: Configuration, candidate: Configuration) -> Words | None:
    """Data settings mean nothing where a run was fed the other's batches."""
    return message("harmless.replayed") if any(c.fact("settings.replay_batches") for c in (reference, candidate)) else None


def ids_unread(reference: Configuration, candidate: Configuration) -> Words | None:
    """Ids of positions mean nothing where positions are turned: each side turns by where a token stands in the sample.

    MindFormers reads them where ``use_eod_reset`` starts anew at the end of a document, and MindSpeed-LLM wherever they start anew
    (``apply_rotary_pos_emb_thd``), for it packs samples then.
    """
    if unused := replayed(reference, candidate):
        return unused
    sides = (reference, candidate)
    turned = all(positions(c) in ("rope", "partial_rope", "none") for c in sides)
    read = any(is_on(c, *model("use_eod_reset")) or (of_mindspeed(c) and is_on(c, "reset_position_ids")) for c in sides)
    return message("harmless.ids_unread") if turned and not read else None


def blend(value: Setting) -> Setting:
    """A data set by its name without its folder, which differs between clusters; several data sets with their parts of the whole."""
    if value in ("", None, []) or is_blank(value):
        return UNSET
    parts: list[tuple[float, Setting]] = []
    weight = 1.0
    for token in value.split() if isinstance(value, str) else value if isinstance(value, list | tuple) else [value]:
        if are_numbers(plain(token)):
            weight = float(plain(token))
        else:
            parts.append((weight, PurePosixPath(token).name if isinstance(token, str) else token))
    if len(parts) < 2:
        return parts[0][1] if parts else None
    whole = sum(part for part, _ in parts) or 1.0
    return [f"{part / whole:.6g} {name}" for part, name in parts]


def seed_of_data(c: Configuration) -> Setting:
    """The seed by which MindFormers shuffles: of its reader of Megatron's data where none is set, of other readers that of the run, which
    ``check_dataset_config`` gives them."""
    if has(c, f"{LOADER}.config."):
        return 1234
    return value_of(c, ("seed",), UNSET) if is_on(c, f"{LOADER}.shuffle") else UNSET


def padding_of_megatron(c: Configuration) -> Setting:
    """The id of the padding of Megatron's data: the tokenizer's, which NullTokenizer alone can be told.

    ``GPTDataset`` leaves labels with it out of the loss, and has 0 in the place of such tokens (core 0.19, ``gpt_dataset.py:277``).
    """
    return value_of(c, ("null_tokenizer_pad_id",), -1) if value_of(c, ("tokenizer_type",)) == "NullTokenizer" else UNSET


def padding_of_mindformers(c: Configuration) -> Setting:
    """The same of MindFormers' reader of Megatron's data (1.9, ``dataset/blended_datasets/gpt_dataset.py:217``); what reads a file as it
    stands has none."""
    return -1 if has(c, f"{LOADER}.config.") or value_of(c, (f"{LOADER}.type",)) in AS_IT_STANDS else UNSET


def no_padding(value: Setting) -> Setting:
    """An id below 0 is that of no token."""
    value = plain(value)
    return max(int(value), -1) if are_numbers(value) else value


def is_blank(value: Setting) -> bool:
    """Whether a path is one that somebody is to fill in."""
    return BLANK.search(" ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)) is not None


def sequence(c: Configuration) -> Setting:
    """The model's sequence length; the data set's own is another key, which must be the same."""
    of_model, of_data = value_of(c, model("seq_length")), value_of(c, (f"{LOADER}.config.seq_length",))
    if UNSET not in (of_model, of_data) and of_model != of_data:
        return TwoLengths(of_model, of_data)
    return of_model if of_model is not UNSET else of_data if of_data is not UNSET else default("seq_length")(c)


def resets(c: Configuration) -> Setting:
    """Whether attention stops at the end of a document."""
    keys = (f"{LOADER}.config.reset_attention_mask", f"{LOADER}.config.create_compressed_eod_mask", *model("use_eod_attn_mask_compression"))
    return any(value_of(c, (key,), False) is True for key in keys)
