"""What a configuration says and a framework does not do, found by building newer models of MindFormers 1.9 or in Megatron-LM's source."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

from align_hooks.checklist.class_keys import not_read
from align_hooks.checklist.defaults import LLAMA, MLA, default, family
from align_hooks.checklist.newer_names import INSTEAD, ignored, refused, without_effect
from align_hooks.checklist.older_families import DEEPSEEK, NOT_READ
from align_hooks.checklist.readings.balancing import mindformers_weight
from align_hooks.checklist.readings.batch_size import does_not_accumulate
from align_hooks.checklist.readings.experts import mindformers_experts
from align_hooks.checklist.readings.lookup import is_since, known, value_of
from align_hooks.checklist.readings.schedule import schedule_class, schedule_keys
from align_hooks.checklist.refusals import refusals, written_in_yaml
from align_hooks.checklist.row import MODEL, is_new, model
from align_hooks.checklist.side_value import ODD
from align_hooks.checklist.unread import unread
from align_hooks.configuration.megatron import flags_of
from align_hooks.configuration.values import MEGATRON, MINDFORMERS, MINDSPEED_LLM, Configuration, Unknown, Value
from align_hooks.messages import Message, message, terms

WITHOUT_EFFECT = (
    *("moe_router_pre_softmax", "moe_expert_capacity_factor", "moe_z_loss_coeff", "moe_token_drop_policy", "moe_router_fusion"),
    *("use_fused_ops_topkrouter", "embedding_init_type", "n_groups", "padded_vocab_size"),
)
"""Names of a newer model that its training graph does not read."""
NEAR = 0.88
"""The similarity (``difflib``, 0 to 1) from which on one name may be the other misspelt."""
SCALED = (f"{MODEL}rope_scaling.type", f"{MODEL}rope_scaling.rope_type")
CONTEXT = ("deterministic", "enable_graph_kernel", "jit_level", "graph_kernel_flags")
"""Keys under ``context`` that 1.9 warns about and ignores."""
ADDS_NO_ID = (0, 18)
"""The Megatron-LM since which the ids of NullTokenizer include the end of a document (0.17.1 and 0.18.0, ``null_tokenizer.py``)."""
WITHOUT_OPTIMIZER = (1, 6)
"""The MindFormers since which there is no FP32StateAdamWeightDecay; 1.5 has it in ``core/optim/optim.py``."""
NEWER_DEFAULTS = (1, 9)
"""The MindFormers since which newer models have dropout by default (1.8: 0, ``mf_model_config.py``), and some of ``context`` is ignored."""
WARMS_BY_ITSELF = ("CosineWithWarmUpLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts")
"""Schedules that need no setting of a warm-up."""


def passed_over(configuration: Configuration, version: str) -> frozenset[str]:
    """Return the names that a configuration sets and a version of MindFormers ignores."""
    if configuration.side == MINDFORMERS and not is_new(configuration):
        of_class = not_read(replace(configuration, version=version))
        return frozenset(of_class) | {MODEL + name for name in NOT_READ.get(family(configuration) or "", ("initializer_range",))}
    if configuration.side != MINDFORMERS or not is_since(version, 1, 9):  # 1.6 to 1.8 read all names of newer models
        return frozenset()
    known = family(configuration)
    return frozenset(MODEL + name for name in (*ignored(known), *without_effect(known), *WITHOUT_EFFECT))


def traps(configuration: Configuration) -> Iterator[Message]:
    """Yield the traps of a configuration."""
    if configuration.facts is not None:  # a record holds what was built
        return
    of_side = (_schedule, _accumulation, _of_model) if configuration.side == MINDFORMERS else (_megatron,)
    yield from (refusal.trap for refusal in refusals(configuration))
    for of in (_misspelt, *of_side):
        with suppress(Unknown, *ODD):  # no trap can be named of a value that is not known
            yield from of(configuration)


def _of_model(c: Configuration) -> Iterator[Message]:
    if (alike := c.values.get("runner_wrapper.calculate_per_token_loss")) is not None:
        yield message("trap.top_level_alone", place=alike.where)
    yield from _newer(c) if is_new(c) else (*unread(c), *_older(c))


def _misspelt(c: Configuration) -> Iterator[Message]:
    """Yield the names that no row reads and that nearly are a name that a row reads and that is not set."""
    known = sorted(name for name in c.used - c.values.keys() - c.passed_over if not name.startswith("launcher."))
    strangers = []
    for name, value in c.not_covered(("launcher.",)):
        flag = value.place.name.removeprefix("--") if value.place is not None else ""
        if (value.place is not None and value.place.is_json) or (c.side == MEGATRON and flag in flags_of(c.fork)):
            continue
        if name in c.passed_over:  # which has a trap of its own
            continue
        near = _near(name.lstrip("-").replace("-", "_") if c.side == MEGATRON else name, known)
        if c.side == MEGATRON and near:
            yield message("trap.no_flag", place=value.where, flag="--" + near.replace("_", "-"))
        elif near:
            yield message("trap.no_name", place=value.where, name=name.removeprefix(MODEL), known=near.removeprefix(MODEL))
        elif c.side == MEGATRON:
            strangers.append(f"--{flag}")
    if strangers:
        yield message("trap.no_flags", flags=terms(strangers))


def _near(name: str, known: Iterable[str]) -> str:
    """Return the known name that nearly is a name, in its section, or under its key in nearly its section; else empty."""
    section, _, key = name.rpartition(".")
    split = [(*candidate.rpartition(".")[::2], candidate) for candidate in known]
    in_section = {last: candidate for holder, last, candidate in split if holder == section}
    under_key = {holder: candidate for holder, last, candidate in split if last == key}
    for part, among in ((key, in_section), (section, under_key)):
        if near := difflib.get_close_matches(part, among, 1, NEAR) if len(part) > 3 else []:
            return among[near[0]]
    return ""


def _accumulation(c: Configuration) -> Iterator[Message]:
    asked, piped = c.find(("runner_config.gradient_accumulation_steps",)), c.find(("parallel_config.pipeline_stage",))
    if asked is None or not isinstance(asked.value, int) or asked.value < 2:
        return
    if does_not_accumulate(c) or (piped is not None and isinstance(piped.value, int) and piped.value > 1):
        yield message("trap.no_accumulation", place=asked.where)


def _newer(c: Configuration) -> Iterator[Message]:
    kind = family(c)
    for name in sorted(ignored(kind)):
        if MODEL + name in c.passed_over and (value := written_in_yaml(c, name)) is not None:
            yield message("trap.ignored", place=value.where, name=name, instead=INSTEAD[name])
    of_family = without_effect(kind) - ignored(kind) if c.passed_over else set()
    for name in (name for name in sorted({*WITHOUT_EFFECT, *of_family}) if name not in refused(kind) or not c.passed_over):
        if (value := written_in_yaml(c, name)) is not None and value.value:
            yield message("trap.no_effect", place=value.where, name=name)
    for name in CONTEXT if is_since(c.version, *NEWER_DEFAULTS) else ():
        if (value := c.values.get(f"context.{name}")) is not None:
            if name == "deterministic":
                yield message("trap.not_deterministic", place=value.where)
            else:
                yield message("trap.passed_over", place=value.where, name=f"context.{name}")
    scaling = next((c.values[key] for key in SCALED if key in c.values), None)
    if scaling is not None and str(scaling.value).lower() in ("llama3", "linear", "dynamic"):
        yield message("trap.no_positions", place=scaling.where, type=str(scaling.value))
    scale = _own(c, "routed_scaling_factor") or _own(c, "moe_router_topk_scaling_factor")
    if kind == "qwen3_moe" and not c.unread and (scale is None or scale.value is None):
        yield message("trap.no_scaling", source=c.source)
    if (balances := _own(c, "moe_router_load_balancing_type")) is not None and balances.value == "gbs_aux_loss":
        yield from _forgets(c, balances)
    dropout = _own(c, "hidden_dropout")
    if dropout is None and kind is not None and kind not in (*MLA, "telechat") and is_since(c.version, *NEWER_DEFAULTS):
        yield message("trap.hidden_dropout", source=c.source)
    asked = _own(c, "qk_layernorm")
    if kind in ("qwen3", "qwen3_moe") and asked is not None and asked.value is False:
        yield message("trap.always_normalised", place=asked.where)


def _forgets(c: Configuration, balances: Value) -> Iterator[Message]:
    """Yield the trap of choices counted over a step, which only the monitor of losses resets, for the decoder's layers only."""
    listed = c.find(("callbacks",))
    kinds = [one.get("type") for one in listed.value if isinstance(one, dict)] if listed and isinstance(listed.value, list) else []
    if mindformers_weight(c) and listed is not None and "MFLossMonitor" not in kinds:
        yield message("trap.never_forgotten", place=balances.where)
    elif mindformers_weight(c) and value_of(c, model("num_nextn_predict_layers"), default("mtp_num_layers")):
        yield message("trap.not_forgotten_further", place=balances.where)


def _schedule(c: Configuration) -> Iterator[Message]:
    kind, steps, part = (c.find(schedule_keys(name)) for name in ("type", "warmup_steps", "warmup_ratio"))
    if kind is None:
        return
    name = schedule_class(kind.value)
    if name == "WarmUpStableDecayLR" and not any(value is not None and value.value for value in (steps, part)):
        yield message("trap.divides_by_zero", place=kind.where)
    if steps is None and part is None and name not in WARMS_BY_ITSELF:
        yield message("trap.no_warm_up", place=kind.where, type=str(kind.value))


def _older(c: Configuration) -> Iterator[Message]:
    optimizer = c.find(("optimizer.type",))
    if optimizer is not None and optimizer.value == "FP32StateAdamWeightDecay" and is_since(c.version, *WITHOUT_OPTIMIZER):
        yield message("trap.optimizer_gone", place=optimizer.where)
    if (padded := c.values.get(f"{MODEL}padded_vocab_size")) is not None and family(c) == LLAMA:
        yield message("trap.padded_size", place=padded.where)
    balanced = c.find(("moe_config.aux_loss_factor",))
    if balanced is not None and (family(c) in (LLAMA, *DEEPSEEK)) and (mindformers_experts(c) or 0) > 1:
        yield message("trap.no_auxiliary_loss", place=balanced.where)
    if (name := next((name for name in c.values if name.startswith(f"{MODEL}moe_config.")), None)) is not None:
        yield message("trap.overwritten", place=c.values[name].where, name=name)


def _megatron(c: Configuration) -> Iterator[Message]:
    groups, grouped = c.values.get("num_query_groups"), c.values.get("group_query_attention")
    if groups is not None and grouped is None:
        yield message("trap.groups_without_flag", place=groups.where)
    adds_one = not c.version or not is_since(c.version, *ADDS_NO_ID)
    if known(c, "tokenizer_type") == "NullTokenizer" and "vocab_size" in c.values and adds_one:
        yield message("trap.null_tokenizer", place=c.values["tokenizer_type"].where)
    scale = c.values.get("moe_router_topk_scaling_factor")
    if c.fork == MINDSPEED_LLM and scale is not None and scale.place is not None and scale.place.name == "--routed-scaling-factor":
        yield message("trap.scaling_by_groups", place=scale.where)
    if (config := c.values.get("yaml_cfg")) is not None:
        yield message("trap.own_yaml", place=config.where)
    if (saved := c.values.get("use_checkpoint_args")) is not None:
        yield message("trap.checkpoint_arguments", place=saved.where)


def _own(c: Configuration, name: str) -> Value | None:
    return c.find(model(name))
