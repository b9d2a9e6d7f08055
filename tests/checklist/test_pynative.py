"""The YAML of MindFormers' PyNative trainer: read under the static graph's keys, advised and mended under its own."""

from pathlib import Path

import pytest
import yaml

from align_hooks.checklist.row import Effect
from align_hooks.checklist.sides import check, fix
from align_hooks.configuration.mindformers import read_yaml
from align_hooks.configuration.pynative import KEYS, as_graph, graph_key, is_pynative, own_key, recorded_arguments
from align_hooks.configuration.values import Value
from align_hooks.messages import rendered

FAMILIES = Path(__file__).parents[2] / "launch" / "families"
OWN = sorted(path.stem for path in (FAMILIES / "pynative").glob("*.yaml") if (FAMILIES / f"{path.stem}.args").exists())
ALWAYS_DIFFER = {"init_method_std", "initial_scale_of_output_projections"}
"""Rows of first weights, which this trainer draws in one way whatever its YAML says."""


def differing(reference: Path, candidate: Path) -> set[str]:
    checklist = check(str(reference), str(candidate), {}, mindformers="1.9")
    return {one.row.id for one in checklist.checked if one.row.effect is Effect.RESULT and one.row.id in checklist.differing}


@pytest.mark.parametrize("family", OWN)
def test_the_shipped_yaml_says_what_the_arguments_of_megatron_say(family: str) -> None:
    assert differing(FAMILIES / f"{family}.args", FAMILIES / "pynative" / f"{family}.yaml") == {"init_method_std"}


@pytest.mark.parametrize("family", OWN)
def test_the_shipped_yaml_says_what_that_of_the_static_graph_says(family: str) -> None:
    assert differing(FAMILIES / f"{family}.yaml", FAMILIES / "pynative" / f"{family}.yaml") == ALWAYS_DIFFER


CHANGES = {
    "rotary_base": ("model.rope_theta", 5000.0, "model.rope_theta: 10000"),
    "rms_norm_eps": ("model.rms_norm_eps", 1e-5, "model.rms_norm_eps: 1.0e-06"),
    "global_batch_size": ("training.global_batch_size", 8, "training.global_batch_size: 4"),
    "clip_grad": ("training.max_norm", 2.0, "training.max_norm: 1.0"),
    "weight_decay": ("optimizer.weight_decay", 0.2, "optimizer.weight_decay: 0.1"),
    "lr": ("lr_scheduler.learning_rate", 2e-3, "lr_scheduler.learning_rate: 0.001"),
    "beta2": ("optimizer.betas", [0.9, 0.999], "optimizer.betas: [0.9, 0.95]"),
    "seq_length": ("model.seq_length", 64, "model.seq_length: 128"),
}
"""Row to a key, another value, and what is to be written."""


BALANCING = ("aux_loss", "seq_aux_loss", "global_aux_loss")


@pytest.mark.parametrize("theirs", BALANCING)
@pytest.mark.parametrize("ours", BALANCING[:2])
def test_a_balancing_loss_is_megatrons_of_the_same_name(ours: str, theirs: str, tmp_path: Path) -> None:
    """Over micro-batches of two sequences, each of the three is another loss, and only the kind is to be written."""
    arguments = (FAMILIES / "deepseek_v3.args").read_text()
    of_balancing = f"--moe-router-load-balancing-type {ours}\n--moe-aux-loss-coeff 0.05"
    (tmp_path / "reference.args").write_text(arguments.replace("--moe-router-load-balancing-type none", of_balancing))
    config = yaml.safe_load((FAMILIES / "pynative" / "deepseek_v3.yaml").read_text())
    config["model"] |= {"moe_aux_loss_coeff": 0.05, "moe_router_load_balancing_type": theirs}
    (tmp_path / "candidate.yaml").write_text(yaml.safe_dump(config))
    checklist = check(str(tmp_path / "reference.args"), str(tmp_path / "candidate.yaml"), {}, mindformers="1.9")
    wrong = {one.row.id for one in checklist.checked if one.row.effect is Effect.RESULT and one.row.id in checklist.differing}
    edits = [edit.written for edit in checklist.edits if edit.key.endswith("load_balancing_type")]
    assert (wrong - {"init_method_std"}, edits) == ((set(), []) if ours == theirs else ({"load_balancing_type"}, [ours]))


def changed(where: Path, key: str, value: object) -> Path:
    config = yaml.safe_load((FAMILIES / "pynative" / "qwen3.yaml").read_text())
    section, _, name = key.partition(".")
    config[section][name] = value
    (where / "candidate.yaml").write_text(yaml.safe_dump(config))
    return where / "candidate.yaml"


@pytest.mark.parametrize("row", CHANGES)
def test_what_differs_is_advised_and_mended_under_the_keys_of_the_file(row: str, tmp_path: Path) -> None:
    key, value, written = CHANGES[row]
    candidate, reference = changed(tmp_path, key, value), str(FAMILIES / "qwen3.args")
    checklist = check(reference, str(candidate), {}, mindformers="1.9")
    assert row in checklist.differing, checklist.differing
    (edit,) = checklist.edits
    assert f"{edit.name}: {edit.written}" == written
    assert checklist.base == ""  # this trainer reads no file beneath another
    mended, after = fix(reference, str(candidate), {}, checklist, "1.9")
    assert set(after.differing) - {"init_method_std"} == set()
    section, _, name = key.partition(".")
    original = yaml.safe_load((FAMILIES / "pynative" / "qwen3.yaml").read_text())
    assert yaml.safe_load(mended.after)[section][name] == original[section][name]


TRAPS = {
    "pad": ({"pad_token_id": 0}, "pad_token_id: 0 hides every token of that id from attention"),
    "flash": ({}, "queries, keys and values of compute_dtype: float32 are cast to float16"),
    "unread": ({"bias_swiglu_fusion": True}, "the PyNative trainer does not read bias_swiglu_fusion"),
    "scale": ({"model_type": "deepseek_v3"}, "rotary_scaling_factor is 40, by which latent attention scales its scores"),
}


@pytest.mark.parametrize("trap", TRAPS)
def test_what_it_does_otherwise_than_its_yaml_says_is_a_trap(trap: str, tmp_path: Path) -> None:
    of_model, words = TRAPS[trap]
    config = yaml.safe_load((FAMILIES / "pynative" / "qwen3.yaml").read_text())
    config["model"] |= of_model
    (tmp_path / "candidate.yaml").write_text(yaml.safe_dump(config))
    checklist = check(str(FAMILIES / "qwen3.args"), str(tmp_path / "candidate.yaml"), {}, mindformers="1.9")
    assert any(words in rendered(pitfall) for pitfall in checklist.sides[1].pitfalls)
    assert not any("1.9" in rendered(pitfall) for pitfall in checklist.sides[1].pitfalls)


def test_keys_are_told_there_and_back() -> None:
    for key in KEYS:
        name = f"{key.own}some_key" if key.own.endswith(".") else key.own
        assert own_key(graph_key(name)) == name
    assert len({key.own for key in KEYS}) == len({key.graph for key in KEYS}) == len(KEYS)
    assert graph_key("my.own") == own_key("my.own") == "my.own"


def test_which_trainer_a_file_is_for_is_known_by_its_sections() -> None:
    assert is_pynative(["training.steps", "model.hidden_size"])
    assert not is_pynative(["training.steps", "data.cutoff_len"])  # MindSpeed-LLM's for FSDP
    assert not is_pynative(["training.steps", "model.model_config.hidden_size"])
    assert not is_pynative(["model.model_config.hidden_size", "runner_config.epochs"])


def test_an_unset_key_has_the_trainers_own_default_and_no_place() -> None:
    read = as_graph({"training.steps": Value(7)})
    assert (read["lr_schedule.total_steps"].value, read["seed"].value, read["optimizer.betas"].value) == (7, 42, [0.9, 0.95])
    assert read["seed"].place is None
    assert recorded_arguments({"training.steps": "7"})["lr_schedule.total_steps"] == "7"
    assert recorded_arguments({"seed": "7"}) == {"seed": "7"}
    assert recorded_arguments(None) == {}


def test_an_advised_key_has_the_line_of_the_file() -> None:
    text = (FAMILIES / "pynative" / "qwen3.yaml").read_text()
    place = read_yaml(text, "qwen3.yaml", Path()).values["runner_wrapper.max_grad_norm"].place
    assert place is not None
    assert text.splitlines()[place.line - 1].strip() == "max_norm: 1.0"
    assert str(place).endswith("training.max_norm")
