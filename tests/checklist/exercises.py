"""Every row of the CheckList, exercised: what Megatron is told, a YAML that means the same, and one that does not.

``m.`` stands for ``model.model_config.``, ``D.`` for the keys of the data set; ``style`` is the base that both are put on: an older model,
a newer one, or a newer one with experts and latent attention. What an exercise says replaces what its base says. Where MindFormers makes
first weights otherwise than Megatron-LM, which is everywhere but in newer models without experts, the bases load them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from align_hooks.checklist.judge import JudgedRow
from align_hooks.checklist.result import Checklist, check
from align_hooks.checklist.row import RowGroup, SideSpec
from align_hooks.checklist.tables import ROWS
from align_hooks.configuration.megatron import ARGUMENTS, read_command
from align_hooks.configuration.mindformers import read_yaml
from align_hooks.configuration.values import Configuration
from align_hooks.data_file import sections
from align_hooks.messages import rendered

OLD, NEW, EXPERTS, LATENT = "old", "new", "experts", "latent"


def flags(words: str) -> dict[str, str | None]:
    """Flags of Megatron's and their values: empty where a flag takes none, None for OUT."""
    pairs = [word.strip().partition(" ") for word in words.split("--")[1:]]
    return {name: None if value == "OUT" else value for name, _, value in pairs}


def arguments(words: str) -> dict[str, str | None]:
    """Flags as Megatron's command takes them, and their values."""
    return {f"--{name}": value for name, value in flags(words).items()}


def typed(words: str) -> dict[str, Any]:
    """Flags and their values as YAML reads them; None where a flag takes none."""
    return {name: yaml.safe_load(value or "") for name, value in flags(words).items()}


def keys(text: str) -> dict[str, Any]:
    """Keys of a YAML, written in one line."""
    return yaml.safe_load("{" + text + "}") or {}


MEGATRON = typed("""
    --num-layers 2 --hidden-size 64 --ffn-hidden-size 128 --num-attention-heads 4 --kv-channels 16 --seq-length 128
    --max-position-embeddings 128 --position-embedding-type rope --normalization RMSNorm --swiglu --disable-bias-linear
    --untie-embeddings-and-output-weights --attention-dropout 0.0 --hidden-dropout 0.0 --micro-batch-size 1 --global-batch-size 1
    --train-iters 10 --lr 0.001 --min-lr 0.0 --lr-decay-style constant --weight-decay 0.1 --adam-beta2 0.95 --clip-grad 1.0
    --vocab-size 256 --make-vocab-size-divisible-by 1 --data-path /data/wiki_text_document --split 1,0,0
    --tensor-model-parallel-size 1 --bf16 --load /data/weights
""")
TRAINING = keys("""
    use_parallel: false, runner_config.epochs: 1, runner_config.batch_size: 1, optimizer.type: AdamW, optimizer.betas: [0.9, 0.95],
    optimizer.eps: 1.0e-08, optimizer.weight_decay: 0.1, lr_schedule.type: ConstantWarmUpLR, lr_schedule.learning_rate: 0.001,
    lr_schedule.warmup_steps: 0, lr_schedule.total_steps: -1, train_dataset.data_loader.sizes: [10, 0, 0],
    train_dataset.data_loader.config.split: '1, 0, 0', train_dataset.data_loader.config.seed: 1234,
    train_dataset.data_loader.config.data_path: ['1', /mnt/wiki_text_document], runner_wrapper.type: MFTrainOneStepCell,
    runner_wrapper.scale_sense: 1.0, runner_wrapper.use_clip_grad: true, seed: 1234
""")
BASES = {}
BASES[OLD] = TRAINING | keys("""
    use_legacy: true, m.type: LlamaConfig, m.seq_length: 128, m.hidden_size: 64, m.intermediate_size: 128, m.num_layers: 2,
    m.num_heads: 4, m.vocab_size: 256, m.max_position_embedding: 128, m.init_method_std: 0.02, m.rms_norm_eps: 1.0e-05,
    m.compute_dtype: bfloat16, m.param_init_type: float32, m.use_flash_attention: true, m.pad_token_id: -1,
    load_checkpoint: /mnt/weights
""")
BASES[NEW] = TRAINING | keys("""
    use_legacy: false, m.model_type: qwen2, m.seq_length: 128, m.hidden_size: 64, m.intermediate_size: 128, m.num_hidden_layers: 2,
    m.num_attention_heads: 4, m.head_dim: 16, m.vocab_size: 256, m.max_position_embeddings: 128, m.rms_norm_eps: 1.0e-05,
    m.hidden_dropout: 0.0, m.bias_swiglu_fusion: true, m.pad_token_id: -1
""")
BASES[EXPERTS] = BASES[NEW] | keys("""
    m.model_type: qwen3_moe, m.num_key_value_heads: 4, m.num_experts: 8, m.num_experts_per_tok: 2, m.moe_intermediate_size: 96,
    m.routed_scaling_factor: 1.0, m.norm_topk_prob: true, load_checkpoint: /mnt/weights
""")
BASES[LATENT] = BASES[NEW] | keys("""
    m.model_type: deepseek_v3, m.q_lora_rank: 24, m.kv_lora_rank: 32, m.n_routed_experts: 8, m.num_experts_per_tok: 2,
    m.moe_intermediate_size: 96, m.qk_layernorm: true, m.rope_scaling.type: yarn, m.rope_scaling.factor: 1.0,
    m.rope_scaling.original_max_position_embeddings: 4096, m.rope_scaling.mscale: 1.0, m.rope_scaling.mscale_all_dim: 1.0,
    m.first_k_dense_replace: 1, m.moe_router_enable_expert_bias: false, m.n_group: 1, m.topk_group: 1, m.routed_scaling_factor: 1.0,
    m.num_nextn_predict_layers: 0, load_checkpoint: /mnt/weights
""")
FLAGS: dict[str, dict[str, Any]] = {OLD: {}, NEW: {}}
FLAGS[EXPERTS] = typed("--num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 96 --qk-layernorm --moe-router-dtype fp32")
FLAGS[LATENT] = typed("""
    --multi-latent-attention --q-lora-rank 24 --kv-lora-rank 32 --num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 96
    --moe-shared-expert-intermediate-size 96 --moe-layer-freq "'[0]+[1]'" --moe-router-score-function sigmoid --qk-layernorm
    --moe-router-dtype fp32 --mscale-all-dim 1.0
""")


@dataclass(frozen=True)
class Exercise:
    """One row: flags of Megatron's (None takes one out, "" is a switch), keys of a YAML that agrees, and of one that does not."""

    row: str
    flags: dict[str, Any]
    same: dict[str, Any]
    other: dict[str, Any]
    style: str = OLD

    @property
    def id(self) -> str:
        return f"{self.row} ({self.style})" if self.style != OLD else self.row

    def sides(self, keys: dict[str, Any]) -> tuple[Configuration, Configuration]:
        """Both sides, the flags those of the keys where these bring their own."""
        others = {key: value for key, value in keys.items() if key != "FLAGS"}
        return megatron(self.style, flags(keys["FLAGS"]) if "FLAGS" in keys else self.flags), mindformers(self.style, others)


def megatron(style: str, flags: dict[str, Any]) -> Configuration:
    """Megatron's side of a base with an exercise's flags on it."""
    arguments = {**MEGATRON, **FLAGS[style]}
    for name, value in flags.items():
        if value is None:
            arguments.pop(name, None)
        else:
            arguments[name] = None if value == "" else value
    return read_command(" ".join(f"--{name}" if value is None else f"--{name} {value}" for name, value in arguments.items()), {})


def mindformers(style: str, keys: dict[str, Any]) -> Configuration:
    """MindFormers' side; a key that is None is taken out."""
    return read_yaml(yaml.safe_dump(mindformers_tree(style, keys)), f"{style}.yaml", Path())


def mindformers_tree(style: str, keys: dict[str, Any]) -> dict[str, Any]:
    """What MindFormers' YAML of a base holds, with an exercise's keys."""
    tree: dict[str, Any] = {}
    for name, value in {**BASES[style], **keys}.items():
        if value is None:
            continue
        *path, last = name.replace("m.", "model.model_config.", 1).split(".") if name.startswith("m.") else name.split(".")
        place = tree
        for part in path:
            inner = place.setdefault(part, {})
            if not isinstance(inner, dict):
                inner = place[part] = {}
            place = inner
        place[last] = value
    return tree


def exercises() -> Iterator[Exercise]:
    """The exercises of ``exercises.txt``. ``FLAGS`` in a YAML that does not agree are flags that make Megatron-LM the odd one, where
    MindFormers cannot be told."""
    for line in sections(Path(__file__).with_name("exercises.txt"))[""]:
        row, words, same, other, style = (cell.strip() for cell in line.replace("D.", f"{DATA}.").split("|"))
        yield Exercise(row, flags(words), keys(same), keys(other), style or OLD)


DATA = "train_dataset.data_loader.config"
EXERCISES = tuple(exercises())
OF_MEGATRON = [row for row in ROWS if row.group is RowGroup.STRUCTURE and row.megatron.keys == (row.id,)]
ALONE = [row for row in OF_MEGATRON if row.mindformers == SideSpec(fixed=ARGUMENTS.get(row.id, False))]
"""Rows of arguments that change the model and that only Megatron-LM has."""


def checked(style: str, flags: dict[str, Any], keys: dict[str, Any]) -> Checklist:
    """A check of a base, with other flags and keys."""
    return check(megatron(style, flags), mindformers(style, keys))


def row(found: Checklist, name: str) -> JudgedRow:
    return next(checked for checked in found.checked if checked.row.id == name)


def to_change(checked: JudgedRow) -> str:
    """What a reader is told to change, in English; empty where nothing is."""
    return rendered(checked.change.words) if checked.change is not None else ""
