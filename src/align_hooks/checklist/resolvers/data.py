"""Data sets, sequences and special ids, as each side reads them.

Of special ids a MindFormers model leaves ``pad_token_id`` out of attention and loss, a Megatron-LM model none. Without masks in the batch,
MindFormers makes them of the tokens, in 1.3 to 2.1 (1.9: ``modules/transformer/transformer.py:874``, ``models/llama/llama.py:667``;
newer models: ``training_graph/transformer/mask_generate.py:103``, ``base_models/gpt/gpt_model.py:131``). Megatron-LM attends by place, and
its loss mask leaves out the tokenizer's padding, another quantity (core 0.19, ``datasets/gpt_dataset.py:277``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from msgspec.structs import replace

from align_hooks.checklist.canonical_values import UNSET, Hidden, Order, TwoLengths, Words, plain
from align_hooks.checklist.lookup import are_numbers, has, is_new, is_on, is_since, known, model, value_of
from align_hooks.checklist.mindformers_models import CHATGLM, DEEPSEEK, GPT2, LLAMA, QWEN, default, family
from align_hooks.checklist.resolver import EditRequest, Edits, no_edits, one_key, resolver
from align_hooks.checklist.resolvers.experts import mindformers_experts
from align_hooks.checklist.resolvers.mindspeed import of_mindspeed
from align_hooks.checklist.resolvers.structure import positions
from align_hooks.checklist.row import BatchPair, SettingEvidence
from align_hooks.configuration.values import MEGATRON, MINDFORMERS, Configuration, Setting
from align_hooks.messages import message, sentences
from align_hooks.record.batch_statistics import shared_steps, side_by_side

LOADER = "train_dataset.data_loader"
RESETS = (f"{LOADER}.config.create_compressed_eod_mask", f"{LOADER}.create_compressed_eod_mask")
"""Settings of a data set that switch on ``use_eod_attn_mask_compression``."""
COLUMNS = ("train_dataset.construct_args_key", "train_dataset.input_columns")
"""The columns that the model is given; without the first MindFormers reads the second."""
HANDLERS = f"{LOADER}.handler"
"""The handlers, one behind the other, that make samples of text for ``HFDataLoader`` and ``CommonDataLoader``."""
STRATEGY = "parallel.dataset_strategy"
BY_DEFAULT = ["input_ids", "labels", "loss_mask", "position_ids"]
"""Columns without a mask, where nothing lists them (1.9, ``trainer/base_trainer.py:921``)."""
LENGTHS = "actual_seq_len"
"""The column of the ends of documents, of which a compressed mask is made."""
AS_IT_STANDS = ("MindDataset", "TFRecordDataset", "NumpyDataloader")
"""Data sets that return what the file holds."""
MEGATRON_FILES = "bin"
"""The format of Megatron's data, a ``.bin`` with an ``.idx`` beside it."""
OF_MEGATRON = "BlendedMegatronDatasetDataLoader"
"""MindFormers' reader of Megatron's data."""
READS = {OF_MEGATRON: MEGATRON_FILES, "IndexedDataLoader": MEGATRON_FILES, "MindDataset": "mindrecord", "TFRecordDataset": "tfrecord"}
"""MindFormers' readers, and the format that each reads."""
FORMATS = {"mindrecord": "mindrecord", "tfrecord": "tfrecord", "json": "json", "jsonl": "json", "parquet": "parquet", "csv": "csv"}
"""Endings of names to the format, whatever reads it."""
PATHS = (f"{LOADER}.config.data_path", f"{LOADER}.dataset_dir", f"{LOADER}.dataset_files", f"{LOADER}.path")
"""MindFormers' keys of the data's path; ``dataset_dir`` takes effect before ``dataset_files``."""
SHUFFLES = {
    **{"MindDataset": True, "TFRecordDataset": True, "MultiSourceDataLoader": True, "BaseMultiModalDataLoader": True},
    **{OF_MEGATRON: False, "IndexedDataLoader": False, "HFDataLoader": False, "CommonDataLoader": False},
    **{"SFTDataLoader": False, "TrainingDataLoader": False, "ToolAlpacaDataLoader": False, "NumpyDataloader": False},
}
"""Whether a reader shuffles by default: MindSpore's (2.9, ``datasets_standard_format.py``) and MindFormers' (1.5 to 2.1, their
``__new__`` in ``dataset/dataloader``); ``ADGenDataLoader`` has no default."""
SHUFFLED_IN_1_3 = ("CommonDataLoader",)
"""Readers that shuffled by themselves in 1.3 (``dataset/dataloader/common_dataloader.py:37``)."""
BLANK = re.compile(r"\byour\b|\bpath[_/ -]to\b|\byour[_-]|[_-]here\b|\bx{3,}|\*{3}|[<>{}$]", re.IGNORECASE)
"""Words by which authors of scripts mark a path that a reader is to fill in."""


def replayed(reference: Configuration, candidate: Configuration) -> Words | None:
    """Return why settings of data need not agree: a run replayed the other's batches."""
    return message("harmless.replayed") if any(c.fact("settings.replay_batches") for c in (reference, candidate)) else None


def ids_unread(reference: Configuration, candidate: Configuration) -> Words | None:
    """Return why ids of positions need not agree: each side turns a token by its place in the sample."""
    if unused := replayed(reference, candidate):
        return unused
    sides = (reference, candidate)
    turned = all(positions(c) in ("rope", "partial_rope", "none") for c in sides)
    # MindFormers reads the ids with use_eod_reset; MindSpeed-LLM packs samples where these restart (apply_rotary_pos_emb_thd)
    read = any(is_on(c, *model("use_eod_reset")) or (of_mindspeed(c) and is_on(c, "reset_position_ids")) for c in sides)
    return message("harmless.ids_unread") if turned and not read else None


def same_batches(statistics: BatchPair, reference: Configuration, candidate: Configuration) -> SettingEvidence | None:
    """Return that data need not agree where the recorded batches of two runs are the same; else None."""
    _, alike = side_by_side(*statistics)
    return SettingEvidence(True, message("seen.same_batches", count=len(shared_steps(*statistics)))) if alike else None


def path_of_megatron(c: Configuration) -> Setting:
    """Return the path of Megatron's training data; None for mock data."""
    return value_of(c, ("data_path", "train_data_path"), None)


@resolver
def path_of_mindformers(c: Configuration) -> Setting:
    """Return the path of MindFormers' data under any of its keys."""
    return next((value for key in PATHS if (value := value_of(c, (key,), None)) not in (None, "", [])), None)


path_of_mindformers.writer(no_edits)


def reader(c: Configuration) -> str:
    """Return the class that reads MindFormers' data; that of Megatron's data has a table of its own."""
    return str(value_of(c, (f"{LOADER}.type",), OF_MEGATRON if has(c, f"{LOADER}.config.") else ""))


def keeps_documents(c: Configuration) -> Words | None:
    """Return why a reader has no setting for the end of a document; None where it has."""
    return message("cannot.reader", reader=reader(c)) if reader(c) in AS_IT_STANDS else None


def format_of(c: Configuration) -> str:
    """Return the format of a side's data, by its name's ending, else by its reader; empty where not known."""
    path, by = (path_of_mindformers(c), reader(c)) if c.side == MINDFORMERS else (path_of_megatron(c), OF_MEGATRON)
    parts = path if isinstance(path, list | tuple) else str(path).split()
    named = next((str(part) for part in parts if not are_numbers(plain(part))), "")
    ending = named.rpartition(".")[2].rstrip("0123456789").lower()
    return FORMATS.get(ending) or READS.get(by, by)


def other_format(reference: Configuration, candidate: Configuration) -> Words | None:
    """Return why names of data files cannot be compared: they are of different formats."""
    formats = [format_of(c) for c in (reference, candidate)]
    return message("by_hand.other_format") if all(formats) and formats[0] != formats[1] else None


def megatron_order(c: Configuration) -> Setting:
    """Return the order of Megatron's samples: the data set's, which its seed shuffles, unless its loader shuffles too."""
    # MindSpeed-LLM shuffles instructions in each epoch (decoder_packed_mtf_dataset.py)
    if of_mindspeed(c) and is_on(c, "is_instruction_dataset"):
        return Order.OF_THE_DATA if is_on(c, "no_shuffle") else Order.INSTRUCTIONS
    kind = value_of(c, ("dataloader_type",), "single")
    return {"single": Order.OF_THE_DATA, "cyclic": Order.CYCLIC}.get(str(kind), UNSET)


@resolver
def mindformers_order(c: Configuration) -> Setting:
    """Return the order of MindFormers' samples, by ``shuffle`` or the default of the reader's class."""
    kind = reader(c)
    shuffled: Setting = SHUFFLES.get(kind, UNSET) if is_since(c.version, 1, 5) or kind not in SHUFFLED_IN_1_3 else True
    shuffled = value_of(c, (f"{LOADER}.shuffle",), shuffled)
    return UNSET if shuffled is UNSET else Order.SHUFFLED if shuffled else Order.OF_THE_DATA


@mindformers_order.writer
def order_edits(request: EditRequest) -> Iterator[Edits]:
    """Yield a reader that shuffles, or does not."""
    yield {f"{LOADER}.shuffle": request.wanted is Order.SHUFFLED}


def other_rule(reference: Configuration, candidate: Configuration) -> Words | None:
    """Return why seeds need not agree: one side's data are ordered by Megatron's data set, the other's by another reader."""
    if unused := replayed(reference, candidate):
        return unused
    kinds = [c.side == MINDFORMERS and reader(c) != OF_MEGATRON for c in (reference, candidate)]
    return message("harmless.other_rule") if kinds[0] != kinds[1] else None


def blend(value: Setting) -> Setting:
    """Return a data set's name without its folder, which differs between clusters; of several with their shares."""
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
    total = sum(part for part, _ in parts) or 1.0
    return [f"{part / total:.6g} {name}" for part, name in parts]


def shares(value: Setting) -> Setting:
    """Return how documents are split over training, validation and test, as numbers that add up to one."""
    if value is None:
        return UNSET
    numbers = [plain(part.strip()) for part in str(value).strip("[]()'\"").split(",") if part.strip()]
    if not numbers or not are_numbers(*numbers) or not sum(numbers):
        return value
    return [round(number / sum(numbers), 9) for number in (*numbers, 0, 0)[:3]]


def split_edits(request: EditRequest) -> Iterator[Edits]:
    """Yield the parts of a data set as one text, as Megatron and MindFormers' reader of its data accept them."""
    written = value_of(request.reference, ("split", f"{LOADER}.config.split"), None)
    parts = [plain(part.strip()) for part in written.split(",")] if isinstance(written, str) else request.wanted
    mark = "," if request.candidate.side == MEGATRON else ", "
    if isinstance(parts, list) and are_numbers(*parts):
        yield from ({key: mark.join(f"{part:.9g}" for part in parts)} for key in request.keys)


def seed_of_data(c: Configuration) -> Setting:
    """Return the default seed of MindFormers' shuffling: 1234 for Megatron's data, else the run's (``check_dataset_config``)."""
    if reader(c) == OF_MEGATRON:
        return 1234
    return value_of(c, ("seed",), UNSET) if mindformers_order(c) is Order.SHUFFLED else UNSET


def seed_of_data_edits(request: EditRequest) -> Iterator[Edits]:
    """Yield the seed of MindFormers' reader of Megatron's data; other readers have that of the run."""
    yield {f"{LOADER}.config.seed" if has(request.candidate, f"{LOADER}.config.") else "seed": request.wanted}


def padding_of_megatron(c: Configuration) -> Setting:
    """Return the id of the padding of Megatron's data, the tokenizer's, which only NullTokenizer has a flag for."""
    # GPTDataset leaves such labels out of the loss, and replaces such tokens by 0 (core 0.19, gpt_dataset.py:277)
    return value_of(c, ("null_tokenizer_pad_id",), -1) if value_of(c, ("tokenizer_type",)) == "NullTokenizer" else UNSET


def padding_of_mindformers(c: Configuration) -> Setting:
    """Return the same id of MindFormers' reader of Megatron's data (1.9, ``gpt_dataset.py:217``); -1 where data stay unchanged."""
    return -1 if reader(c) in (OF_MEGATRON, *AS_IT_STANDS) else UNSET


def no_padding(value: Setting) -> Setting:
    """Return an id; -1 for any that no token has."""
    value = plain(value)
    return max(int(value), -1) if are_numbers(value) else value


def is_blank(value: Setting) -> bool:
    """Return whether a path is a blank to be filled in."""
    return BLANK.search(" ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)) is not None


@resolver
def sequence(c: Configuration) -> Setting:
    """Return the model's sequence length; both where the data's is another."""
    of_model, of_data = value_of(c, model("seq_length")), value_of(c, (f"{LOADER}.config.seq_length",), of_handlers)
    if UNSET not in (of_model, of_data) and of_model != of_data:
        return TwoLengths(of_model, of_data)
    return of_model if of_model is not UNSET else of_data if of_data is not UNSET else default("seq_length")(c)


@sequence.writer
def sequence_edits(request: EditRequest) -> Iterator[Edits]:
    """Yield the sequence length of the model and of its data, which must be the same."""
    handlers = known(request.candidate, HANDLERS)
    own: Edits = {f"{LOADER}.config.seq_length": request.wanted} if has(request.candidate, f"{LOADER}.config.") else {}
    if isinstance(handlers, list):
        own = {
            HANDLERS: [one | {"seq_length": request.wanted} if isinstance(one, dict) and "seq_length" in one else one for one in handlers]
        }
    yield from one_key(replace(request, keys=[key for key in request.keys if key != HANDLERS]))
    yield {**dict.fromkeys(model("seq_length"), request.wanted), **own}


def of_handlers(c: Configuration) -> Setting:
    """Return the sequence length of a reader's handlers, the first that is not the model's."""
    handlers = known(c, HANDLERS)
    lengths = [one["seq_length"] for one in handlers if isinstance(one, dict) and "seq_length" in one] if isinstance(handlers, list) else []
    return next((length for length in lengths if length != value_of(c, model("seq_length"))), lengths[0] if lengths else UNSET)


@resolver
def resets(c: Configuration) -> Setting:
    """Return whether attention stops at the end of a document, by a compressed mask or by the data set's."""
    compressed = any(value_of(c, (key,), False) is True for key in (*RESETS, *model("use_eod_attn_mask_compression")))
    made = value_of(c, (f"{LOADER}.config.create_attention_mask",), True) is True and "attention_mask" in model_columns(c)
    return compressed or (made and value_of(c, (f"{LOADER}.config.reset_attention_mask",), False) is True)


@resets.writer
def resets_edits(request: EditRequest) -> Iterator[Edits]:
    """Yield attention that stops at the end of a document, or does not, by a full mask, or by a compressed one with its column."""
    made, of_megatron = f"{LOADER}.config.reset_attention_mask", reader(request.candidate) == OF_MEGATRON
    keys = [key for key in request.keys if key != made and (key not in RESETS or (".config." in key) is of_megatron)]
    for key in [made, *keys] if "attention_mask" in model_columns(request.candidate) else [*keys, made]:
        column = length_column_edits(request.candidate, on=request.wanted is True) if key != made else {}
        yield {key: request.wanted, **column}
    if request.wanted is True and of_megatron:
        yield {f"{LOADER}.config.create_attention_mask": True, made: True}


def length_column_edits(c: Configuration, *, on: bool) -> Edits:
    """Return the edits that add the column of documents' lengths, or take it out, where a YAML lists columns or layouts."""
    listed = {key: columns for key in COLUMNS if isinstance(columns := known(c, key), list) and (LENGTHS in columns) is not on}
    edits = {key: [*columns, LENGTHS] if on else [name for name in columns if name != LENGTHS] for key, columns in listed.items()}
    columns, layouts = known(c, COLUMNS[1]) or [*BY_DEFAULT, *([] if on else [LENGTHS])], known(c, STRATEGY)
    if isinstance(layouts, list) and isinstance(columns, list) and len(layouts) == len(columns) and (LENGTHS in columns) is not on:
        edits[STRATEGY] = [*layouts, layouts[0]] if on else [at for name, at in zip(columns, layouts, strict=True) if name != LENGTHS]
    return edits


def model_columns(c: Configuration) -> list[str]:
    """Return the columns that the model is given; the reader of Megatron's data has a loss mask by default."""
    for key in COLUMNS:
        columns = value_of(c, (key,), None)
        if isinstance(columns, list):
            return [str(column) for column in columns]
    masked = any(value_of(c, (f"{LOADER}.{part}create_attention_mask",), False) is True for part in ("config.", ""))
    return (["loss_mask"] if masked or reader(c) == OF_MEGATRON else []) + (["attention_mask"] if masked else [])


COMPRESSED = model("use_attn_mask_compression", "use_eod_attn_mask_compression")
"""Switches of a mask that depends on positions only."""
MASKS = (*COLUMNS, *COMPRESSED, *RESETS, *(f"{LOADER}.{part}create_attention_mask" for part in ("config.", "")))
"""All that says whether a batch has masks of its own."""
NOBODY = -1
"""An id that no token has."""


@resolver
def hidden(c: Configuration) -> Setting:
    """Return the token id that a model of MindFormers leaves out, and of what; UNSET where its class is not known."""
    kind = family(c)
    id = value_of(c, named_by(c), default("eos_token_id" if kind == GPT2 else "pad_token_id"))
    if kind is None or not are_numbers(id):
        return UNSET
    attention, loss = _leaves_attention_to_it(c, kind), _leaves_loss_to_it(c, kind)
    return Hidden(int(id), attention, loss) if id >= 0 and (attention or loss) else Hidden()


@hidden.writer
def hidden_edits(request: EditRequest) -> Iterator[Edits]:
    """Yield the id that is wanted, or one that no token has."""
    wanted = request.wanted
    id = wanted.id if isinstance(wanted, Hidden) and wanted.id is not None else NOBODY
    yield dict.fromkeys(named_by(request.candidate), id)


def named_by(c: Configuration) -> tuple[str, ...]:
    """Return the key of the id; GPT-2 leaves out the end of a document (1.3, ``models/gpt2/gpt2.py:159`` and 188)."""
    return model("eos_token_id" if family(c) == GPT2 else "pad_token_id")


def _leaves_attention_to_it(c: Configuration, kind: str) -> bool:
    """Return whether no mask but that of the tokens says what attention sees."""
    if kind == CHATGLM:  # 1.5 and later, models/glm2/glm2.py:226: only where a sequence is cut into parts
        return bool(value_of(c, ("parallel_config.seq_split_num",), 1) > 1)
    if kind in (*DEEPSEEK, QWEN):  # 1.5, research/deepseek2/deepseek2_model.py:1178; 1.3, research/qwen/qwen_model.py:342
        return True
    if kind == GPT2:
        return "attention_mask" not in model_columns(c)
    if any(is_on(c, key) for key in (*COMPRESSED, *RESETS)) or (not is_new(c) and is_on(c, *model("use_ring_attention"))):
        return False
    return not (_takes_masks(c, kind) and "attention_mask" in model_columns(c))


def _leaves_loss_to_it(c: Configuration, kind: str) -> bool:
    """Return whether no mask but that of the tokens says what the loss counts."""
    if kind == CHATGLM:
        return False
    if kind == GPT2:
        return "attention_mask" not in model_columns(c)
    return not (_takes_masks(c, kind) and "loss_mask" in model_columns(c))


def _takes_masks(c: Configuration, kind: str) -> bool:
    """Return whether a model is trained with the masks of a batch, as the Llama of 1.3 is not."""
    return is_new(c) or (kind == LLAMA and is_since(c.version, 1, 5))


def no_such_token(reference: Configuration, candidate: Configuration) -> Words | None:
    """Return why the id does no harm: the vocabulary has no such token."""
    vocabularies = [value_of(c, ("vocab_size",) if c.side != MINDFORMERS else model("vocab_size")) for c in (reference, candidate)]
    sizes = [size for size in vocabularies if are_numbers(size)]
    ids = [id for c in (reference, candidate) if (id := _id(c)) is not None]
    if not sizes or not ids or min(ids) < max(sizes):
        return None
    return message("harmless.no_such_token", last=max(sizes) - 1)


def _id(c: Configuration) -> int | None:
    found = hidden(c) if c.side == MINDFORMERS else None
    return found.id if isinstance(found, Hidden) else None


def counted(statistics: BatchPair, reference: Configuration, candidate: Configuration) -> SettingEvidence | None:
    """Return how often an id that one side leaves out is a token of the recorded batches."""
    shown, harmless = [], True
    for id in sorted({id for id in map(_id, (reference, candidate)) if id is not None}):
        occurs = [
            (statistics.occurs[id], len(statistics.steps))
            for statistics in statistics
            if statistics is not None and id in statistics.occurs
        ]
        if not occurs:
            return None
        most, steps = max(occurs, key=lambda one: one[0].times)
        experts = any((mindformers_experts(c) or 0) > 1 for c in (reference, candidate) if c.side == MINDFORMERS)
        # padding behind all tokens that count does no harm, as nobody attends to it; experts choose among all tokens
        behind = not experts and not any(one.followed for one, _ in occurs)
        times = message("seen.behind" if behind else "seen.times", id=id, count=most.times, steps=steps)
        shown.append(times if most.times else message("seen.never", id=id, steps=steps))
        harmless = harmless and (not most.times or behind)
    return SettingEvidence(harmless, sentences(*shown)) if shown else None
