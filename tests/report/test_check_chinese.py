"""What the page of a check shows is messages, names and values: no sentence is left in English where its reader reads Chinese."""

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import Struct
from msgspec.structs import replace

from align_hooks.checklist.mindformers_models import EVERY, INSTEAD, NOT_IN_GRAPH, ignored, refused
from align_hooks.checklist.pitfalls import CONTEXT
from align_hooks.checklist.result import Checklist, check
from align_hooks.checklist.row import CheckRow
from align_hooks.checklist.tables import ROWS
from align_hooks.configuration.megatron import read_script
from align_hooks.configuration.mindformers import read_yaml
from align_hooks.configuration.recorded import recorded
from align_hooks.configuration.values import Configuration, SourceLocation, Value
from align_hooks.data_file import sections
from align_hooks.messages import Argument, Joined, Message, message, rendered
from align_hooks.messages.catalogue import CATALOGUES, CHINESE
from align_hooks.record.batch_statistics import statistics_of
from align_hooks.report.blocks import Plots, Special
from align_hooks.report.check import document
from checklist.exercises import EXERCISES, EXPERTS, LATENT, NEW, OLD, Exercise, megatron, mindformers
from checklist.test_records import DECAYS, SPARED, facts
from checklist.test_told import Told, told
from chosen import every, in_one, slow_but

TERMS = """
GPT-2 MindSpeed-LLM Pai-Megatron-Patch Llama epoch iteration
Adam AdamW PyNative Ascend CANN CheckList DeepSeek-V3
DeepSpeed Embedding GELU GLM GMM GPU INFNAN LlamaConfig MLA Megatron Megatron-LM MindFormers MindSpore
MoE NPU NaN NullTokenizer O0 PyTorch Q K V QKV Qwen3 RMSNorm Ring RoPE SwiGLU TopkRouterV2 True False WarmUpStableDecayLR YAML YaRN
ChatGLM2 MFLossMonitor CheckpointMonitor TrainCallBack DynamicLossScaleUpdateCell FP32StateAdamWeightDecay adam adamw align-hooks alpaca
bash batch bfloat16 bias cat cell check checkpoint compare diff dropout epochs eval export flash attention float16 float32 fp16 fp8 global
head hidden id label local logits loss lr mask masked max micro-batch norm padding per-token rank residual add retriever scaling shape
sizes softmax strict tanh rope sigmoid silu true token tokens tokenizer type upcycling wikitext-103 z-loss yarn aux seq json run DeepSeek
"""
"""What engineers write in English too, and names of what is not configured."""
SENTENCE = re.compile(r"(?:\b[a-z]{2,}\b[ ,;:]+){2,}\b[a-z]{2,}\b")
"""Three words of small letters in a row: no name, place or value."""
KEYS = re.compile(
    r"\{[^}]*\}|--[\w-]+(?: [\w.]+)?|\b[\w.]*[_/=]\S*|\b[A-Z0-9_]{4,}\b|\b\w+\.(?:json|yaml|cfg)\b|context\.deterministic", re.ASCII
)
"""Slots, flags, keys, variables and files, which are the same in every language."""


def shown(checklist: Checklist) -> list[Argument]:
    """Everything that the page of a check shows."""
    return [*arguments_in(document(checklist, everything=True))]


def arguments_in(part: object) -> Iterator[Argument]:
    """Every text of a part of a document."""
    if isinstance(part, Special | Plots):
        yield from arguments_in(part.make())
    elif isinstance(part, Message | Joined | str | Enum):
        yield part
    elif isinstance(part, Struct):
        for name in part.__struct_fields__:
            if name != "aside":  # rows of the guides, which have their names
                yield from arguments_in(getattr(part, name))
    elif isinstance(part, Mapping | Sequence):
        for value in part.values() if isinstance(part, Mapping) else part:
            yield from arguments_in(value)


def texts(argument: Argument) -> Iterator[str]:
    """What stands in an argument as it was written, and is shown so in every language; what Python says of an error is no text of ours."""
    if isinstance(argument, Message):
        for name, value in argument.arguments.items():
            yield from texts(value) if name != "error" else ()
    elif isinstance(argument, Joined):
        for part in argument.parts:
            yield from texts(part)
    elif isinstance(argument, str) and not isinstance(argument, Enum):
        yield str(argument)


def left(checklist: Checklist) -> list[str]:
    """English sentences that a check shows as they are."""
    return [text for argument in shown(checklist) for text in texts(argument) if SENTENCE.search(text)]


def english(*pairs: tuple[Configuration, Configuration]) -> list[str]:
    """English sentences that are shown as they are, of checks either way round."""
    ways = [way for pair in pairs for way in (pair, pair[::-1])]
    return [text for way in ways for text in left(check(*(replace(side) for side in way)))]


# ---- the catalogues


@pytest.mark.parametrize("area", ["checklist", "checklist_rows", "configuration"])
def test_no_english_is_left_in_the_chinese_of_a_check(area: str) -> None:
    known = {*TERMS.split(), *(row.id for row in ROWS)}
    wrong = {}
    for line in chain(*sections(CATALOGUES / CHINESE / f"{area}.txt").values()):
        id, _, text = line.partition(": ")
        words = [word for word in re.findall(r"[A-Za-z][A-Za-z0-9-]*", KEYS.sub(" ", text)) if word not in known]
        wrong |= {id: words} if words else {}
    assert wrong == {}


@in_one(ROWS)
def test_a_row_goes_by_words_or_by_a_parameter(row: CheckRow) -> None:
    if isinstance(row.name, Message):
        assert re.search(r"[\u4e00-\u9fff]|z-loss", rendered(row.name, CHINESE))
        return
    keys = {key.rpartition(".")[2].replace("-", "_") for spec in (row.megatron, row.mindformers) for key in (*spec.keys, *spec.beside)}
    name = row.name.replace("-", "_")
    assert " " not in name
    assert keys & {name, name.removeprefix("no_")} or "_" in name or name in ("CANN", "bfloat16", "eps", "fp8")


# ---- whole checks


@pytest.mark.parametrize(
    "case", [*every(32, EXERCISES), *every(16, told())], ids=lambda case: case.name if isinstance(case, Told) else case.id
)
def test_exercises_and_pairs(case: Exercise | Told) -> None:
    assert english((megatron(case.style, case.flags), mindformers(case.style, case.keys if isinstance(case, Told) else case.other))) == []


@pytest.mark.parametrize("style", slow_but([OLD, NEW, EXPERTS, LATENT], LATENT))
def test_bases(style: str) -> None:
    assert english((megatron(style, {}), mindformers(style, {})), (mindformers(OLD, {}), mindformers(style, {}))) == []


def adamw(*groups: dict[str, Any]) -> dict[str, Any]:
    return {"optimizer": {"type": "AdamW", "groups": [{"weight_decay": 0.1, **group} for group in groups]}}


RECORDS: dict[str, dict[str, Any]] = {
    "honest": {},
    "decay of every weight": adamw({"parameters": [*DECAYS, *SPARED]}),
    "decay of another": adamw({"parameters": [*DECAYS, SPARED[0]]}, {"weight_decay": 0.0, "parameters": SPARED[1:]}),
    "no bias correction": adamw({"bias_correction": False, "parameters": DECAYS}),
    "types": {
        "layers": {"model.embed_tokens.weight": {"compute": "bfloat16"}, "model.layers.*.mlp.up_proj.weight": {"compute": "float16"}}
    },
    "other layers": {"layers": {"lm_head.weight": {"compute": "bfloat16"}}},
    "no flash": {"classes": ["LLamaAttention"]},
    "versions": {"versions": {"mindformers": "1.9.0", "mindspore": "2.7.0", "megatron-core": "0.19.2"}},
    "versions of nobody": {"versions": {"mindformers": "1.2.0", "mindspore": "2.2.0"}},
    "environment": {"environment": {"MS_ASCEND_CHECK_OVERFLOW_MODE": {"value": "SATURATION_MODE", "effective": True}}},
    "replayed": {"settings": {"replay_batches": "/runs/one"}, "training": {"sequence_length": 7}},
    "loaded": {"settings": {"load_weights": "/runs/one"}},
    "deeper": {"model": {"num_hidden_layers": 3}},
}


@pytest.mark.parametrize("more", every(8, RECORDS.values()), ids=RECORDS.keys())
def test_records(more: dict[str, Any]) -> None:
    for left_side, right_side in (("torch", "ms"), ("ms", "ms"), ("torch", "torch")):
        assert english((recorded(facts(left_side), "/runs/one"), recorded(facts(right_side) | more, "/runs/other"))) == []


@pytest.mark.parametrize(
    "lines",
    [
        "python pretrain_gpt.py --num-layers 2 --lr $RATE --train-iters 10",
        "python pretrain_gpt.py --num-layers $(cat layers) --lr 1 $MORE",
        "if [ -f there ]; then N=2; else N=3; fi\npython pretrain_gpt.py --num-layers $N --lr 1",
        "IFS=,\npython pretrain_gpt.py --num-layers 2 --lr 1",
        "python pretrain_gpt.py --num-layers 2 --lr 1 --lr 1",
    ],
)
def test_what_could_not_be_followed(lines: str) -> None:
    assert english((read_script(f"{lines}\n", "train.sh", {}), mindformers(OLD, {}))) == []


def test_the_models_own_configuration(tmp_path: Path) -> None:
    text = "use_legacy: False\npretrained_model_dir: model\nmodel:\n  model_config:\n    model_type: qwen3\nrunner_config:\n  epochs: 1\n"
    assert english((megatron(NEW, {}), read_yaml(text, "one.yaml", tmp_path))) == []


# ---- traps


@pytest.mark.parametrize("family", EVERY)
def test_traps_of_newer_models(family: str) -> None:
    base = mindformers(NEW, {"m.model_type": family})
    names = dict.fromkeys({*ignored(family), *refused(family), *INSTEAD, *NOT_IN_GRAPH}, 1)
    names |= {"moe_grouped_gemm": False, "qk_layernorm": False, "hidden_dropout": 0, "attention_dropout": 0, "rope_scaling.type": "llama3"}
    more: dict[str, object] = {f"model.model_config.{name}": value for name, value in names.items()}
    more |= {f"context.{name}": 1 for name in CONTEXT} | {"lr_schedule.type": "WarmUpStableDecayLR"}
    placed = {name: Value(value, SourceLocation("new.yaml", 7)) for name, value in more.items()}
    assert english((megatron(NEW, {}), replace(base, values={**base.values, **placed}))) == []


def test_traps_of_older_models_and_of_megatron() -> None:
    older = mindformers(OLD, {"m.moe_config.expert_num": 8, "lr_schedule.learning_rate": "1e-3"})
    newer = megatron(OLD, {"num-query-groups": 2, "tokenizer-type": "NullTokenizer", "yaml-cfg": "one.yaml", "use-checkpoint-args": None})
    pitfalls = {pitfall.id for side in check(newer, older).sides for pitfall in side.pitfalls}
    words = ["overwritten", "text_to_yaml", "groups_without_flag", "null_tokenizer", "own_yaml"]
    assert pitfalls >= {f"pitfall.{word}" for word in words}
    assert english((newer, older)) == []


# ---- data


def looked(*batches: dict[str, Any], decode: Any = None) -> Any:
    arrays = [(step, {name: np.asarray(value) for name, value in one.items()}) for step, one in enumerate(batches)]
    return statistics_of(arrays, 256, {"pad_token_id": 5, "bos_token_id": 1}, decode)


ROWS_OF_IDS = np.arange(64).reshape(1, 64)
FINE = {"tokens": ROWS_OF_IDS, "labels": ROWS_OF_IDS + 1, "loss_mask": np.ones((1, 64))}
BATCHES: dict[str, list[dict[str, Any]]] = {
    "fine": [FINE],
    "shifted": [FINE | {"labels": ROWS_OF_IDS}],
    "documents": [FINE | {"labels": np.where(ROWS_OF_IDS == 9, 0, ROWS_OF_IDS + 1)}],
    "below": [FINE | {"tokens": ROWS_OF_IDS - 5}],
    "above": [FINE | {"tokens": ROWS_OF_IDS + 300}],
    "one id": [FINE | {"tokens": ROWS_OF_IDS * 0 + 5}],
    "nothing counts": [FINE | {"loss_mask": np.zeros((1, 64))}],
    "other mask": [FINE | {"loss_mask": np.where(ROWS_OF_IDS == 9, 0.0, 1.0)}],
    "twice": [FINE, FINE],
    "many": [FINE | {"tokens": ROWS_OF_IDS * 0 + 5} for _ in range(12)],
    "no labels": [{"tokens": ROWS_OF_IDS}],
    "shapes": [FINE | {"labels": np.arange(3)}],
    "no tokens": [{"labels": ROWS_OF_IDS}],
    "order": [FINE, FINE | {"tokens": ROWS_OF_IDS + 1}],
    "turned": [FINE | {"tokens": ROWS_OF_IDS + 1}, FINE],
    "nothing": [],
}


@pytest.mark.parametrize("batches", every(4, BATCHES.values()), ids=BATCHES.keys())
def test_data(batches: list[dict[str, Any]]) -> None:
    reference = looked(*batches, decode=lambda ids: "某段文本; x")
    for candidate in (looked(FINE), looked(*BATCHES["order"])):
        assert left(check(recorded(facts("torch"), "one"), recorded(facts("ms"), "other"), (reference, candidate))) == []


def test_what_a_sample_reads_is_shown_as_it_is() -> None:
    batches = looked(FINE, decode=lambda ids: "the loss counts; x")
    checklist = check(recorded(facts("torch"), "one"), recorded(facts("ms"), "other"), (batches, batches))
    place = message("batches.place", step=0, iteration=1, row=0)
    read = rendered(message("data.reads", place=place, text=repr("the loss counts; x")), CHINESE)
    assert "the loss counts; x" in read and read in [rendered(argument, CHINESE) for argument in shown(checklist)]
