"""Older models of MindFormers, read as their sources build them; each case names the branch, the file and the line that make it so."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from align_hooks.checklist.judge import RowOutcome
from align_hooks.checklist.mindformers_models import names_passed_over
from align_hooks.checklist.result import Checklist, check
from align_hooks.checklist.tables import ROW
from align_hooks.configuration.megatron import read_command
from align_hooks.configuration.mindformers import read_yaml
from align_hooks.configuration.values import Configuration
from align_hooks.data_file import sections
from align_hooks.messages import rendered
from checklist.exercises import OLD, megatron, mindformers, row
from chosen import in_one
from worded import ids

SPARSE = "moe.expert_num: 8, moe.num_experts_chosen: 2"
SHARED = f"{SPARSE}, moe.shared_expert_num: 2"
LINES = sections(Path(__file__).with_name("older_families.txt"))[""]
CASES = [[cell.strip() for cell in line.replace("SHARED", SHARED).replace("SPARSE", SPARSE).split("|")] for line in LINES]


def older(kind: str, keys: str) -> Configuration:
    """A YAML of an older model: ``m.`` stands for ``model.model_config.``, ``moe.`` for ``moe_config.``."""
    tree: dict[str, Any] = {"model": {"model_config": {"type": kind}}, "moe_config": {}}
    for name, value in (yaml.safe_load("{" + keys + "}") or {}).items():
        section, _, rest = name.partition(".")
        value = "None" if value == "None" else value
        if section == "m":
            tree["model"]["model_config"][rest] = value
        elif section == "moe":
            tree["moe_config"][rest] = value
        elif section == "model":
            tree["model"][rest] = value
        else:
            tree[name] = value
    configuration = read_yaml(yaml.safe_dump(tree), "older.yaml", Path())
    return replace(configuration, passed_over=names_passed_over(configuration, "1.5"))


@in_one(CASES)
def test_a_row_holds_what_the_source_builds(kind: str, keys: str, name: str, holds: str, source: str) -> None:
    assert rendered(ROW[name].read(older(kind, keys)).shown) == holds, source


def test_a_loss_that_nobody_adds_is_told() -> None:
    """r1.5.0 mindformers/models/llama/llama_transformer.py:961 builds MoEV2 with return_extra_loss left False."""
    sparse = {"moe_config.expert_num": 4, "moe_config.routing_policy": "TopkRouterV2"}
    sparsely = check(megatron(OLD, {"num-experts": 4}), mindformers(OLD, {**sparse, "moe_config.aux_loss_factor": 0.05}))
    assert row(sparsely, "aux_loss_factor").outcome is RowOutcome.SAME
    assert "pitfall.no_auxiliary_loss" in ids(*sparsely.sides[1].pitfalls)
    dense = check(megatron(OLD, {}), mindformers(OLD, {"moe_config.expert_num": 1, "moe_config.aux_loss_factor": 0.05}))
    assert "pitfall.no_auxiliary_loss" not in ids(*dense.sides[1].pitfalls)


def test_how_positions_are_turned_says_nothing_where_none_are() -> None:
    """r1.3.0 mindformers/models/gpt2/gpt2.py:329: positions are learned."""
    learned = read_command("torchrun pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4", {})
    both = check(learned, older("GPT2Config", "m.num_layers: 2, m.hidden_size: 64, m.num_heads: 4"))
    for name in ("rotary_base", "rotary_percent", "rotary_interleaved"):
        assert row(both, name).outcome in (RowOutcome.SAME, RowOutcome.HARMLESS)
    assert row(both, "position_embedding_type").outcome is RowOutcome.SAME


def told(flags: str, kind: str, keys: str) -> Checklist:
    """A script with some flags against a YAML of an older model."""
    return check(read_command(f"torchrun pretrain_gpt.py --num-layers 4 {flags}", {}), older(kind, f"m.num_layers: 4, {keys}"))


def test_the_size_of_a_dense_layer_says_nothing_where_there_is_none() -> None:
    """r1.5.0 mindformers/models/llama/llama_transformer.py:967-975: every layer of such a LLaMA has experts."""
    sparse, keys = "--num-experts 8 --hidden-size 64 --ffn-hidden-size 96 --moe-ffn-hidden-size 32", f"m.intermediate_size: 32, {SPARSE}"
    one = told(sparse, "LlamaConfig", keys)
    assert (row(one, "intermediate_size").outcome, row(one, "size_of_an_expert").outcome) == (RowOutcome.HARMLESS, RowOutcome.SAME)
    other = told(f"{sparse} --moe-layer-freq [0]+[1]*3", "LlamaConfig", keys)
    assert row(other, "intermediate_size").outcome is RowOutcome.DIFFERENT


def test_numbers_of_yarn_say_nothing_of_a_side_without_it() -> None:
    """r1.5.0 mindformers/modules/layers.py:1202: scaling_factor is read by the method that extend_method names."""
    latent = "--multi-latent-attention --rotary-scaling-factor 4 --mscale 1.5"
    one = told(latent, "DeepseekV2Config", "m.extend_method: None")
    assert row(one, "rope_scaling").outcome is RowOutcome.DIFFERENT
    names = ("rotary_scaling_factor", "mscale", "mscale_all_dim", "original_max_position_embeddings")
    assert {row(one, name).outcome for name in names} == {RowOutcome.HARMLESS}
    factors = "factor: 8.0, mscale: 1.5, mscale_all_dim: 0.0, original_max_position_embeddings: 4096, beta_fast: 32, beta_slow: 1"
    other = told(latent, "DeepseekV2Config", f"m.scaling_factor: {{{factors}}}")
    outcomes = [row(other, name).outcome for name in names]
    assert outcomes == [RowOutcome.DIFFERENT, RowOutcome.SAME, RowOutcome.SAME, RowOutcome.SAME]


BALANCED = "moe.aux_loss_types: [expert], moe.aux_loss_factors: [0.01]"
CUT = "parallel_config: {use_seq_parallel: true, model_parallel: 2}"


@pytest.mark.parametrize(
    ("batch", "keys", "outcome"),
    [(1, "", RowOutcome.SAME), (2, "runner_config: {batch_size: 2}", RowOutcome.DIFFERENT), (1, CUT, RowOutcome.DIFFERENT)],
)
def test_balancing_over_one_sequence_is_balancing_over_its_micro_batch(batch: int, keys: str, outcome: RowOutcome) -> None:
    """r1.5.0 mindformers/modules/transformer/moe.py:1794: a mean over all tokens of a group, which use_seq_parallel cuts (713)."""
    flags = f"--num-experts 8 --moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 0.01 --micro-batch-size {batch}"
    one = told(flags, "DeepseekV3Config", ", ".join(filter(None, (SPARSE, BALANCED, keys))))
    assert row(one, "aux_loss_factor").outcome is RowOutcome.SAME
    assert row(one, "load_balancing_type").outcome is outcome


def test_megatron_deepspeed_may_be_told_the_rows_of_the_embedding() -> None:
    """bigscience-workshop/Megatron-DeepSpeed megatron/tokenizer/tokenizer.py, ``_vocab_size_with_padding``; its --embed-layernorm norms
    what comes of the embedding, which MindFormers' models do not."""
    one = told("--pad-vocab-size-to 250880 --embed-layernorm", "GPT2Config", "m.vocab_size: 250880")
    assert row(one, "rows_of_the_embedding").outcome is RowOutcome.SAME
    assert row(one, "embed_layernorm").outcome is RowOutcome.DIFFERENT
