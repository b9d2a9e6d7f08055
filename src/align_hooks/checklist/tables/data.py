"""Data: the guide's checks of data and special ids, and the comparison's table of data loading and tokenizers."""

from __future__ import annotations

from functools import partial

from align_hooks.checklist.canonical_values import UNSET, Hidden
from align_hooks.checklist.lookup import Read, model
from align_hooks.checklist.resolvers import data
from align_hooks.checklist.resolvers.data import LOADER
from align_hooks.checklist.row import CheckRow, Effect, Explain, RowGroup, SideSpec, ToCanonical, Worded
from align_hooks.configuration.values import Setting
from align_hooks.messages import Message, message

row = partial(CheckRow, group=RowGroup.DATA)
harmless = partial(row, effect=Effect.NOTHING)
"""Rows whose differences change nothing."""
BATCHES, IDS_OCCUR = message("by_hand.batches"), message("by_hand.ids_occur")


def loading(name: str, otherwise: Setting, *keys: str, form: ToCanonical | None = None, by_hand: Message | None = None) -> CheckRow:
    """Return the row of how data or a tokenizer are loaded, which changes nothing where the batches are the same."""
    mindformers = SideSpec(keys, None) if keys else SideSpec()
    return harmless(name, SideSpec((name,), otherwise), mindformers, form=form, by_hand=by_hand)


def documents(name: str, *keys: str, read: Read | None = None, harmless_if: Explain = data.replayed) -> CheckRow:
    """Return the row of what the end of a document within a sample does."""
    names, otherwise = (f"{LOADER}.config.{name}", *keys), False if read is None else UNSET
    mindformers = SideSpec(names, otherwise, read, cannot=data.keeps_documents)
    return row(name, SideSpec((name,), False), mindformers, harmless_if=harmless_if)


DATA = (
    row(
        "seq_length",
        SideSpec(("seq_length", "encoder_seq_length")),
        SideSpec((f"{LOADER}.config.seq_length", *model("seq_length"), data.HANDLERS), read=data.sequence),
        fact="training.sequence_length",
    ),
    row("decoder_seq_length", SideSpec(("decoder_seq_length",), None), SideSpec(fixed=None)),
    harmless("retriever_seq_length", SideSpec(("retriever_seq_length",), None), SideSpec(fixed=None)),
    row(
        "data_path",
        SideSpec(("data_path", "train_data_path", "mock_data"), read=data.path_of_megatron),
        SideSpec(data.PATHS, read=data.path_of_mindformers),
        form=data.blend,
        harmless_if=data.replayed,
        uncertain_if=data.other_format,
        batches=data.same_batches,
        by_hand=BATCHES,
    ),
    row(
        "split",
        SideSpec(("split",), writer=data.split_edits),
        SideSpec((f"{LOADER}.config.split",), writer=data.split_edits),
        form=data.shares,
        harmless_if=data.replayed,
        batches=data.same_batches,
        by_hand=BATCHES,
    ),
    row(
        Worded("seed_of_the_data"),
        SideSpec(("seed",), 1234),
        SideSpec(
            (f"{LOADER}.config.seed",),
            data.seed_of_data,
            beside=("train_dataset.seed", "seed", f"{LOADER}.shuffle"),
            writer=data.seed_of_data_edits,
        ),
        harmless_if=data.other_rule,
        batches=data.same_batches,
        by_hand=BATCHES,
    ),
    row(
        "shuffle",
        SideSpec(("dataloader_type", "is_instruction_dataset", "no_shuffle"), read=data.megatron_order),
        SideSpec((f"{LOADER}.shuffle",), read=data.mindformers_order, beside=(f"{LOADER}.type",)),
        form=None,
        harmless_if=data.replayed,
        batches=data.same_batches,
        way_out=message("way_out.shuffle"),
        by_hand=BATCHES,
    ),
    documents("reset_position_ids", harmless_if=data.ids_unread),
    documents("reset_attention_mask", *data.RESETS, *model("use_eod_attn_mask_compression"), read=data.resets),
    documents("eod_mask_loss"),
    harmless(
        "vocab_file",
        SideSpec(("vocab_file", "tokenizer_model", "tokenizer_name_or_path"), None),
        SideSpec(("processor.tokenizer.vocab_file",), None, beside=("processor.tokenizer.tokenizer_file",)),
        form=data.blend,
        by_hand=message("by_hand.batches_decoded"),
    ),
    loading("merge_file", None, "processor.tokenizer.merges_file", form=data.blend),
    loading("tokenizer_type", None, "processor.tokenizer.type", by_hand=message("by_hand.batches_decoded")),
    harmless("bos_token_id", SideSpec(), SideSpec(model("bos_token_id"), None), by_hand=IDS_OCCUR),
    harmless(
        "eos_token_id",
        SideSpec(("null_tokenizer_eod_id",), None),
        SideSpec(model("eos_token_id"), None, beside=(f"{LOADER}.config.eod",)),
        by_hand=IDS_OCCUR,
    ),
    row(
        "pad_token_id",
        SideSpec(fixed=Hidden()),
        SideSpec(model("pad_token_id", "eos_token_id"), read=data.hidden, beside=data.MASKS),
        form=None,
        harmless_if=data.no_such_token,
        batches=data.counted,
        way_out=message("way_out.hidden"),
        by_hand=message("by_hand.hidden"),
    ),
    row(
        Worded("padding_of_the_data"),
        SideSpec(("null_tokenizer_pad_id", "tokenizer_type"), read=data.padding_of_megatron),
        SideSpec((f"{LOADER}.config.pad",), data.padding_of_mindformers),
        form=data.no_padding,
        harmless_if=data.replayed,
        batches=data.same_batches,
        by_hand=BATCHES,
    ),
    harmless("ignore_token_id", SideSpec(), SideSpec(model("ignore_token_id"), -100), by_hand=message("by_hand.ignored_id")),
    harmless(Worded("template_of_training_and_inference"), SideSpec(), SideSpec(), by_hand=message("by_hand.templates")),
    loading("num_workers", 2, "train_dataset.num_parallel_workers"),
    loading("num_dataset_builder_threads", 1, f"{LOADER}.config.num_dataset_builder_threads"),
    loading("data_cache_path", None, f"{LOADER}.config.path_to_cache"),
    loading("valid_data_path", None, "eval_dataset.data_loader.dataset_dir"),
    loading("test_data_path", None),
)
