"""Every sentence that the page of a check shows has a Chinese text, and what is no sentence stays as it is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

from align_hooks.checklist.batches import look, side_by_side
from align_hooks.checklist.newer_names import EVERY, INSTEAD, ignored, refused
from align_hooks.checklist.result import Checklist, check
from align_hooks.checklist.row import Row
from align_hooks.checklist.tables import GROUPS, ROWS
from align_hooks.checklist.traps import CONTEXT, WITHOUT_EFFECT
from align_hooks.configuration.megatron import read_command, read_script
from align_hooks.configuration.mindformers import read_yaml
from align_hooks.configuration.recorded import recorded
from align_hooks.configuration.values import Configuration, Value
from align_hooks.report import check_page, frame
from align_hooks.report.check_chinese import CHECK
from align_hooks.report.check_text import HEADS, setups
from align_hooks.report.chinese import CHINESE, chinese
from align_hooks.report.words import WORDS
from checklist.exercises import EXERCISES, EXPERTS, LATENT, NEW, OLD, Exercise, megatron, mindformers
from checklist.test_records import DECAYS, SPARED, facts
from report.test_chinese import TERMS, VALUES

MORE_TERMS = """
FP32StateAdamWeightDecay AdamW read shopt alias xargs IFS here-document
Ascend CANN CheckList DeepSeek-V3 GMM INFNAN MLA Megatron Megatron-LM MindFormers MindSpore MoE NPU NullTokenizer O0 PyTorch QKV Qwen3
TopkRouterV2 YAML YaRN bash batch-size cat checkpoint check compare diff dropout eval export fp8 global head lr rank tokenizer upcycling
residual add let shape alpaca wikitext-103 adam adamw constant linear cosine gated gelu llama3 none null pi probs position relu silu swiglu
rope yarn rmsnorm layernorm allgather alltoall squared sigmoid quick geglu tanh
GELU SwiGLU masked nobodylr wsd WSD mask tensor pipeline context sequence optimizer true Ring
"""
"""What engineers write in English on this page too, and values of settings."""
SETTING = re.compile(r"--[\w-]+ .+|[\w.-]+: .+")
"""What is to be written into a script or a YAML."""
PLACES = re.compile(
    r"wikitext-103|\w+=\.\.\.|"
    r"the command:\d+|\w+LR\b|CosineAnnealingWarmRestarts|[\w.-]+\.(sh|yaml|json)\b(:\d+)?|\$\w+|\$?\{[^}]*\}|\$\([^)]*\)|\[[^\]]*\]",
    re.ASCII,
)
"""Places, what stands in a script, and data sets."""


def english(text: str) -> list[str]:
    """The English words that are left in the Chinese of a text."""
    found = VALUES.sub(" ", PLACES.sub(" ", WORDS.get(text) or chinese(text)))
    known = {*TERMS.split(), *MORE_TERMS.split(), *PARAMETERS, *INSTEAD}
    return [word for word in re.findall(r"[A-Za-z][A-Za-z0-9-]*", found) if word not in known]


def is_parameter(row: Row) -> bool:
    """Whether a row is called as a setting of either side, which is what people search for."""
    keys = {key.rpartition(".")[2].replace("-", "_") for says in (row.megatron, row.mindformers) for key in (*says.keys, *says.beside)}
    name = row.name.replace("-", "_")
    return " " not in name and (bool(keys & {name, name.removeprefix("no_")}) or "_" in name or name in ONLY_THE_GUIDES)


ONLY_THE_GUIDES = {"CANN", "bfloat16", "eps", "fp8", "z-loss".replace("-", "_")}
"""Names of the guide's that are no setting's, and are written so in Chinese too."""
PARAMETERS = [row.name for row in ROWS if is_parameter(row)]


class Page:
    """The page's own template, and what it asks to be shown in both languages."""

    def __init__(self) -> None:
        self.heard: dict[str, None] = {}
        self.environment = Environment(loader=FileSystemLoader(frame.WEB), autoescape=True)
        self.environment.globals |= frame.GLOBALS | {"t": self.hear}

    def hear(self, text: str) -> Markup:
        self.heard[str(text)] = None
        return Markup.escape(text)

    def render(self, template: str, data: Mapping[str, Any], **content: Any) -> str:
        return self.environment.get_template(template).render(data="", **content)


PAGE = Page()


def said(checklist: Checklist) -> Iterator[str]:
    """Every sentence that the page of a check passes to its translation, without settings to be written, and what else it shows."""
    PAGE.heard = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check_page, "render", PAGE.render)
        check_page.check_page(checklist, "1")
    written = {one.change for one in checklist.checked if SETTING.fullmatch(one.change)}
    for text in PAGE.heard:
        change = next((one for one in written if text == one or text.endswith(f"; {one}")), "")
        yield text.removesuffix(change).removesuffix("; ")
    for course in checklist.courses:
        yield from course.schedules
    for occasion, _, broken in setups(checklist):
        yield f"The guide's set-up for {occasion}"
        yield from broken


def untranslated(*checklists: Checklist) -> dict[str, list[str]]:
    """Sentences of checks with the English words that their Chinese still has."""
    return {text: words for one in checklists for text in said(one) if (words := english(text))}


def both_ways(one: Configuration, other: Configuration) -> Iterator[Checklist]:
    for reference, candidate in ((one, other), (other, one)):
        yield check(replace(reference, used=set()), replace(candidate, used=set()))


# ---- tables


def test_the_table_is_part_of_the_one_that_is_asked() -> None:
    assert CHECK.items() <= CHINESE.items()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_rows(row: Row) -> None:
    if is_parameter(row):
        assert chinese(row.name) == row.name or row.name in CHINESE
    else:
        assert row.name in CHINESE
        assert re.search(r"[\u4e00-\u9fff]", chinese(row.name))
        assert english(row.name) == []
    for text in filter(None, (row.by_hand, row.advice and row.advice.text)):
        assert english(text) == []
    if len(row.by_hand) > 1:
        assert chinese(row.by_hand) != row.by_hand
    if row.advice and " " in row.advice.text:
        assert chinese(row.advice.text) != row.advice.text
        for against in ("reference", "candidate", "reference and candidate"):
            shown = chinese(f"{row.name}: {row.advice.text} (not so: {against})")
            assert shown == f"{chinese(row.name)}：{chinese(row.advice.text)}（{chinese(against)}不符合）"


@pytest.mark.parametrize("text", [*HEADS.values(), *(label for _, label in check_page.SECTIONS)])
def test_heads(text: str) -> None:
    assert english(text) == []
    assert WORDS.get(text) or chinese(text) != text


def test_groups() -> None:
    assert {text: words for text in GROUPS if (words := english(text))} == {}


# ---- whole checks


@pytest.mark.parametrize("exercise", EXERCISES, ids=[f"{at}-{one.id}" for at, one in enumerate(EXERCISES)])
def test_exercises(exercise: Exercise) -> None:
    one = megatron(exercise.style, exercise.flags)
    assert untranslated(*both_ways(one, mindformers(exercise.style, exercise.other))) == {}


@pytest.mark.parametrize("style", [OLD, NEW, EXPERTS, LATENT])
def test_bases(style: str) -> None:
    assert untranslated(*both_ways(megatron(style, {}), mindformers(style, {}))) == {}
    assert untranslated(*both_ways(mindformers(OLD, {}), mindformers(style, {}))) == {}


RECORDS: dict[str, dict[str, Any]] = {
    "honest": {},
    "decay of every weight": {"optimizer": {"type": "AdamW", "groups": [{"weight_decay": 0.1, "parameters": [*DECAYS, *SPARED]}]}},
    "decay of another": {
        "optimizer": {
            "type": "AdamW",
            "groups": [{"weight_decay": 0.1, "parameters": [*DECAYS, SPARED[0]]}, {"weight_decay": 0.0, "parameters": SPARED[1:]}],
        }
    },
    "no bias correction": {
        "optimizer": {"type": "AdamW", "groups": [{"weight_decay": 0.1, "bias_correction": False, "parameters": DECAYS}]}
    },
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


@pytest.mark.parametrize("more", RECORDS.values(), ids=RECORDS.keys())
def test_records(more: dict[str, Any]) -> None:
    for one, other in (("torch", "ms"), ("ms", "ms"), ("torch", "torch")):
        sides = recorded(facts(one), "/runs/one"), recorded(facts(other) | more, "/runs/other")
        assert untranslated(*both_ways(*sides)) == {}


@pytest.mark.parametrize(
    "flags",
    [
        "--lr 1e-3 --min-lr 1e-5 --lr-decay-style cosine --lr-warmup-iters 5",
        "--lr 1e-3 --lr-decay-style linear --lr-decay-iters 7",
        "--lr 1e-3 --lr-decay-style WSD --lr-wsd-decay-iters 5 --lr-wsd-decay-style linear",
        "--lr 1e-3 --lr-decay-style WSD",
        "--lr 1e-3 --lr-decay-style WSD --lr-wsd-decay-iters 5 --lr-wsd-decay-style none",
        "--lr 1e-3 --lr-decay-style none",
        "--lr 1e-3 --train-samples 640",
        "--train-iters 10",
        "--lr 1e-3",
        "--lr 1e-3 --weight-decay-incr-style linear --start-weight-decay 0.0 --end-weight-decay 0.1",
        "--lr 1e-3 --weight-decay-incr-style linear",
        "--lr 1e-3 --train-iters 30000",
    ],
)
def test_schedules_of_megatron(flags: str) -> None:
    length = "" if "--train" in flags or flags == "--lr 1e-3" else "--train-iters 20 "
    one = read_command(f"--num-layers 2 {length}{flags}", {})
    assert untranslated(*both_ways(one, mindformers(OLD, {})), *both_ways(one, megatron(OLD, {"lr-decay-style": "linear"}))) == {}


@pytest.mark.parametrize(
    "keys",
    [
        {"type": "CosineWithWarmUpLR", "warmup_steps": 3, "total_steps": 20},
        {"type": "CosineWithWarmUpLR", "warmup_ratio": 0.1},
        {"type": "CosineWithWarmUpLR"},
        {"type": "WarmUpStableDecayLR", "warmup_steps": 0, "total_steps": 20},
        {"type": "WarmUpStableDecayLR", "decay_start_steps": 5, "total_steps": 20},
        {"type": "nobodyLR"},
        {"learning_rate": None},
        {"type": None},
        {"type": "ConstantWarmUpLR"},
    ],
)
def test_schedules_of_mindformers(keys: dict[str, Any]) -> None:
    for length in ({}, {"train_dataset.data_loader.sizes": None}):
        other = mindformers(NEW, {f"lr_schedule.{name}": value for name, value in keys.items()} | length)
        assert untranslated(*both_ways(megatron(NEW, {}), other), *both_ways(other, mindformers(NEW, {}))) == {}
    alone = mindformers(NEW, {"lr_schedule.type": None, "optimizer.learning_rate": 1e-3, "train_dataset.data_loader.sizes": None})
    assert untranslated(*both_ways(megatron(NEW, {}), alone)) == {}


def test_schedules_of_groups() -> None:
    groups = {"grouped_lr_schedule.grouped": [{"params": ["embed"], "type": "ConstantWarmUpLR", "learning_rate": 1e-4}]}
    assert untranslated(*both_ways(megatron(NEW, {}), mindformers(NEW, groups))) == {}


# ---- scripts


UNFOLLOWED = (
    *("IFS=,", "cat <<E && N=1\nx\nE", "local -n N=M", "declare A=1 N=$A", "N=(1 2)\nunset 'N[0]'", "f() { [ -f x ] && return; }\nf"),
    *("set -- 1 2\nshift $(cat n)\nN=$1", "read N", "shopt -s nocasematch", "alias a=b", "cat x | xargs echo", 'eval "$(cat x)"'),
    *("if [ -f x ]; then check() { :; }; fi", "while [ -f x ]; do N=1; done"),
)
"""What a script does before it trains that is not followed."""
UNKNOWN = ("a\\\nb", '"1$@2"', "*", "{a,b}", "~1/2", "${HOSTNAME:-x}", '${N:+--a " b c"}', "ck_${N}_$N")
"""Words that only a run knows."""


@pytest.mark.parametrize(
    "lines",
    [
        "python pretrain_gpt.py --num-layers 2 --lr $RATE --train-iters 10",
        "python pretrain_gpt.py --num-layers 2 --lr $1 --train-iters 10",
        "python pretrain_gpt.py --num-layers $(cat layers) --lr 1 $MORE",
        "python pretrain_gpt.py --num-layers 2 --lr $'\\x31'",
        "python pretrain_gpt.py --num-layers $((RANDOM + 1)) --lr ${A^^}",
        "source other.sh\npython pretrain_gpt.py --num-layers 2 --lr 1",
        "if [ -f there ]; then N=2; else N=3; fi\npython pretrain_gpt.py --num-layers $N --lr 1",
        *(f"{one}\npython pretrain_gpt.py --num-layers ${{N:-2}} --lr 1" for one in UNFOLLOWED),
        *(f"python pretrain_gpt.py --num-layers 2 --lr 1 --save {one}" for one in UNKNOWN),
        "for N in 1 2; do break; done\npython pretrain_gpt.py --num-layers $N --lr 1",
        "declare -A N\nN[a]=1\npython pretrain_gpt.py --num-layers ${N[a]} --lr 1",
        "declare -n N=M\npython pretrain_gpt.py --num-layers $N --lr 1",
        "declare -i N=1+1\npython pretrain_gpt.py --num-layers $N --lr 1",
        "let N=2\npython pretrain_gpt.py --num-layers $N --lr 1",
        "((N=2))\npython pretrain_gpt.py --num-layers $N --lr 1",
        "N=([a]=2)\npython pretrain_gpt.py --num-layers $N --lr 1",
        "once_more() { once_more; }\nonce_more\npython pretrain_gpt.py --num-layers 2 --lr 1",
        "python pretrain_gpt.py --num-layers 2 --lr 1 --lr 1",
        "python pretrain_gpt.py --num-layers 2 --lr 1\nif then ((",
        'E=\'eval "$E"\'\neval "$E"\npython pretrain_gpt.py --num-layers 2 --lr 1',
    ],
)
def test_what_could_not_be_followed(lines: str) -> None:
    one = read_script(f"{lines}\n", "train.sh", {})
    assert untranslated(*both_ways(one, mindformers(OLD, {}))) == {}


@pytest.mark.parametrize(
    "why",
    [
        *("$A is a table of names at t.sh:1, which is not followed", "elements of $A are set by name at t.sh:1, which is not followed"),
        *("$A is declared in a way that is not followed at t.sh:1", "let is not followed at t.sh:1"),
        *("what t.sh:1 works out is not followed", "what line 3 of t.sh decides is known to a run only"),
        *("$A takes several values in the loop at t.sh:1", "t.sh:3 evaluates what it evaluates, too deeply to be followed"),
        *("t.sh:3 calls once_more too deeply to be followed", "t.sh:3 is no bash that can be read, near '(('"),
        "the configuration.yaml says what cannot be worked out (unsupported operand)",
        "one.yaml says nan, which is no number to train with",
        "lr is 1 (t.sh:1) and learning_rate, which means the same, is 2 (t.sh:3); leave one out",
        *("leave --bf16 out", "add --bf16"),
        "not told: the candidate's schedule cannot be worked out (None)",
    ],
)
def test_reasons(why: str) -> None:
    words = {"unsupported", "operand", "the", "configuration"}
    assert set(english(why)) <= words
    assert chinese(why) != why


def test_the_models_own_configuration(tmp_path: Path) -> None:
    text = "use_legacy: False\npretrained_model_dir: model\nmodel:\n  model_config:\n    model_type: qwen3\nrunner_config:\n  epochs: 1\n"
    assert untranslated(*both_ways(megatron(NEW, {}), read_yaml(text, "one.yaml", tmp_path))) == {}
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"hidden_size": 64}')
    found = read_yaml(text, "one.yaml", tmp_path)
    assert found.notes
    assert untranslated(*both_ways(megatron(NEW, {}), found)) == {}


# ---- traps


@pytest.mark.parametrize("family", EVERY)
def test_traps_of_newer_models(family: str) -> None:
    names = {*ignored(family), *refused(family), *INSTEAD, *WITHOUT_EFFECT}
    base = mindformers(NEW, {"m.model_type": family})
    more = {f"model.model_config.{name}": Value(1, "new.yaml:7") for name in names}
    more |= {f"context.{name}": Value(1, "new.yaml:8") for name in CONTEXT}
    more |= {
        "model.model_config.moe_grouped_gemm": Value(False, "new.yaml:9"),
        "model.model_config.qk_layernorm": Value(False, "new.yaml:9"),
    }
    more |= {f"model.model_config.{name}": Value(0, "new.yaml:9") for name in ("hidden_dropout", "attention_dropout")}
    more |= {
        "model.model_config.rope_scaling.type": Value("llama3", "new.yaml:9"),
        "lr_schedule.type": Value("WarmUpStableDecayLR", "new.yaml:9"),
    }
    trapped = replace(base, values={**base.values, **more})
    assert untranslated(*both_ways(megatron(NEW, {}), trapped)) == {}
    without = {name: value for name, value in base.values.items() if not name.endswith(("hidden_dropout", "warmup_steps"))}
    found = check(megatron(NEW, {}), replace(base, values=without))
    assert untranslated(found) == {}


def test_traps_of_older_models_and_of_megatron() -> None:
    older = mindformers(OLD, {"m.moe_config.expert_num": 8, "lr_schedule.learning_rate": "1e-3"})
    newer = megatron(OLD, {"num-query-groups": 2, "tokenizer-type": "NullTokenizer", "yaml-cfg": "one.yaml", "use-checkpoint-args": None})
    found = check(newer, older)
    assert len([trap for side in found.sides for trap in side.traps]) >= 5
    assert untranslated(found) == {}


# ---- data


def looked(*batches: dict[str, Any], decode: Any = None) -> Any:
    arrays = [(step, {name: np.asarray(value) for name, value in one.items()}) for step, one in enumerate(batches)]
    return look(arrays, 256, {"pad_token_id": 5, "bos_token_id": 1}, decode)


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


@pytest.mark.parametrize("batches", BATCHES.values(), ids=BATCHES.keys())
def test_data(batches: list[dict[str, Any]]) -> None:
    one = looked(*batches, decode=lambda ids: "某段文本; x")
    for other in (looked(FINE), looked(*BATCHES["order"])):
        found = check(recorded(facts("torch"), "one"), recorded(facts("ms"), "other"), (one, other))
        left = untranslated(found)
        assert {word for words in left.values() for word in words} <= {"x"}
        text, _ = side_by_side(other, one)
        assert english(text) == []
        assert chinese(text) != text


def test_lines_of_data() -> None:
    assert chinese("  step 3, row 1 reads: 'the data; step 2: loss'") == "第3步第1行解码为：'the data; step 2: loss'"
    assert chinese("  problem: step 3, row 1 has no token that counts") == "问题：第3步第1行没有计入loss的token"
    assert chinese("  bos_token_id: id 1, 3 times, 2 where the loss counts") == "bos_token_id：id为1，出现3次，其中2次计入loss"


def test_headlines() -> None:
    for counted in ("1 setting differs and changes the result", "2 settings differ and change the result", "3 cannot be told"):
        assert english(counted) == []
    whole = "nothing that changes the result differs; 1 problem in the data; 2 problems in the data; 1 differs in rounding; 1 is the same"
    assert chinese(whole) == "没有影响结果的差异；数据有1个问题；数据有2个问题；1项仅有舍入差异；1项一致"
