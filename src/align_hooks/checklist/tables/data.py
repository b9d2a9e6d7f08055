"""Data: the guide's checks of data and special ids, and the comparison's table of data loading and tokenizers."""

from __future__ import annotations

from functools import partial

from align_hooks.checklist import tries
from align_hooks.checklist.meaning import Hidden
from align_hooks.checklist.readings import data as readings
from align_hooks.checklist.readings import hidden
from align_hooks.checklist.readings.data import LOADER
from align_hooks.checklist.row import UNSET, CheckRow, Effect, Explain, Form, Read, RowGroup, Says, Tries, model
from align_hooks.configuration.values import Setting
from align_hooks.messages import Message, message

row = partial(CheckRow, group=RowGroup.DATA)
harmless = partial(row, effect=Effect.NOTHING)
"""Rows whose differences change nothing."""
BATCHES, IDS_OCCUR, OF_TOKENIZER = message("by_hand.batches"), message("by_hand.ids_occur"), message("note.of_the_tokenizer")


def loading(name: str, otherwise: Setting, *keys: str, form: Form | None = None, by_hand: Message | None = None) -> CheckRow:
    """Return the row of how data or a tokenizer are loaded, which changes nothing where the batches are the same."""
    mindformers = Says(keys, None) if keys else Says()
    return harmless(name, Says((name,), otherwise), mindformers, form=form, by_hand=by_hand)


def documents(
    name: str, *keys: str, read: Read | None = None, harmless_if: Explain = readings.replayed, tries: Tries | None = None
) -> CheckRow:
    """Return the row of what the end of a document within a sample does."""
    names, otherwise = (f"{LOADER}.config.{name}", *keys), False if read is None else UNSET
    mindformers = Says(names, otherwise, read, tries=tries, cannot=readings.keeps_documents)
    return row(name, Says((name,), False), mindformers, harmless_if=harmless_if)


DATA = (
    row(
        "seq_length",
        Says(("seq_length", "encoder_seq_length")),
        Says((f"{LOADER}.config.seq_length", *model("seq_length"), readings.HANDLERS), read=readings.sequence, tries=tries.lengths),
        fact="training.sequence_length",
    ),
    row("decoder_seq_length", Says(("decoder_seq_length",), None), Says(fixed=None, note=message("note.no_second_stack"))),
    harmless("retriever_seq_length", Says(("retriever_seq_length",), None), Says(fixed=None, note=message("note.no_retriever"))),
    row(
        "data_path",
        Says(("data_path", "train_data_path", "mock_data"), read=readings.path_of_megatron),
        Says(readings.PATHS, read=readings.path_of_mindformers, tries=tries.nothing),
        form=readings.blend,
        harmless_if=readings.replayed,
        uncertain_if=readings.other_format,
        batches=readings.same_batches,
        by_hand=BATCHES,
    ),
    row(
        "split",
        Says(("split",), tries=tries.split),
        Says((f"{LOADER}.config.split",), tries=tries.split),
        form=readings.shares,
        harmless_if=readings.replayed,
        batches=readings.same_batches,
        by_hand=BATCHES,
    ),
    row(
        message("row.seed_of_the_data"),
        Says(("seed",), 1234, note=message("note.shuffles_by_seed")),
        Says(
            (f"{LOADER}.config.seed",),
            readings.seed_of_data,
            beside=("train_dataset.seed", "seed", f"{LOADER}.shuffle"),
            tries=tries.seed_of_data,
        ),
        harmless_if=readings.other_rule,
        batches=readings.same_batches,
        by_hand=BATCHES,
    ),
    row(
        "shuffle",
        Says(
            ("dataloader_type", "is_instruction_dataset", "no_shuffle"),
            read=readings.megatron_order,
            note=message("note.shuffled_by_its_seed"),
        ),
        Says((f"{LOADER}.shuffle",), read=readings.mindformers_order, beside=(f"{LOADER}.type",), tries=tries.order),
        form=None,
        harmless_if=readings.replayed,
        batches=readings.same_batches,
        way_out=message("way_out.shuffle"),
        by_hand=BATCHES,
    ),
    documents("reset_position_ids", harmless_if=readings.ids_unread),
    documents("reset_attention_mask", *readings.RESETS, *model("use_eod_attn_mask_compression"), read=readings.resets, tries=tries.stops),
    documents("eod_mask_loss"),
    harmless(
        "vocab_file",
        Says(("vocab_file", "tokenizer_model", "tokenizer_name_or_path"), None),
        Says(("processor.tokenizer.vocab_file",), None, beside=("processor.tokenizer.tokenizer_file",)),
        form=readings.blend,
        by_hand=message("by_hand.batches_decoded"),
    ),
    loading("merge_file", None, "processor.tokenizer.merges_file", form=readings.blend),
    loading("tokenizer_type", None, "processor.tokenizer.type", by_hand=message("by_hand.batches_decoded")),
    harmless("bos_token_id", Says(note=OF_TOKENIZER), Says(model("bos_token_id"), None), by_hand=IDS_OCCUR),
    harmless(
        "eos_token_id",
        Says(("null_tokenizer_eod_id",), None, note=OF_TOKENIZER),
        Says(model("eos_token_id"), None, beside=(f"{LOADER}.config.eod",)),
        by_hand=IDS_OCCUR,
    ),
    row(
        "pad_token_id",
        Says(fixed=Hidden(), note=message("note.hides_nothing")),
        Says(
            model("pad_token_id", "eos_token_id"), read=hidden.hidden, tries=hidden.tries, note=message("note.hides"), beside=hidden.MASKS
        ),
        form=None,
        harmless_if=hidden.no_such_token,
        batches=hidden.counted,
        way_out=message("way_out.hidden"),
        by_hand=message("by_hand.hidden"),
    ),
    row(
        message("row.padding_of_the_data"),
        Says(("null_tokenizer_pad_id", "tokenizer_type"), read=readings.padding_of_megatron, note=message("note.padding_of_the_data")),
        Says((f"{LOADER}.config.pad",), readings.padding_of_mindformers, note=message("note.padding_of_the_data")),
        form=readings.no_padding,
        harmless_if=readings.replayed,
        batches=readings.same_batches,
        by_hand=BATCHES,
    ),
    harmless(
        "ignore_token_id",
        Says(note=message("note.mask_alone")),
        Says(model("ignore_token_id"), -100),
        by_hand=message("by_hand.ignored_id"),
    ),
    harmless(message("row.template_of_training_and_inference"), Says(), Says(), by_hand=message("by_hand.templates")),
    loading("num_workers", 2, "train_dataset.num_parallel_workers"),
    loading("num_dataset_builder_threads", 1, f"{LOADER}.config.num_dataset_builder_threads"),
    loading("data_cache_path", None, f"{LOADER}.config.path_to_cache"),
    loading("valid_data_path", None, "eval_dataset.data_loader.dataset_dir"),
    loading("test_data_path", None),
)
