"""What MindFormers' classes of models read, ignore, refuse and hold by default, by family and release: data, in the text files beside.

Newer models have what the classes of MindFormers 1.9 hold when built from an empty configuration, as tests build every family
with every name; Qwen3's classes convert their configuration twice, so families differ. Older models have ``LlamaConfig``'s and
``MoEConfig``'s values; those that 1.9 no longer has are by the sources of 1.3 and 1.5, most in ``research/``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from align_hooks.checklist.canonical_values import UNSET
from align_hooks.checklist.lookup import MODEL, Read, is_new, is_since, model
from align_hooks.configuration import pynative
from align_hooks.configuration.values import MINDFORMERS, Configuration, Setting, Value
from align_hooks.data_file import sections, setting
from align_hooks.messages import Argument, message

_FOLDER = Path(__file__).parent

# ---- families

LLAMA = "llama"
"""The older family: ``LlamaConfig``, which also serves Qwen2.5, Mixtral and GLM of ``use_legacy: True``."""
CHATGLM = "chatglm2"
"""The other older family: ``ChatGLM2Config``, which serves GLM-3 and GLM-4 too."""
OLDER = (LLAMA, CHATGLM)
"""Older families that 1.9 still has."""
DEEPSEEK2, DEEPSEEK3 = "deepseekv2", "deepseekv3"
DEEPSEEK = (DEEPSEEK2, DEEPSEEK3)
"""``research/deepseek2`` and ``research/deepseek3``, whose layers are the same: latent attention, and experts by ``moe_config``."""
GPT2, INTERNLM2, QWEN = "gpt2", "internlm2", "qwen"
CLASSES = {f"{family}config": family for family in (*DEEPSEEK, GPT2, INTERNLM2, QWEN)}
"""``model_config.type``, in lower case, to the family."""
GONE = dict.fromkeys(("GPT2Config", "InternLM2Config", "QwenConfig"), "1.5")
"""Classes that MindFormers no longer has, and the last release that has them."""
ARCHITECTURES = {
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "glm4": "Glm4ForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM",
    "telechat": "Telechat2ForCausalLM",
    "telechat3": "TeleChat3ForCausalLM",
    "telechat3_moe": "TeleChat3MoeForCausalLM",
}
"""Newer family, which is ``model_type``, to the name of its architecture."""
MLA = ("deepseek_v3", "telechat3_moe")


def family(configuration: Configuration) -> str | None:
    """Return the family of a MindFormers configuration; None where it is not known."""
    kinds = ("model_type", "architectures", "type")
    model_type, architectures, kind = (configuration.find(model(name)) for name in kinds)
    if not is_new(configuration):
        name = str(kind.value).lower() if kind is not None else LLAMA
        return LLAMA if "llama" in name else CHATGLM if "chatglm" in name else CLASSES.get(name)
    if model_type is not None and str(model_type.value) in ARCHITECTURES:
        return str(model_type.value)
    named = architectures.value if architectures is not None else None
    first = str(named[0] if isinstance(named, list) and named else named).lower()
    return next((name for name, architecture in ARCHITECTURES.items() if architecture.lower() == first), None)


# ---- defaults

OTHERS = ""
"""The row of ``defaults.txt`` that holds for every other family of the newer models."""
FIRST_DENSE, EXPERT_FFN = 1, 1407
"""``MoEConfig.first_k_dense_replace``, which is True, and ``moe_intermediate_size``; only DeepSeek's layers read them."""
KEY_VALUE_HEADS = {CHATGLM: 2, "internlm2": 8, "qwen3_moe": 4, "glm4": 2, "glm4_moe": 8}
HEAD_DIM = {CHATGLM: 128, "qwen3": 128, "qwen2": 128, "telechat3": 128, "glm4": 128, "telechat": 128}
EXPERT_SIZE = {"qwen3_moe": 768, "deepseek_v3": 2048, "glm4_moe": 1408, "telechat3_moe": 1536}
TEMPLATE_SINCE = (1, 5)
"""The MindFormers since which ``ConfigTemplate`` (``mindformers.tools.register.template``) fills in sections that a YAML lacks."""
TEMPLATE: Mapping[str, Mapping[str, Setting]] = {
    "optimizer": {"type": "AdamW", "betas": [0.9, 0.999], "learning_rate": 5e-5, "eps": 1e-8, "weight_decay": 0.0},
    "lr_schedule": {"type": "CosineWithWarmUpLR", "learning_rate": 5e-5, "lr_end": 0.0, "warmup_ratio": 0.0, "total_steps": -1},
}
"""Sections of a training; the resolvers of ``runner_wrapper`` have its own."""


def _by_family() -> Mapping[str, Mapping[str, Setting]]:
    rows: dict[str, dict[str, Setting]] = {}
    for line in sections(_FOLDER / "defaults.txt")[""]:
        field, *words = line.split()
        for name, _, value in (word.rpartition("=") for word in words):
            rows.setdefault(field, {})[name] = setting(value)
    return rows


DEFAULTS = _by_family()
"""Field of ``TransformerConfig`` to its value by family."""
_PARTS = {
    head.partition(":")[0]: (head.partition(":")[2].split(), lines) for head, lines in sections(_FOLDER / "older_families.txt").items()
}


def _fields(name: str) -> dict[str, Setting]:
    """Return the fields of a section of ``older_families.txt``, and those of its parts that the section does not set itself."""
    parts, lines = _PARTS[name]
    fields = {field: value for part in parts for field, value in _fields(part).items()}
    return fields | {field: setting(value) for line in lines for field, value in (word.split("=") for word in line.split())}


OLDER_DEFAULTS: Mapping[str, Mapping[str, Setting]] = {family: _fields(family) for family in CLASSES.values()}
"""Family to field of ``TransformerConfig`` to value; a field that is not there is not known."""


def default(field: str) -> Read:
    """Return a reader of a family's default of a field; UNSET where the model's own ``config.json`` is not here to be read."""

    def read(configuration: Configuration) -> Setting:
        name, table = family(configuration), DEFAULTS.get(field, {})
        if configuration.unread or name is None:
            return UNSET
        if name in OLDER_DEFAULTS:
            return OLDER_DEFAULTS[name].get(field, UNSET)
        return table.get(name, UNSET if name in OLDER else table.get(OTHERS, UNSET))

    return read


def if_complete(value: Setting) -> Read:
    """Return a reader of ``value``; UNSET where the model's own ``config.json`` is not here to be read."""
    return lambda configuration: UNSET if configuration.unread else value


def of_template(values: Mapping[str, Value]) -> dict[str, Value]:
    """Return the values of sections that a configuration lacks; a schedule by groups replaces the common one."""
    there = {name.partition(".")[0] for name in values}
    lacking = [name for name in TEMPLATE if name not in there and not (name == "lr_schedule" and "grouped_lr_schedule" in there)]
    return {f"{section}.{key}": Value(value) for section in lacking for key, value in TEMPLATE[section].items()}


# ---- names that the classes of older models read; a class silently ignores all others (``PretrainedConfig.__init__``)

OF_CLASS = f"{MODEL}type"
EVERY_CLASS = "every"
"""The section of ``class_keys.txt`` with names that are read whatever the class is."""
NOT_READ: Mapping[str, tuple[str, ...]] = {
    LLAMA: ("initializer_range", "kv_channels", "rotary_pct", "rotary_emb_base", "emb_dropout_prob"),
    DEEPSEEK2: ("init_method_std",),
    DEEPSEEK3: (),
    GPT2: ("compute_dtype",),
    INTERNLM2: ("init_method_std",),
    QWEN: ("init_method_std", "qkv_has_bias"),
}
"""Family to names of ``model_config`` that its class may accept and its networks do not read. A Llama may be of another class."""


def class_of(configuration: Configuration) -> str:
    """Return the configuration class of an older model, as the table writes it; empty where it is not in the table, or not named."""
    kind = configuration.values.get(OF_CLASS)
    if configuration.side != MINDFORMERS or is_new(configuration) or kind is None:
        return ""
    return next((name for name in classes() if name.lower() == str(kind.value).lower()), "")


def keys_read(kind: str, version: str) -> frozenset[str]:
    """Return the names under ``model_config`` that a class reads in a release, with those of its parents and of every class."""
    parent, own = classes()[kind]
    names = {name for name, since in {**own, **classes()[EVERY_CLASS][1]}.items() if is_since(version, *since)}
    return frozenset(names | (keys_read(parent, version) if parent else frozenset()))


def own_keys(kind: str, version: str) -> frozenset[str]:
    """Return the same names without those of every class."""
    return keys_read(kind, version) - classes()[EVERY_CLASS][1].keys()


@lru_cache(maxsize=1)
def classes() -> Mapping[str, tuple[str, Mapping[str, tuple[int, ...]]]]:
    """Class to the class that it is made of, and to its names, each with the release from which on it is read, empty where that is all."""
    table = {}
    for head, lines in sections(_FOLDER / "class_keys.txt").items():
        kind, _, parent = head.partition(" ")
        words = (word.partition("@") for line in lines for word in line.split())
        table[kind] = parent, {name: tuple(map(int, since.split("."))) if since else () for name, _, since in words}
    return table


# ---- names that 1.9's newer models ignore or refuse; 1.6 to 1.8 read nearly all of them, as the guide and old YAML files do

_NAMES = sections(_FOLDER / "newer_names.txt")
_GROUPS = {name: tuple(families.split()) for name, families in (line.split(": ") for line in _NAMES["families"])}
EVERY = _GROUPS["EVERY"]
"""The families that 1.9 trains."""


def _instead(head: str) -> dict[str, Argument]:
    """Return what to write instead of each name of a section: another name, or a message about two of them."""
    return {name: _advice(*names) for name, *names in map(str.split, _NAMES[head])}


def _advice(name: str, of_deepseek: str = "") -> Argument:
    if of_deepseek:
        return message("instead.num_experts", name=name, other=of_deepseek)
    first, _, second = name.partition("|")
    return message("instead.either", name=first, other=second) if second else name


def _of_families(head: str) -> list[tuple[tuple[str, ...], list[str]]]:
    """Return the rows of a section: the families that each holds for, and its words."""
    rows = (line.split(": ") for line in _NAMES[head])
    return [(tuple(one for name in families.split() for one in _GROUPS.get(name, (name,))), words.split()) for families, words in rows]


IGNORED = _instead("ignored")
INSTEAD: Mapping[str, Argument] = {**IGNORED, **_instead("instead")}
READ_BY = {"router_dense_type": ("qwen3_moe", "telechat3_moe")}
"""Families that do read what the others pass over."""
REFUSED, WITHOUT_EFFECT, UNREAD = map(_of_families, ("refused", "without effect", "unread"))
REFUSED_VALUES: list[tuple[tuple[str, ...], str, Setting]] = [
    (families, name, setting(value))
    for families, pairs in _of_families("refused values")
    for name, value in (pair.split("=") for pair in pairs)
]
ACCEPTED_WITH: Mapping[str, tuple[str, Setting]] = {"bias_swiglu_fusion": ("hidden_act", "swiglu")}
"""Name to the other name and its value with which a refused value of the name is accepted."""

NOT_IN_GRAPH = (
    *("moe_router_pre_softmax", "moe_expert_capacity_factor", "moe_z_loss_coeff", "moe_token_drop_policy", "moe_router_fusion"),
    *("use_fused_ops_topkrouter", "embedding_init_type", "n_groups", "padded_vocab_size"),
)
"""Names of a newer model that its training graph does not read."""


def refused(family: str | None) -> frozenset[str]:
    """Names that a family refuses; of one that 1.9 does not train, or that is not known, those that all refuse."""
    known = family if family in EVERY else None
    return frozenset(name for families, names in REFUSED for name in names if (known in families if known else families == EVERY))


def ignored(family: str | None) -> frozenset[str]:
    """Names that a family passes over."""
    return frozenset(name for name in IGNORED.keys() - refused(family) if family not in READ_BY.get(name, ()))


def unread(family: str | None) -> frozenset[str]:
    """Names by which nothing changes in a family that 1.9 trains."""
    return frozenset(name for families, names in UNREAD for name in names if family in families) | without_effect(family)


def without_effect(family: str | None) -> frozenset[str]:
    """Names that mean something, and that a family that 1.9 trains does not do."""
    return frozenset(name for families, names in WITHOUT_EFFECT for name in names if family in families)


def refuses(family: str | None, name: str, value: Setting, said: Mapping[str, Setting]) -> bool:
    """Return whether a family, every one where it is not known, refuses a value; ``said``: the YAML's model settings by name."""
    holds = (one for families, *one in REFUSED_VALUES if (family in families if family is not None else families == EVERY))
    if [name, value] not in holds:
        return False
    beside, wanted = ACCEPTED_WITH.get(name, ("", None))
    return not beside or said.get(beside) != wanted


def names_passed_over(configuration: Configuration, version: str) -> frozenset[str]:
    """Return the names that a configuration sets and a version of MindFormers ignores."""
    if configuration.side == MINDFORMERS and not is_new(configuration):
        named = class_of(configuration)
        of_model = [name for name in configuration.values if name.startswith(MODEL)] if named else []
        read = keys_read(named, version) if named else frozenset[str]()
        of_class = frozenset(name for name in of_model if name.removeprefix(MODEL).partition(".")[0] not in read)
        return of_class | {MODEL + name for name in NOT_READ.get(family(configuration) or "", ("initializer_range",))}
    if configuration.side != MINDFORMERS or not is_since(version, 1, 9):  # 1.6 to 1.8 read all names of newer models
        return frozenset()
    kind = family(configuration)
    if configuration.trainer:
        return frozenset(MODEL + name for name in (*ignored(kind), *pynative.UNREAD))
    return frozenset(MODEL + name for name in (*ignored(kind), *without_effect(kind), *NOT_IN_GRAPH))
