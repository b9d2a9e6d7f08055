"""What a configuration says and a framework does not do, found by building newer models of MindFormers 1.9 or in Megatron-LM's source."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import suppress
from functools import partial

from msgspec import Struct, field
from msgspec.structs import replace

from align_hooks.checklist import mindformers_models as models
from align_hooks.checklist.canonical_values import UNSET, plain, same
from align_hooks.checklist.edits import in_yaml
from align_hooks.checklist.lookup import MODEL, is_new, is_since, known, model, value_of
from align_hooks.checklist.resolver import ODD, Edits, as_accepted, type_of
from align_hooks.checklist.resolvers.balancing import mindformers_weight
from align_hooks.checklist.resolvers.experts import mindformers_experts
from align_hooks.checklist.resolvers.layout import does_not_accumulate
from align_hooks.checklist.resolvers.optimizer import beta_keys, moved_betas
from align_hooks.checklist.resolvers.schedule import schedule_class, schedule_keys
from align_hooks.checklist.row import CheckRow
from align_hooks.checklist.tables import ROW, ROWS
from align_hooks.checklist.uncovered import LAUNCHER, not_covered
from align_hooks.configuration.megatron import flags_of
from align_hooks.configuration.values import MEGATRON, MINDFORMERS, MINDSPEED_LLM, Configuration, Setting, Unknown, Value
from align_hooks.messages import Message, all_of, message, terms

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


class Pitfall(Struct, frozen=True):
    """A setting that its framework does not do, or does otherwise than its name says."""

    text: Message
    at: Value | None = None
    """The setting; None where it is missing, or where there are several."""

    @property
    def line(self) -> float:
        """The line of the setting; infinite without one."""
        place = self.at.place if self.at is not None else None
        return math.inf if place is None or place.line is None else place.line


class Refusal(Pitfall, frozen=True):
    """A setting that ends a training before its first step."""

    edits: Edits = field(default_factory=dict)
    """The repair, UNSET for a key to take out; empty where only the reference says it."""


def pitfalls(configuration: Configuration, covered: Set[str]) -> Sequence[Pitfall]:
    """Return the pitfalls of a configuration in the order of their lines; ``covered`` are the names that rows read."""
    if configuration.facts is not None:  # a record holds what was built
        return ()
    of_side = (_schedule, _accumulation, _of_model) if configuration.side == MINDFORMERS else (_megatron,)
    found: list[Pitfall] = [*refusals(configuration)]
    for of in (partial(_misspelt, covered), *of_side):
        with suppress(Unknown, *ODD):  # no pitfall can be named of a value that is not known
            found.extend(of(configuration))
    return sorted(found, key=lambda pitfall: pitfall.line)


def _of_model(c: Configuration) -> Iterator[Pitfall]:
    if (alike := c.values.get("runner_wrapper.calculate_per_token_loss")) is not None:
        yield Pitfall(message("pitfall.top_level_alone", place=alike.where), alike)
    yield from _pynative(c) if c.trainer else _newer(c) if is_new(c) else (*_unread(c), *_older(c))


def _pynative(c: Configuration) -> Iterator[Pitfall]:
    """Yield what the PyNative trainer does otherwise than its YAML says, or than Megatron-LM does."""
    for name in sorted(name.removeprefix(MODEL) for name in c.passed_over):
        if (value := written_in_yaml(c, name)) is not None and value.value not in (None, False, 0):
            yield Pitfall(message("pitfall.pynative_unread", place=value.where, name=name), value)
    padded, rotary, scaled = (_own(c, name) for name in ("pad_token_id", "position_embedding_type", "rotary_scaling_factor"))
    if padded is not None and isinstance(padded.value, int) and padded.value >= 0:
        yield Pitfall(message("pitfall.pynative_pad", place=padded.where, id=padded.value), padded)
    latent = models.family(c) in models.MLA
    if latent and (rotary is None or rotary.value == "rope") and (scaled is None or scaled.value != 1):
        factor = 40 if scaled is None else scaled.value
        yield Pitfall(message("pitfall.pynative_scale", source=c.source, factor=factor), scaled)
    flash, compute = _own(c, "use_flash_attention"), _own(c, "compute_dtype")
    if not latent and (flash is None or flash.value) and compute is not None and "float32" in str(compute.value):
        yield Pitfall(message("pitfall.pynative_flash", place=compute.where), compute)


def _misspelt(covered: Set[str], c: Configuration) -> Iterator[Pitfall]:
    """Yield the names that no row reads and that nearly are a name that a row reads and that is not set."""
    known = sorted(name for name in covered - c.values.keys() - c.passed_over if not name.startswith(LAUNCHER))
    strangers = []
    for name, value in not_covered(c, covered):
        flag = value.place.name.removeprefix("--") if value.place is not None else ""
        if (value.place is not None and value.place.is_json) or (c.side == MEGATRON and flag in flags_of(c.fork)):
            continue
        if name in c.passed_over:  # which has a pitfall of its own
            continue
        near = _near(name.lstrip("-").replace("-", "_") if c.side == MEGATRON else name, known)
        if c.side == MEGATRON and near:
            yield Pitfall(message("pitfall.no_flag", place=value.where, flag="--" + near.replace("_", "-")), value)
        elif near:
            yield Pitfall(
                message("pitfall.no_name", place=value.where, name=name.removeprefix(MODEL), known=near.removeprefix(MODEL)), value
            )
        elif c.side == MEGATRON:
            strangers.append(f"--{flag}")
    if strangers:
        yield Pitfall(message("pitfall.no_flags", flags=terms(strangers)))


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


def _accumulation(c: Configuration) -> Iterator[Pitfall]:
    asked, piped = c.find(("runner_config.gradient_accumulation_steps",)), c.find(("parallel_config.pipeline_stage",))
    if asked is None or not isinstance(asked.value, int) or asked.value < 2:
        return
    if does_not_accumulate(c) or (piped is not None and isinstance(piped.value, int) and piped.value > 1):
        yield Pitfall(message("pitfall.no_accumulation", place=asked.where), asked)


def _newer(c: Configuration) -> Iterator[Pitfall]:
    kind = models.family(c)
    for name in sorted(models.ignored(kind)):
        if MODEL + name in c.passed_over and (value := written_in_yaml(c, name)) is not None:
            yield Pitfall(message("pitfall.ignored", place=value.where, name=name, instead=models.INSTEAD[name]), value)
    of_family = models.without_effect(kind) - models.ignored(kind) if c.passed_over else set()
    for name in (name for name in sorted({*models.NOT_IN_GRAPH, *of_family}) if name not in models.refused(kind) or not c.passed_over):
        if (value := written_in_yaml(c, name)) is not None and value.value:
            yield Pitfall(message("pitfall.no_effect", place=value.where, name=name), value)
    for name in CONTEXT if is_since(c.version, *NEWER_DEFAULTS) else ():
        if (value := c.values.get(f"context.{name}")) is not None:
            if name == "deterministic":
                yield Pitfall(message("pitfall.not_deterministic", place=value.where), value)
            else:
                yield Pitfall(message("pitfall.passed_over", place=value.where, name=f"context.{name}"), value)
    scaling = next((c.values[key] for key in SCALED if key in c.values), None)
    if scaling is not None and str(scaling.value).lower() in ("llama3", "linear", "dynamic"):
        yield Pitfall(message("pitfall.no_positions", place=scaling.where, type=str(scaling.value)), scaling)
    scale = _own(c, "routed_scaling_factor") or _own(c, "moe_router_topk_scaling_factor")
    if kind == "qwen3_moe" and not c.unread and (scale is None or scale.value is None):
        yield Pitfall(message("pitfall.no_scaling", source=c.source))
    if (balances := _own(c, "moe_router_load_balancing_type")) is not None and balances.value == "gbs_aux_loss":
        yield from _forgets(c, balances)
    dropout = _own(c, "hidden_dropout")
    if dropout is None and kind is not None and kind not in (*models.MLA, "telechat") and is_since(c.version, *NEWER_DEFAULTS):
        yield Pitfall(message("pitfall.hidden_dropout", source=c.source))
    asked = _own(c, "qk_layernorm")
    if kind in ("qwen3", "qwen3_moe") and asked is not None and asked.value is False:
        yield Pitfall(message("pitfall.always_normalised", place=asked.where), asked)


def _forgets(c: Configuration, balances: Value) -> Iterator[Pitfall]:
    """Yield the pitfall of choices counted over a step, which only the monitor of losses resets, for the decoder's layers only."""
    listed = c.find(("callbacks",))
    kinds = [one.get("type") for one in listed.value if isinstance(one, dict)] if listed and isinstance(listed.value, list) else []
    if mindformers_weight(c) and listed is not None and "MFLossMonitor" not in kinds:
        yield Pitfall(message("pitfall.never_forgotten", place=balances.where), balances)
    elif mindformers_weight(c) and value_of(c, model("num_nextn_predict_layers"), models.default("mtp_num_layers")):
        yield Pitfall(message("pitfall.not_forgotten_further", place=balances.where), balances)


def _schedule(c: Configuration) -> Iterator[Pitfall]:
    kind, steps, part = (c.find(schedule_keys(name)) for name in ("type", "warmup_steps", "warmup_ratio"))
    if kind is None:
        return
    name = schedule_class(kind.value)
    if name == "WarmUpStableDecayLR" and not any(value is not None and value.value for value in (steps, part)):
        yield Pitfall(message("pitfall.divides_by_zero", place=kind.where), kind)
    if steps is None and part is None and name not in WARMS_BY_ITSELF:
        yield Pitfall(message("pitfall.no_warm_up", place=kind.where, type=str(kind.value)), kind)


def _older(c: Configuration) -> Iterator[Pitfall]:
    optimizer = c.find(("optimizer.type",))
    if optimizer is not None and optimizer.value == "FP32StateAdamWeightDecay" and is_since(c.version, *WITHOUT_OPTIMIZER):
        yield Pitfall(message("pitfall.optimizer_gone", place=optimizer.where), optimizer)
    if (padded := c.values.get(f"{MODEL}padded_vocab_size")) is not None and models.family(c) == models.LLAMA:
        yield Pitfall(message("pitfall.padded_size", place=padded.where), padded)
    balanced = c.find(("moe_config.aux_loss_factor",))
    if balanced is not None and (models.family(c) in (models.LLAMA, *models.DEEPSEEK)) and (mindformers_experts(c) or 0) > 1:
        yield Pitfall(message("pitfall.no_auxiliary_loss", place=balanced.where), balanced)
    if (name := next((name for name in c.values if name.startswith(f"{MODEL}moe_config.")), None)) is not None:
        yield Pitfall(message("pitfall.overwritten", place=c.values[name].where, name=name), c.values[name])


def _megatron(c: Configuration) -> Iterator[Pitfall]:
    groups, grouped = c.values.get("num_query_groups"), c.values.get("group_query_attention")
    if groups is not None and grouped is None:
        yield Pitfall(message("pitfall.groups_without_flag", place=groups.where), groups)
    adds_one = not c.version or not is_since(c.version, *ADDS_NO_ID)
    if known(c, "tokenizer_type") == "NullTokenizer" and "vocab_size" in c.values and adds_one:
        yield Pitfall(message("pitfall.null_tokenizer", place=c.values["tokenizer_type"].where), c.values["tokenizer_type"])
    scale = c.values.get("moe_router_topk_scaling_factor")
    if c.fork == MINDSPEED_LLM and scale is not None and scale.place is not None and scale.place.name == "--routed-scaling-factor":
        yield Pitfall(message("pitfall.scaling_by_groups", place=scale.where), scale)
    if (config := c.values.get("yaml_cfg")) is not None:
        yield Pitfall(message("pitfall.own_yaml", place=config.where), config)
    if (saved := c.values.get("use_checkpoint_args")) is not None:
        yield Pitfall(message("pitfall.checkpoint_arguments", place=saved.where), saved)


def _own(c: Configuration, name: str) -> Value | None:
    return c.find(model(name))


# ---- keys that an older model's class ignores

NEAR_KEY = 0.8
"""The similarity (``difflib``, 0 to 1) from which on one name may be meant for another."""
MEANT = {
    "rotary_emb_base": ("rotary_base", "theta"),
    "rotary_pct": ("rotary_percent", ""),
    "emb_dropout_prob": ("hidden_dropout", ""),
    "attn_dropout_prob": ("attention_dropout", ""),
}
"""Other frameworks' names in MindFormers' YAML files to their row, and to the name that an older model reads, empty without one."""


def _unread(c: Configuration) -> Iterator[Pitfall]:
    """Yield the ignored keys, each with its place and the name that is read; none whose value holds anyhow."""
    kind = models.class_of(c)
    read = models.own_keys(kind, c.version) if kind else frozenset[str]()
    of = {"kind": kind, "version": ".".join(c.version.split(".")[:2])}
    if (last := models.GONE.get(kind)) is not None and is_since(c.version, 1, 6):
        yield Pitfall(message("pitfall.no_class", place=c.values[models.OF_CLASS].where, last=last, **of), c.values[models.OF_CLASS])
        of["version"] = last
    unknown: list[str] = []
    for name, value in _lost(c) if kind else ():
        if (meant := _meant(c, name, value, read - {name})) is None:
            continue
        near = meant or next(iter(difflib.get_close_matches(name, sorted(read - {name}), 1, NEAR_KEY)), "")
        if (other := c.values.get(MODEL + near)) is not None:
            yield Pitfall(message("pitfall.unread_beside", place=value.where, name=name, other=near, elsewhere=other.where, **of), value)
        elif meant:
            yield Pitfall(message("pitfall.unread", place=value.where, name=name, instead=f"{meant}: {in_yaml(value.value)}", **of), value)
        elif near:
            yield Pitfall(message("pitfall.unread_near", place=value.where, name=name, other=near, **of), value)
        else:
            unknown.append(f"{name} ({value.where})")
    if unknown:
        yield Pitfall(message("pitfall.unread_alone", names=terms(unknown), **of))


def _lost(c: Configuration) -> Iterator[tuple[str, Value]]:
    """Yield the ignored names without their section, each once, with a table's first value; none that is set to nothing."""
    seen: set[str] = set()
    for key, value in c.values.items():
        name = key.removeprefix(MODEL).partition(".")[0]
        if key in c.passed_over and name not in seen and value.value not in (None, "None"):
            seen.add(name)
            yield name, value


def _meant(c: Configuration, name: str, value: Value, read: frozenset[str]) -> str | None:
    """Return the name that is read and means what the key seems to; empty without one; None where the value holds anyhow."""
    key = MODEL + name
    if name in MEANT:
        spec, instead = MEANT[name]
        return None if same(_held(ROW[spec], c), value.value) else instead if instead in read else ""
    rows = [row for row in ROWS if key in row.mindformers.keys]
    if rows and all(_held(row, c) is not UNSET and same(_held(row, c), _held(row, c, key)) for row in rows):
        return None
    for row in rows:
        for other in (other for other in row.mindformers.keys if other.removeprefix(MODEL) in read):
            without = replace(c, values={one: held for one, held in c.values.items() if one not in (key, other)})
            seems = _held(row, replace(without, values={**without.values, key: value}), key)
            would = _held(row, replace(without, values={**without.values, other: value}))
            if seems is not UNSET and same(seems, would):
                return other.removeprefix(MODEL)
    return ""


def _held(row: CheckRow, c: Configuration, key: str = "") -> Setting:
    """Return a side's value of a row, as if ``key`` were read too."""
    return row.read(replace(c, passed_over=c.passed_over - {key})).canonical


# ---- settings that end a training before its first step

ALLOWED: dict[str, tuple[str, ...]] = {
    "normalization": ("LayerNorm", "RMSNorm"),
    "moe_router_load_balancing_type": ("sub_seq_aux_loss", "seq_aux_loss", "gbs_aux_loss"),
}
"""Fields of a newer model and all the values that ``get_norm_cls`` and ``TopKRouter`` of its training graph know."""
NOT_A_FLOAT = re.compile(r"^[+-]?(\d+(\.\d*)?|\.\d+)[eE]\d+$|^[+-]?\d+[eE][+-]?\d+$")
"""Numbers that YAML 1.1 reads as text, for it wants a point and a sign."""
CHECKED = ("optimizer.", "lr_schedule.", "grouped_lr_schedule.default.")
"""Sections whose classes check the types of their numbers."""
DROPOUT = (f"{MODEL}hidden_dropout", f"{MODEL}attention_dropout")
"""Settings whose newer classes check that their numbers are floats, as the optimizers' do."""
CONVERTED = ("total_steps",)
"""Integers that the trainer makes of any number itself."""


def refusals(configuration: Configuration) -> Iterator[Refusal]:
    """Yield what MindFormers refuses of a YAML."""
    if configuration.side != MINDFORMERS or configuration.facts is not None:  # a record was trained
        return
    for of in (_numbers, _betas, _names, _values):
        with suppress(Unknown, *ODD):
            yield from of(configuration)


def _numbers(c: Configuration) -> Iterator[Refusal]:
    """Yield numbers of a type that their key does not accept: text, an integer for a float, a fraction for an integer."""
    for name, value in c.values.items():
        if value.unknown is not None or (value.place is not None and value.place.is_json) or name in c.passed_over:
            continue
        kind, written, number = type_of(name), value.written, as_accepted(name, value.written, c)
        key, members = name.removeprefix(MODEL), written if isinstance(written, list) else [written]
        texts = [member for member in members if isinstance(member, str)]
        if kind is None and isinstance(written, str) and NOT_A_FLOAT.match(written):
            number, kind = float(written), "number"
        if kind is None or number is None:
            continue
        words = {"place": value.where, "name": key, "value": str(written)}
        if texts and all(isinstance(plain(text), int | float) for text in texts):
            yield Refusal(message("pitfall.text_to_yaml", number=in_yaml(number), **words), value, {name: number})
        elif texts and name.startswith(CHECKED):
            yield Refusal(message("pitfall.no_number", place=value.where, name=key, value=texts[0]), value)
        elif kind == "float" and int in map(type, members) and (name.startswith("optimizer.") or (name in DROPOUT and is_new(c))):
            yield Refusal(message("pitfall.no_float", number=in_yaml(number), **words), value, {name: number})
        elif name.startswith(CHECKED) and kind == "integer" and isinstance(written, float) and not name.endswith(CONVERTED):
            yield Refusal(message("pitfall.no_integer", **words), value, {name: int(written)})


def _betas(c: Configuration) -> Iterator[Refusal]:
    """Yield betas in a form that the optimizer's class does not accept."""
    edits = moved_betas(c)
    gone = [key for key, value in edits.items() if value is UNSET]
    if gone:
        instead = ", ".join(f"{key}: {in_yaml(c.values[key].written if key in c.values else edits[key])}" for key in beta_keys(c))
        kind, first = str(value_of(c, ("optimizer.type",), "AdamW")), c.values[gone[0]]
        yield Refusal(message("pitfall.betas", place=first.where, kind=kind, names=all_of(*gone), instead=instead), first, edits)


def _names(c: Configuration) -> Iterator[Refusal]:
    """Yield names whose presence ends the training of a newer model."""
    if not is_new(c) or not c.passed_over:
        return
    for name in sorted(models.refused(models.family(c))):
        if (value := written_in_yaml(c, name)) is None:
            continue
        text = message("pitfall.refused_for_good", place=value.where, name=name)
        moved: Edits = {}
        if (instead := models.INSTEAD.get(name)) is not None:
            text = message("pitfall.refused", place=value.where, name=name, instead=instead)
        if isinstance(instead, str) and MODEL + instead not in c.values and value.unknown is None:
            moved = {MODEL + instead: as_accepted(MODEL + instead, value.written, c)}
        yield Refusal(text, value, {**moved, MODEL + name: UNSET})


def _values(c: Configuration) -> Iterator[Refusal]:
    """Yield values that end the training of a newer model."""
    if not is_new(c):
        return
    for name, values in ALLOWED.items():
        if (value := c.values.get(MODEL + name)) is not None and c.passed_over and value.value not in values:
            known = all_of(*values)
            yield Refusal(message("pitfall.refused_value", place=value.where, name=name, value=str(value.value), known=known), value)
    grouped = c.values.get(f"{MODEL}moe_grouped_gemm")
    if models.family(c) in ("qwen3_moe", "deepseek_v3") and grouped is not None and grouped.value is False:
        yield Refusal(message("pitfall.no_other_product", place=grouped.where), grouped, {f"{MODEL}moe_grouped_gemm": True})


def written_in_yaml(c: Configuration, name: str) -> Value | None:
    """Return the YAML's own value of a name; None where it has none, or the model's ``config.json`` has it."""
    value = c.values.get(MODEL + name)
    return None if value is not None and value.place is not None and value.place.is_json else value
