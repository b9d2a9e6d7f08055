"""The token id that a model takes out of attention and loss, and what recorded batches say of it.

Cases name the line of MindFormers' source that makes them so.
"""

from typing import Any

import numpy as np
import pytest

from align_hooks.checklist.canonical_values import Hidden
from align_hooks.checklist.edits import Action
from align_hooks.checklist.judge import JudgedRow, RowOutcome
from align_hooks.checklist.result import as_read, check
from align_hooks.checklist.tables import ROW
from align_hooks.messages import message, sentences
from align_hooks.record.batch_statistics import BatchStatistics, Occurs, statistics_of
from checklist.exercises import DATA, EXPERTS, LATENT, NEW, OLD, keys, megatron, mindformers, row

COLUMNS = "train_dataset.input_columns: [input_ids, labels, loss_mask{more}]"
NONE, MASKED, ALL_MASKS = "train_dataset.input_columns: [input_ids]", COLUMNS.format(more=""), COLUMNS.format(more=", attention_mask")
CASES = f"""
# style | keys of the YAML | MindFormers | id, a for attention and l for loss | where it stands
{OLD} | m.pad_token_id: null, {NONE} | 1.9 | 0 al | 1.9 models/llama/llama_config.py:146, llama.py:667, transformer.py:874
{OLD} | m.pad_token_id: 3, {NONE} | 1.9 | 3 al |
{OLD} | m.pad_token_id: -100 | 1.9 | |
{OLD} | m.pad_token_id: 3, {MASKED} | 1.9 | 3 a | 1.9 llama.py:666
{OLD} | m.pad_token_id: 3, {ALL_MASKS} | 1.9 | | 1.9 llama.py:345
{OLD} | m.pad_token_id: 3, {ALL_MASKS} | 1.3 | 3 al | r1.3.0 llama.py:533 and 264, which take neither
{OLD} | m.pad_token_id: 3, m.use_attn_mask_compression: true, {NONE} | 1.9 | 3 l | 1.9 transformer.py:868
{OLD} | m.pad_token_id: 3, m.use_ring_attention: true, {NONE} | 1.9 | 3 l | 1.9 llama.py:380
{OLD} | m.pad_token_id: 3, {ALL_MASKS}, train_dataset.construct_args_key: [input_ids] | 1.9 | 3 al | 1.9 base_trainer.py:926
{OLD} | m.type: ChatGLM2Config, m.pad_token_id: 3 | 1.9 | | 1.9 models/glm2/glm2.py:235
{OLD} | m.type: ChatGLM2Config, m.pad_token_id: 3, parallel_config.seq_split_num: 2 | 1.9 | 3 a | 1.9 models/glm2/glm2.py:226
{OLD} | m.type: DeepseekV3Config, m.pad_token_id: 3, {ALL_MASKS} | 1.5 | 3 al | r1.5.0 research/deepseek3/deepseek3_model_train.py:85
{OLD} | m.type: InternLM2Config, m.pad_token_id: null, {NONE} | 1.3 | 2 al | r1.3.0 research/internlm2/internlm2_config.py:108
{OLD} | m.type: QwenConfig, m.pad_token_id: 3 | 1.3 | 3 al | r1.3.0 research/qwen/qwen_model.py:173 and 528
{OLD} | m.type: GPT2Config, m.pad_token_id: 3, m.eos_token_id: 5 | 1.3 | 5 al | r1.3.0 models/gpt2/gpt2.py:159
{OLD} | m.type: GPT2Config, train_dataset.input_columns: [input_ids, attention_mask] | 1.3 | | r1.3.0 models/gpt2/gpt2.py:158
{NEW} | m.pad_token_id: 3, {NONE} | 1.9 | 3 al | 1.9 training_graph/base_models/gpt/gpt_model.py:131, transformer/mask_generate.py:103
{NEW} | m.pad_token_id: null, {NONE} | 1.9 | 151643 al | 1.9 models/qwen2/configuration_qwen2.py:146
{LATENT} | m.pad_token_id: null, {NONE} | 1.9 | 0 al | 1.9 transformer_config.py:2020
{NEW} | m.pad_token_id: 3, {MASKED} | 1.9 | 3 a | 1.9 gpt_model.py:130
{NEW} | m.pad_token_id: 3, {MASKED}, m.use_attn_mask_compression: true | 1.9 | | 1.9 gpt_model.py:139
{NEW} | m.pad_token_id: 3 | 1.9 | 3 a | 1.9 base_trainer.py:919
{NEW} | m.pad_token_id: 3, D.create_attention_mask: true | 1.9 | | 1.9 base_trainer.py:915
{NEW} | m.pad_token_id: 3, D.create_compressed_eod_mask: true, {NONE} | 1.9 | 3 l | 1.9 base_trainer.py:913
"""


def cases() -> list[Any]:
    lines = [[part.strip() for part in line.split("|")] for line in CASES.strip().splitlines() if not line.startswith("#")]
    return [pytest.param(*line[:4], id=f"{line[0]} {line[1]} {line[2]}") for line in lines]


@pytest.mark.parametrize(("style", "text", "version", "expected"), cases())
def test_what_a_model_takes_out(style: str, text: str, version: str, expected: str) -> None:
    id, _, of = expected.partition(" ")
    canonical = ROW["pad_token_id"].read(as_read(mindformers(style, keys(text.replace("D.", f"{DATA}."))), version)).canonical
    assert canonical == (Hidden(int(id), "a" in of, "l" in of) if id else Hidden())


def told(
    pad: int | None, *, style: str = OLD, statistics: tuple[BatchStatistics | None, BatchStatistics | None] = (None, None), **more: Any
) -> JudgedRow:
    return row(check(megatron(style, {}), mindformers(style, {"m.pad_token_id": pad, **more}), statistics), "pad_token_id")


def test_of_gpt_2_the_end_of_a_document_is_told() -> None:
    found = told(-1, **{"m.type": "GPT2Config", "m.eos_token_id": 5})
    assert (found.outcome, found.candidate.canonical) == (RowOutcome.DIFFERENT, Hidden(5, True, True))
    assert [(edit.key, edit.value) for edit in found.change.edits] == [("model.model_config.eos_token_id", -1)]


def test_megatron_cannot_be_told() -> None:
    found = row(check(mindformers(OLD, {"m.pad_token_id": 0}), megatron(OLD, {})), "pad_token_id")
    assert (found.change.action, found.change.value) == (Action.BOTH_SIDES, message("way_out.hidden"))


def test_two_of_mindformers_that_take_out_another_id_differ() -> None:
    found = row(check(mindformers(OLD, {"m.pad_token_id": 3}), mindformers(OLD, {"m.pad_token_id": 0})), "pad_token_id")
    assert [(edit.key, edit.value) for edit in found.change.edits] == [("model.model_config.pad_token_id", 3)]


# --- recorded batches ---

TOKENS = np.array([[5, 0, 7, 0], [5, 6, 0, 0]])
"""The id 0 four times: twice with a token behind it that counts in ``ENDS``."""
EVERY, ENDS = np.ones((2, 4)), np.array([[1.0, 1, 1, 0], [1, 1, 0, 0]])
"""Every token counts, or not those at the end of a sample."""


def seen(mask: Any = EVERY, *ids: int, labels: Any = None, steps: int = 2) -> BatchStatistics:
    arrays = {"tokens": TOKENS, "loss_mask": mask, **({} if labels is None else {"labels": labels})}
    return statistics_of(((step, arrays) for step in range(steps)), None, {}, ids=ids or (0, 9))


def test_how_often_an_id_is_a_token_and_how_often_one_that_counts_follows() -> None:
    assert seen().occurs == {0: Occurs(8, 8), 9: Occurs(0, 0)}
    assert seen(ENDS).occurs[0] == Occurs(8, 2)
    assert seen(EVERY, labels=np.full((2, 4), -100)).occurs[0] == Occurs(8, 0)


def test_how_often_it_is_a_token_is_said_of_whichever_side_is_a_record() -> None:
    for statistics in ((seen(), None), (None, seen()), (seen(), seen())):
        found = told(0, statistics=statistics)
        assert (found.outcome, found.why) == (RowOutcome.DIFFERENT, sentences(message("seen.times", id=0, count=8, steps=2)))


def test_an_id_that_no_batch_holds_does_no_harm() -> None:
    found = told(9, statistics=(seen(), None))
    assert (found.outcome, found.why) == (RowOutcome.HARMLESS, sentences(message("seen.never", id=9, steps=2)))


def test_padding_behind_all_that_counts_does_no_harm_but_to_experts() -> None:
    behind = np.array([[1.0, 0, 0, 0], [1, 1, 0, 0]])
    found = told(0, statistics=(seen(behind), None))
    assert (found.outcome, found.why) == (RowOutcome.HARMLESS, sentences(message("seen.behind", id=0, count=8, steps=2)))
    assert told(0, statistics=(seen(behind), seen(ENDS))).outcome is RowOutcome.DIFFERENT
    assert told(0, style=EXPERTS, statistics=(seen(behind), None)).outcome is RowOutcome.DIFFERENT


def test_of_two_ids_each_is_counted() -> None:
    sides = mindformers(OLD, {"m.pad_token_id": 9}), mindformers(OLD, {"m.pad_token_id": 0})
    found = row(check(*sides, (seen(), None)), "pad_token_id")
    assert (found.outcome, found.why) == (
        RowOutcome.DIFFERENT,
        sentences(message("seen.times", id=0, count=8, steps=2), message("seen.never", id=9, steps=2)),
    )
