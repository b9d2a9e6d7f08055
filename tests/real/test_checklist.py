"""The CheckList's tables, formulas and traps against the frameworks themselves, which answer from a process of their own."""

import ast
import importlib.util
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from align_hooks.checklist import mindformers_models, pitfalls, schedules
from align_hooks.checklist.canonical_values import UNSET, Balanced, ExpertLayers, dtype, same
from align_hooks.checklist.edits import in_yaml
from align_hooks.checklist.mindformers_models import ARCHITECTURES, DEFAULTS, LLAMA, MLA, OTHERS
from align_hooks.checklist.resolvers import experts, optimizer, structure
from align_hooks.checklist.result import as_read
from align_hooks.checklist.row import CheckRow
from align_hooks.checklist.tables import ROWS
from align_hooks.configuration import mindspeed
from align_hooks.configuration.megatron import ARGUMENTS, CHOICES, FLAGS, RENAMED, read_command
from align_hooks.configuration.mindformers import MODEL, read_yaml
from align_hooks.configuration.values import Configuration
from align_hooks.data_file import sections
from align_hooks.messages import rendered
from checklist.exercises import keys
from real import frameworks

STEPS = 300
TRAINED = ("qwen3", "qwen3_moe", "deepseek_v3", "telechat3", "telechat3_moe")
"""Families of newer models that MindFormers 1.9 has a training class of; the others only predict."""
BY_NAME: dict[str, CheckRow] = {row.id: row for row in ROWS}
TABLES = sections(Path(__file__).with_name("checklist.txt"))


def table(head: str) -> Iterator[list[str]]:
    """The cells of each row below a head."""
    return ([*map(str.strip, line.split("|"))] for line in TABLES[head])


def names(head: str) -> Iterator[tuple[str, str]]:
    """Ours and theirs, which is the same name where there is no other."""
    return ((ours, (theirs or [ours])[0]) for ours, *theirs in table(head))


def model_yaml(family: str, **keys: Any) -> str:
    """A newer model's YAML that says nothing but its family and ``keys``."""
    named = {"model_type": family, "architectures": ARCHITECTURES[family], **keys}
    return yaml.safe_dump({"use_legacy": False, "model": {"model_config": named}})


def mindformers_configuration(text: str) -> Configuration:
    return read_yaml(text, "x.yaml", Path())


# --- Megatron-LM: flags ---

GONE = {"adlr_beta1": "no flag of any version that is known"}
"""Flags of RENAMED that Megatron 0.19 has not, and the versions that had them."""
ANY_RUN = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 8 --max-position-embeddings 8 --micro-batch-size 2 "
ANY_RUN += "--transformer-impl local --no-gradient-accumulation-fusion --no-masked-softmax-fusion --tokenizer-type NullTokenizer "

MEGATRON_SCHEDULES = {
    name: f"--global-batch-size 6 --lr 3e-4 {'' if '--train-samples' in said else f'--train-iters {STEPS}'} {said}"
    for name, said in table("schedules of Megatron-LM")
}
MEGATRON_MODELS = dict(table("models of Megatron-LM"))
PATTERNS = ("1", "2", "([0]+[1]*3)", "[0]*1+[1]*3", "([0]+[1])*2", "[0,1,1,1]", "([0]*2+[1]*2)*1", "([1]+[0]*3)*1")


def given_again(line: str, more: str) -> str:
    """A command line with some of its flags given other values."""
    flags = {flag for flag in more.split() if flag.startswith("--")}
    kept = [part for part in re.findall(r"--\S+(?: [^-\s]\S*)*", line) if part.split()[0] not in flags]
    return " ".join([*kept, more])


def megatron_model(name: str) -> str:
    return given_again(f"{ANY_RUN}--train-iters 10 --lr 1e-3 --vocab-size 256", MEGATRON_MODELS[name])


@pytest.fixture(scope="module")
def megatron(real_corpus: Path) -> dict[str, Any]:
    """Megatron's answers."""
    asked = {
        "schedules": {name: {"command": ANY_RUN + "--vocab-size 256 " + one, "steps": STEPS} for name, one in MEGATRON_SCHEDULES.items()},
        "models": {name: megatron_model(name) for name in MEGATRON_MODELS},
        "patterns": PATTERNS,
    }
    return frameworks.answered("checklist_megatron.py", asked)


def value(answer: Mapping[str, Any]) -> Any:
    """What a framework did, where it did not refuse."""
    assert "refused" not in answer, answer["refused"]
    return answer["value"]


def of_flag(megatron: Mapping[str, Any], name: str) -> Any:
    return next((megatron["flags"][flag] for flag in (f"--{name.replace('_', '-')}", f"--{name}") if flag in megatron["flags"]), None)


def test_flags_that_are_called_otherwise_than_their_attribute(megatron: dict[str, Any]) -> None:
    wrong = {}
    for name, (attribute, constant) in RENAMED.items():
        real = of_flag(megatron, name)
        if real is None:
            wrong |= {name: "is no flag"} if name not in GONE else {}
        elif (real["dest"], real["const"]) != (attribute, constant):
            wrong[name] = (real["dest"], real["const"])
    assert wrong == {}
    assert all(of_flag(megatron, name) is None for name in GONE)


def test_the_list_of_flags_is_megatrons(megatron: dict[str, Any]) -> None:
    """``configuration/megatron_flags.txt``, a line a flag."""
    assert {flag[2:]: real["takes"] for flag, real in megatron["flags"].items() if flag.startswith("--")} == FLAGS


def test_the_choices_of_what_rows_ask_for_are_megatrons(megatron: dict[str, Any]) -> None:
    """So what is advised is taken: tests/checklist/test_suggestions.py holds every advice against ``CHOICES``."""
    asked = {key for row in ROWS for key in (*row.megatron.keys, *row.megatron.beside)}
    real = {flag[2:]: one["choices"] for flag, one in megatron["flags"].items() if one["choices"] and one["dest"] in asked}
    assert real == CHOICES


def test_the_defaults_beside_the_flags_are_megatrons(megatron: dict[str, Any]) -> None:
    real = {flag[2:]: one["default"] for flag, one in megatron["flags"].items() if flag.startswith("--") and one["default"] is not None}
    attributes = {flag: RENAMED.get(flag.replace("-", "_"), (flag.replace("-", "_"), None))[0] for flag in FLAGS}
    assert {flag: ARGUMENTS[attributes[flag]] for flag in real} == real


def test_flags_of_every_attribute_that_a_row_names_are_read(megatron: dict[str, Any]) -> None:
    """A flag that says what a row asks for under another name must be renamed; deprecated doubles of ``--no-`` are among them."""
    asked = {key for row in ROWS for key in (*row.megatron.keys, *row.megatron.beside)}
    unread = {}
    for flag, real in megatron["flags"].items():
        name = flag.lstrip("-").replace("-", "_")
        if real["dest"] in asked and name != real["dest"] and RENAMED.get(name) != (real["dest"], real["const"]):
            unread[flag] = real["dest"]
    assert unread == {}


def test_names_that_rows_look_for_are_megatrons(megatron: dict[str, Any]) -> None:
    real = {one["dest"] for one in megatron["flags"].values()}
    asked = {key: row.id for row in ROWS for key in (*row.megatron.keys, *row.megatron.beside)}
    others = {name for name, _ in table("names of other versions")}
    known = {*real, *others, *mindspeed.ARGUMENTS}
    assert {key: name for key, name in asked.items() if key not in known} == {}
    assert not real & (others - {"norm_epsilon", "apply_layernorm_1p"})


FILLED_IN = {"yarn_beta_fast": 32.0, "yarn_beta_slow": 1.0}
"""What ``argument_utils`` makes of an argument that nobody gave, whose parser has no default."""


def test_defaults_of_rows_are_megatrons(megatron: dict[str, Any]) -> None:
    real = {one["dest"]: one["default"] for one in megatron["flags"].values()} | FILLED_IN
    wrong = {}
    for row in ROWS:
        said, key = row.megatron.default, next((key for key in row.megatron.keys if key in real), None)
        if said is UNSET or callable(said) or key is None:
            continue
        ours, theirs = (one if row.form is None else row.form(one) for one in (said, real[key]))
        if not same(ours, theirs):
            wrong[row.id] = (said, real[key])
    assert wrong == {}


# --- Megatron-LM: schedules ---


def apart(ours: Any, theirs: Any, peak: float) -> float:
    """The largest relative difference, of what is as good as nothing the absolute one in parts of the peak."""
    one, other = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    if (np.isnan(one) != np.isnan(other)).any():
        return math.inf
    return float(np.nanmax(np.abs(one - other) / np.maximum(np.abs(other), peak * 1e-3)))


def steps(count: int) -> Any:
    return np.arange(count, dtype=np.float64)


@pytest.mark.parametrize("name", MEGATRON_SCHEDULES)
def test_megatrons_schedules_of_learning_rate_and_weight_decay(megatron: dict[str, Any], name: str) -> None:
    real, said = value(megatron["schedules"][name]), read_command(MEGATRON_SCHEDULES[name], {})
    decays = name.startswith("decay ")
    ours, theirs = (schedules.weight_decay(said), real["decays"]) if decays else (schedules.learning_rate(said), real["rates"])
    found = ours.rate(steps(STEPS))
    worst = int(np.argmax(np.abs(found - np.asarray(theirs))))
    assert apart(found, theirs, 0.1 if decays else 3e-4) <= 1e-9, (worst, found[worst], theirs[worst])
    assert decays or ours.steps == real["steps"]
    assert decays or len(set(theirs)) > 1 or name == "constant"


# --- Megatron-LM: what it makes of sizes, and which weights decay ---


@pytest.mark.parametrize("name", MEGATRON_MODELS)
def test_what_megatron_makes_of_sizes(megatron: dict[str, Any], name: str) -> None:
    real, c = value(megatron["models"][name]), read_command(megatron_model(name), {})
    assert structure.megatron_ffn(c) == real["ffn_hidden_size"]
    assert structure.megatron_head_dim(c) == real["kv_channels"]
    assert structure.megatron_groups(c) == real["num_query_groups"]
    assert structure.megatron_gated(c) == real["gated_linear_unit"]
    assert structure.megatron_padded_vocabulary(c) == real["padded"]
    if "--num-experts" in megatron_model(name):
        assert experts.megatron_expert_ffn(c) == real["moe_ffn_hidden_size"]
    kinds = {"swiglu": "silu", "squared relu": "squared_relu", "gelu (tanh)": "gelu"}
    assert kinds[structure.megatron_activation(c)] == real["activation"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_layers_with_experts(megatron: dict[str, Any], pattern: str) -> None:
    real = megatron["patterns"][pattern]
    digits = "".join(map(str, real if isinstance(real, list) else [int(at % real == 0) for at in range(4)]))
    c = read_command(f"--num-layers {len(digits)} --num-experts 4 --moe-layer-freq {pattern!r}", {})
    assert experts.expert_layers(c) == experts.in_runs(digits)


def biases_and_vectors_are_spared(found: Mapping[str, Any]) -> None:
    """From weight decay, and all others are not."""
    assert set(found["spared"]) == {name for name, shape in found["shapes"].items() if len(shape) == 1 or name.endswith(".bias")}
    assert {*found["spared"], *found["decays"]} == found["shapes"].keys()


def test_weights_that_decay_in_megatron(megatron: dict[str, Any]) -> None:
    found = value(megatron["decay"]["plain"])
    biases_and_vectors_are_spared(found)
    assert all(optimizer.spared(name) == (name in found["spared"]) for name in found["shapes"])
    too = value(megatron["decay"]["norms"])
    assert all("q_layernorm." in name or "k_layernorm." in name for name in set(too["decays"]) - set(found["decays"]))
    assert len(set(too["decays"]) - set(found["decays"])) == 4


# --- MindFormers: questions ---

MINDFORMERS_SCHEDULES: dict[str, dict[str, Any]] = {
    name: ({} if "base_lr" in said else {"learning_rate": 3e-4, "total_steps": STEPS}) | keys(said)
    for name, said in table("schedules of MindFormers")
}
ALL_FAMILIES = (*TRAINED, *(family for family in ARCHITECTURES if family not in TRAINED))
IGNORED_TRIES: dict[str, tuple[str, Any, str, dict[str, Any]]] = {
    key: (family, yaml.safe_load(tried), field, keys(instead)) for key, family, tried, field, instead in table("passed over")
}
VARIANTS = {name: (name.partition(",")[0], keys(said)) for name, said in table("variants")}
OLDER = {name: keys(said) for name, said in table("older models")}


def older_yaml(name: str) -> str:
    tiny = {"type": "LlamaConfig", "num_layers": 1, "hidden_size": 48, "num_heads": 4, "vocab_size": 64, "seq_length": 16}
    return yaml.safe_dump({"model": {"model_config": {**tiny, **OLDER[name]}, "arch": {"type": "LlamaForCausalLM"}}})


def trainable(family: str, asked: str = "") -> dict[str, Any]:
    """What a family with experts must be told, or its network is refused."""
    return {"moe_grouped_gemm": True} if family in mindformers_models.EXPERT_SIZE and asked != "use_gmm" else {}


def conflicts() -> dict[str, tuple[str, str]]:
    """Every key of a newer model that a row looks for, tried with every family that is trained."""
    keys = {key.removeprefix(MODEL) for row in ROWS for key in row.mindformers.keys if key.startswith(MODEL)}
    plain = sorted(key for key in keys if "." not in key and key.isidentifier())
    return {f"conflict {family} {key}": (family, key) for family in TRAINED for key in plain}


@pytest.fixture(scope="module")
def mindformers(real_corpus: Path) -> dict[str, Any]:
    """MindFormers' answers."""
    newer: dict[str, tuple[str, dict[str, Any]]] = {f"default {family}": (family, {}) for family in ALL_FAMILIES}
    newer |= {f"trainable {family}": (family, trainable(family)) for family in TRAINED}
    for key, (family, tried, _, instead) in IGNORED_TRIES.items():
        newer[f"instead {key}"] = (family, trainable(family) | instead)
        newer |= {f"ignored {one} {key}": (one, trainable(one, key) | {key: tried}) for one in TRAINED}
    newer |= {f"variant {name}": one for name, one in VARIANTS.items()}
    newer |= {name: (family, trainable(family) | {key: 1}) for name, (family, key) in conflicts().items()}
    newer |= {f"{name} {number}": ("qwen3", {name: number}) for name in ("hidden_dropout", "attention_dropout") for number in (0, 0.0)}
    texts = {name: model_yaml(family, **keys) for name, (family, keys) in newer.items()}
    texts["text"] = model_yaml("qwen3", rms_norm_eps="NUMBER").replace("NUMBER", "1e-5")
    architectures = {name: ARCHITECTURES[family] for name, (family, _) in newer.items()} | {"text": ARCHITECTURES["qwen3"]}
    texts = {name: text.replace("use_legacy: false\n", "") for name, text in texts.items()}
    context = {"deterministic": "ON", "enable_graph_kernel": True, "jit_level": "O0", "graph_kernel_flags": "--x", "mode": 0}
    asked = {
        "newer": {name: {"yaml": text, "architecture": architectures[name]} for name, text in texts.items()},
        "older": {name: older_yaml(name) for name in OLDER},
        "context": context | {"jit_config": {"jit_level": "O0"}},
        "schedules": {name: {"kwargs": kwargs, "steps": list(range(STEPS))} for name, kwargs in MINDFORMERS_SCHEDULES.items()},
    }
    return frameworks.answered("checklist_mindformers.py", asked)


# --- MindFormers: defaults ---

NOT_CONFIGURABLE = {setting: yaml.safe_load(value) for setting, value in table("settings of LLaMA without a key")}
IN_THE_NETWORK = {"rotary_percent": 1.0}
"""What GPTModel does of itself, and TransformerConfig has a field of in latent attention alone."""


def settled(one: Any) -> Any:
    """A field as the tables write it: types in full."""
    return dtype(one) if isinstance(one, str) else one


@pytest.mark.parametrize("family", ALL_FAMILIES)
def test_defaults_of_a_newer_family(mindformers: dict[str, Any], family: str) -> None:
    real, wrong = value(mindformers["newer"][f"default {family}"]), {}
    for field, by_family in DEFAULTS.items():
        said = by_family.get(family, by_family.get(OTHERS, UNSET))
        if field not in real:
            if IN_THE_NETWORK.get(field) == said:
                continue
            wrong |= {field: (said, "no such field")} if said is not UNSET else {}
        elif said is UNSET or settled(real[field]) != settled(said):
            wrong[field] = (said, real[field])
    assert wrong == {}


@pytest.mark.parametrize("family", ALL_FAMILIES)
def test_sizes_that_follow_from_a_newer_family(mindformers: dict[str, Any], family: str) -> None:
    real, c = value(mindformers["newer"][f"default {family}"]), mindformers_configuration(model_yaml(family))
    assert mindformers_models.KEY_VALUE_HEADS.get(family, real["num_attention_heads"]) == real["num_query_groups"]
    assert structure.mindformers_groups(c) == real["num_query_groups"]
    assert mindformers_models.HEAD_DIM.get(family, real["hidden_size"] // real["num_attention_heads"]) == real["kv_channels"]
    assert structure.mindformers_head_dim(c) == real["kv_channels"]
    if family in mindformers_models.EXPERT_SIZE:
        assert mindformers_models.EXPERT_SIZE[family] == real["moe_ffn_hidden_size"]
    assert (real["num_moe_experts"] is not None) == (family in mindformers_models.EXPERT_SIZE)
    assert bool(real["multi_latent_attention"]) == (family in MLA)


def test_defaults_of_the_older_models(mindformers: dict[str, Any]) -> None:
    llama, moe = mindformers["llama"], mindformers["moe"]
    answered = ((llama, "keys of LLaMA"), (moe, "keys of its experts"))
    real = {field: defaults[name] for defaults, head in answered for field, name in names(head)}
    said = {field: by_family[LLAMA] for field, by_family in DEFAULTS.items() if LLAMA in by_family}
    assert {field: settled(one) for field, one in said.items()} == {field: settled(one) for field, one in (real | NOT_CONFIGURABLE).items()}
    assert moe["use_gating_sigmoid"] is False
    assert not {*NOT_CONFIGURABLE, "dropout"} & {*llama, *moe}
    assert all(name in llama for name in ("n_kv_heads", "multiple_of", "ffn_dim_multiplier", "intermediate_size"))


def as_built(real: Mapping[str, Any], family: str) -> dict[str, Any]:
    """A built configuration with what several of its fields come to in the training graph."""
    found = dict(real)
    act, gated = real["hidden_act"], real["gated_linear_unit"]
    found["activation"] = {("silu", True): "swiglu", ("swiglu", True): "swiglu", ("gelu", False): "gelu"}.get((act, gated), act)
    found["gated"] = gated or act in ("swiglu", "fusedswiglu")
    found["qkv bias"] = real["add_bias_linear"] or real["add_qkv_bias"]
    freq, layers = real["moe_layer_freq"], real["num_layers"]
    digits = "".join(map(str, freq)) if isinstance(freq, list) else "".join(str(int(at % freq == 0)) for at in range(layers))
    if family == "qwen3_moe":
        digits = "1" * layers  # its training class makes one specification for all layers
    found["layers_with_experts"] = experts.in_runs(digits) if real["num_moe_experts"] else ExpertLayers()
    turned = real["position_embedding_type"] in ("rope", "yarn")  # YaRN is a scaling, of a row of its own
    found["position_embedding_type"] = "rope" if turned else "none"  # GPTModel makes rotary embeddings of no other, llama3 among them
    found["residual"] = "float32" if real["fp32_residual_connection"] else real["compute_dtype"]
    found["softmax"] = "float32" if real["use_flash_attention"] else real["softmax_compute_dtype"]
    found["tied"] = real.get("given", {}).get("share_embeddings_and_output_weights", False)
    normed = real.get("norm of queries")
    found["normed"] = normed != "IdentityOp" if normed is not None else family in ("qwen3", "qwen3_moe") or real["qk_layernorm"]
    return found


def held_against(real: Mapping[str, Any], family: str, text: str) -> dict[str, Any]:
    """Rows whose meaning is not what was built: ours, theirs."""
    built, c, wrong = as_built(real, family), mindformers_configuration(text), {}
    for name, field in names("fields of rows"):
        if field not in built:
            continue
        row = BY_NAME[name]
        if name in ("q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim") and family not in MLA:
            continue
        theirs = settled(built[field])
        theirs = theirs if row.form is None else row.form(theirs)
        ours = row.read(c).canonical
        ours = ours.kind if isinstance(ours, Balanced) else ours
        if not same(settled(ours), theirs):
            wrong[name] = (ours, theirs)
    return wrong


@pytest.mark.parametrize("family", TRAINED)
def test_rows_hold_what_an_empty_configuration_builds(mindformers: dict[str, Any], family: str) -> None:
    real = value(mindformers["newer"][f"default {family}"])
    assert held_against(real, family, model_yaml(family)) == {}


@pytest.mark.parametrize("name", VARIANTS)
def test_rows_hold_what_a_configuration_builds(mindformers: dict[str, Any], name: str) -> None:
    family, keys = VARIANTS[name]
    known = held_against(value(mindformers["newer"][f"default {family}"]), family, model_yaml(family))  # told by the test above
    found = held_against(value(mindformers["newer"][f"variant {name}"]), family, model_yaml(family, **keys))
    assert {row: apart for row, apart in found.items() if known.get(row) != apart} == {}


# --- MindFormers: traps ---


def trapped(text: str) -> set[tuple[str, str]]:
    """What the traps say of a YAML: ids of messages, and the key that each is of."""
    side = as_read(mindformers_configuration(text), "1.9")
    return {(pitfall.text.id, str(pitfall.text.arguments.get("name", ""))) for pitfall in pitfalls.pitfalls(side, side.values.keys())}


def test_every_trap_is_tried() -> None:
    assert mindformers_models.IGNORED.keys() <= IGNORED_TRIES.keys()


def outcome(mindformers: Mapping[str, Any], name: str, family: str, ours: str = "no such words") -> str:
    """Whether a key was ``refused``, ``ignored``, or read; ``ours`` are words that count as refused too."""
    answer, default = mindformers["newer"][name], value(mindformers["newer"][f"trainable {family}"])
    if "refused" in answer:
        return "refused" if ours in answer["refused"] or re.search(REFUSED, answer["refused"]) else "read"
    same_network = {"given", "norm of queries", "network refused", "moe_grouped_gemm"}
    moved = {field for field, one in answer["value"].items() if default.get(field) != one} - same_network
    return "read" if moved else "ignored"


REFUSED = "Mapping Conflicts|Multiple Config|Unexpected Keys"
"""What the converters say; Qwen3's classes convert once more by a stricter one, for their template of weights."""


@pytest.mark.parametrize("key", IGNORED_TRIES)
def test_what_is_written_instead_is_read(mindformers: dict[str, Any], key: str) -> None:
    family, tried, field, instead = IGNORED_TRIES[key]
    default, written = (value(mindformers["newer"][name]) for name in (f"default {family}", f"instead {key}"))
    assert settled(default[field]) != settled(tried)
    assert settled(written[field]) != settled(default[field])
    advised = rendered(mindformers_models.IGNORED[key])
    assert any(re.search(rf"\b{name}\b", advised) for name in instead)


@pytest.mark.parametrize("family", TRAINED)
def test_keys_that_are_passed_over(mindformers: dict[str, Any], family: str) -> None:
    """What the traps say of each key is what training with it does: it is ignored, it is refused, or it is read and nothing is said."""
    wrong = {}
    for key, (_, tried, _, _) in IGNORED_TRIES.items():
        if key in mindformers_models.READ_BY and family not in mindformers_models.EXPERT_SIZE:
            continue
        real = outcome(mindformers, f"ignored {family} {key}", family, "")  # the values are what 1.8 took
        said = trapped(model_yaml(family, **{key: tried}))
        words = {"pitfall.ignored": "ignored", "pitfall.refused": "refused", "pitfall.refused_for_good": "refused"}
        ours = next((word for id, word in words.items() if (id, key) in said), "read")
        wrong |= {key: f"said to be {ours}, is {real}"} if ours != real else {}
    assert wrong == {}


@pytest.mark.parametrize("family", TRAINED)
def test_keys_that_are_refused(mindformers: dict[str, Any], family: str) -> None:
    """Of every key that a row looks for, the traps tell those that this family refuses."""
    tried = [key for one, key in conflicts().values() if one == family]
    refused = {key for key in tried if outcome(mindformers, f"conflict {family} {key}", family) == "refused"}
    refused -= {"use_gmm"}  # for the grouped product that it was tried with, not for its name
    said = {key for key in tried if trapped(model_yaml(family, **{key: 1})) & {("pitfall.refused", key), ("pitfall.refused_for_good", key)}}
    said -= {"extend_method", "use_fused_swiglu"}  # refused with values that mean something, as the test above has it
    wrong = {"refused, not said": sorted(refused - said), "said, not refused": sorted(said - refused)}
    assert not any(wrong.values()), wrong


def test_dropout_of_a_newer_model(mindformers: dict[str, Any]) -> None:
    for family in TRAINED:
        real = value(mindformers["newer"][f"default {family}"])["hidden_dropout"]
        assert (("pitfall.hidden_dropout", "") in trapped(model_yaml(family))) == (real == 0.1)
        assert real in (0.0, 0.1)
    for name in ("hidden_dropout", "attention_dropout"):
        assert f"{name} should be a float" in mindformers["newer"][f"{name} 0"]["refused"]
        assert value(mindformers["newer"][f"{name} 0.0"])[name] == 0.0
        assert ("pitfall.no_float", name) in trapped(model_yaml("qwen3", **{name: 0}))
        assert ("pitfall.no_float", name) not in trapped(model_yaml("qwen3", **{name: 0.0}))


def test_a_number_that_stays_text(mindformers: dict[str, Any]) -> None:
    assert value(mindformers["newer"]["text"])["layernorm_epsilon"] == "1e-5"


@pytest.mark.parametrize("text", ["1e-5", "1E-5", "1.0e-5", "1.e-5", "1e5", "1.0e5", "1.0e+5", "1.5e3", "1.e5", ".5e3", ".5e-3", "-1e-5"])
def test_numbers_that_yaml_makes_text_of(text: str) -> None:
    read = yaml.safe_load(f"a: {text}")["a"]
    assert isinstance(read, str) == (pitfalls.NOT_A_FLOAT.match(text) is not None), (text, read)
    if isinstance(read, str):
        assert yaml.safe_load(f"a: {in_yaml(float(text))}")["a"] == float(text)


def test_keys_under_context(mindformers: dict[str, Any]) -> None:
    assert {name for name, reached in mindformers["context"].items() if not reached} == set(pitfalls.CONTEXT)


def test_fields_that_the_training_graph_does_not_read() -> None:
    spec = importlib.util.find_spec("mindformers")
    assert spec is not None and spec.origin is not None
    root = Path(spec.origin).parent
    sources = [*(root / "parallel_core" / "training_graph").rglob("*.py"), *(root / "models").rglob("modeling_*_train.py")]
    read = {name for file in sources for name in attributes(file) if name in mindformers_models.NOT_IN_GRAPH}
    assert len(sources) > 30
    assert read == set()


def attributes(file: Path) -> set[str]:
    """Every attribute that a source reads, by name or by ``getattr``."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    plain = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return plain | {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


# --- MindFormers: schedules ---


@pytest.mark.parametrize("name", MINDFORMERS_SCHEDULES)
def test_mindformers_learning_rate(mindformers: dict[str, Any], name: str) -> None:
    kwargs = MINDFORMERS_SCHEDULES[name]
    text = yaml.safe_dump({"lr_schedule": kwargs, "optimizer": {"type": "AdamW"}})
    real, ours = value(mindformers["schedules"][name]), schedules.learning_rate(mindformers_configuration(text)).rate(steps(STEPS))
    peak = kwargs.get("learning_rate", kwargs.get("base_lr"))
    theirs = np.asarray([math.nan if one is None else one for one in real])
    worst = int(np.argmax(np.where(np.isnan(theirs), math.inf, np.abs(ours - theirs))))
    close = (np.abs(ours - theirs) <= np.maximum(2e-6 * np.abs(theirs), 1e-6 * peak)) | (np.isnan(ours) & np.isnan(theirs))
    assert close.all(), (f"{(~close).sum()} steps", worst, ours[worst], theirs[worst])
    assert len({*real}) > 1 or name == "constant, no warm-up"


def test_every_schedule_is_tried() -> None:
    from align_hooks.checklist.schedules import SHAPES

    assert SHAPES.keys() == {kwargs["type"] for kwargs in MINDFORMERS_SCHEDULES.values()}


# --- MindFormers: older models' feed-forward size, and which weights decay ---


@pytest.mark.parametrize("name", OLDER)
def test_feed_forward_size_of_an_older_model(mindformers: dict[str, Any], name: str) -> None:
    assert structure.mindformers_ffn(mindformers_configuration(older_yaml(name))) == value(mindformers["older"][name])["ffn"]


def test_weights_that_decay_in_mindformers(mindformers: dict[str, Any]) -> None:
    found = value(mindformers["older"]["bias"])
    biases_and_vectors_are_spared(found)
    assert any(name.endswith(".bias") for name in found["spared"]) and any("norm" in name for name in found["spared"])
    assert any("embedding" in name for name in found["decays"]) and "lm_head.weight" in found["decays"]
