"""The token id that a model takes out of attention and loss, which MindFormers' do by ``pad_token_id`` and Megatron-LM's do not.

Without a mask of its own in the batch, a model of MindFormers makes one of the tokens: no query attends to a token with that id, and the
loss leaves it out (1.9, ``LowerTriangularMaskWithDynamic`` in ``modules/transformer/transformer.py:874`` and ``models/llama/llama.py:667``;
newer models, ``training_graph/transformer/mask_generate.py:103`` and ``base_models/gpt/gpt_model.py:131``). 1.3 to 2.1 do the same.
Megatron-LM attends by place alone and leaves out what its loss mask says (core 0.19, ``datasets/gpt_dataset.py:277``: labels that are the
tokenizer's padding, another quantity).
"""

from __future__ import annotations

from collections.abc import Iterator

from align_hooks.checklist.defaults import CHATGLM, LLAMA, default, family
from align_hooks.checklist.meaning import Hidden, Words
from align_hooks.checklist.older_families import DEEPSEEK, GPT2, QWEN
from align_hooks.checklist.readings.data import COLUMNS, LOADER, RESETS, fed
from align_hooks.checklist.readings.experts import mindformers_experts
from align_hooks.checklist.readings.lookup import are_numbers, is_on, is_since, value_of
from align_hooks.checklist.row import UNSET, EditRequest, Edits, Looks, SettingEvidence, is_new, model
from align_hooks.configuration.values import MINDFORMERS, Configuration, Setting
from align_hooks.messages import message, sentences

COMPRESSED = model("use_attn_mask_compression", "use_eod_attn_mask_compression")
"""Switches of a mask that is made of places alone."""
MASKS = (*COLUMNS, *COMPRESSED, *RESETS, *(f"{LOADER}.{part}create_attention_mask" for part in ("config.", "")))
"""All that says whether a batch has masks of its own."""
HIDDEN_BY_END = model("eos_token_id")
NOBODY = -1
"""An id that no token has."""


def hidden(c: Configuration) -> Setting:
    """What a model of MindFormers takes out, of what; not told where its class is not known."""
    kind = family(c)
    id = value_of(c, named_by(c), default("eos_token_id" if kind == GPT2 else "pad_token_id"))
    if kind is None or not are_numbers(id):
        return UNSET
    attention, loss = _leaves_attention_to_it(c, kind), _leaves_loss_to_it(c, kind)
    return Hidden(int(id), attention, loss) if id >= 0 and (attention or loss) else Hidden()


def named_by(c: Configuration) -> tuple[str, ...]:
    """The key of the id: GPT-2 takes out the end of a document (1.3, ``models/gpt2/gpt2.py:159`` and 188)."""
    return HIDDEN_BY_END if family(c) == GPT2 else model("pad_token_id")


def _leaves_attention_to_it(c: Configuration, kind: str) -> bool:
    """Whether no mask but that of the tokens says what attention sees."""
    if kind == CHATGLM:  # 1.5 and later, models/glm2/glm2.py:226: only where a sequence is cut into parts
        return bool(value_of(c, ("parallel_config.seq_split_num",), 1) > 1)
    if kind in (*DEEPSEEK, QWEN):  # 1.5, research/deepseek2/deepseek2_model.py:1178; 1.3, research/qwen/qwen_model.py:342
        return True
    if kind == GPT2:
        return "attention_mask" not in fed(c)
    if any(is_on(c, key) for key in (*COMPRESSED, *RESETS)) or (not is_new(c) and is_on(c, *model("use_ring_attention"))):
        return False
    return not (_takes_masks(c, kind) and "attention_mask" in fed(c))


def _leaves_loss_to_it(c: Configuration, kind: str) -> bool:
    """Whether no mask but that of the tokens says what the loss counts."""
    if kind == CHATGLM:
        return False
    if kind == GPT2:
        return "attention_mask" not in fed(c)
    return not (_takes_masks(c, kind) and "loss_mask" in fed(c))


def _takes_masks(c: Configuration, kind: str) -> bool:
    """Whether a model is trained with the masks of a batch; the Llama of 1.3 takes no loss mask, and another mask for inference alone."""
    return is_new(c) or (kind == LLAMA and is_since(c.version, 1, 5))


def no_such_token(reference: Configuration, candidate: Configuration) -> Words | None:
    """No token has an id beyond the vocabulary."""
    vocabularies = [value_of(c, ("vocab_size",) if c.side != MINDFORMERS else model("vocab_size")) for c in (reference, candidate)]
    told = [size for size in vocabularies if are_numbers(size)]
    ids = [id for c in (reference, candidate) if (id := _id(c)) is not None]
    if not told or not ids or min(ids) < max(told):
        return None
    return message("harmless.no_such_token", last=max(told) - 1)


def _id(c: Configuration) -> int | None:
    found = hidden(c) if c.side == MINDFORMERS else None
    return found.id if isinstance(found, Hidden) else None


def counted(looks: Looks, reference: Configuration, candidate: Configuration) -> SettingEvidence | None:
    """How often an id that one side takes out is a token of the recorded batches.

    It does no harm where it never is, and without experts where no token that counts follows it, as padding at the end of a sample: nobody
    attends to what comes after. Experts choose among all tokens, those that do not count too.
    """
    shown, harmless = [], True
    for id in sorted({id for id in map(_id, (reference, candidate)) if id is not None}):
        occurs = [(look.occurs[id], len(look.steps)) for look in looks if look is not None and id in look.occurs]
        if not occurs:
            return None
        most, steps = max(occurs, key=lambda one: one[0].times)
        experts = any((mindformers_experts(c) or 0) > 1 for c in (reference, candidate) if c.side == MINDFORMERS)
        behind = not experts and not any(one.followed for one, _ in occurs)
        if not most.times:
            shown.append(message("seen.never", id=id, steps=steps))
        else:
            shown.append(message("seen.behind" if behind else "seen.times", id=id, count=most.times, steps=steps))
        harmless = harmless and (not most.times or behind)
    return SettingEvidence(harmless, sentences(*shown)) if shown else None


def tries(asked: EditRequest) -> Iterator[Edits]:
    """The id that is wanted, or one that no token has."""
    wanted = asked.wanted
    id = wanted.id if isinstance(wanted, Hidden) and wanted.id is not None else NOBODY
    yield dict.fromkeys(named_by(asked.candidate), id)
