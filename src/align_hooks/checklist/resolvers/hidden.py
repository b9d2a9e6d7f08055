"""The token id that a model leaves out of attention and loss: ``pad_token_id`` in MindFormers, none in Megatron-LM.

Without masks in the batch, MindFormers makes them of the tokens, and leaves that id out of attention and loss, in 1.3 to 2.1
(1.9: ``modules/transformer/transformer.py:874``, ``models/llama/llama.py:667``; newer models:
``training_graph/transformer/mask_generate.py:103``, ``base_models/gpt/gpt_model.py:131``). Megatron-LM attends by place, and
its loss mask leaves out the tokenizer's padding, another quantity (core 0.19, ``datasets/gpt_dataset.py:277``).
"""

from __future__ import annotations

from collections.abc import Iterator

from align_hooks.checklist.canonical_values import UNSET, Hidden, Words
from align_hooks.checklist.lookup import are_numbers, is_new, is_on, is_since, model, value_of
from align_hooks.checklist.mindformers_models import CHATGLM, DEEPSEEK, GPT2, LLAMA, QWEN, default, family
from align_hooks.checklist.resolver import EditRequest, Edits, resolver
from align_hooks.checklist.resolvers.data import COLUMNS, LOADER, RESETS, model_columns
from align_hooks.checklist.resolvers.experts import mindformers_experts
from align_hooks.checklist.row import BatchPair, SettingEvidence
from align_hooks.configuration.values import MINDFORMERS, Configuration, Setting
from align_hooks.messages import message, sentences

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
