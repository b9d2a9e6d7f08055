"""Scripts, lists of arguments and YAML files: what they say, without running anything, and what cannot be read."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from align_hooks.configuration.megatron import is_bare_list, read_command, read_script
from align_hooks.configuration.mindformers import read_yaml
from align_hooks.configuration.source import read
from align_hooks.configuration.values import MEGATRON, MINDFORMERS, Configuration, ConfigurationError, SourceLocation, Value
from align_hooks.messages import Message, as_data, message
from worded import words

SCRIPT = """#!/bin/bash
# starts a small model
set -ex
export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-1}
HIDDEN=$((64 * 2))  # a comment
SIZE=${1:-small}
MODEL_ARGS=(
    --num-layers 2          # two
    --hidden-size $HIDDEN
    "--norm-epsilon 1e-6"
    --bf16 \\
    --swiglu
)
if [[ "$SIZE" == "large" ]]; then
    MODEL_ARGS+=(--num-attention-heads 32)
elif [ -z "$SIZE" ]; then
    MODEL_ARGS+=(--num-attention-heads 1)
else
    MODEL_ARGS+=(--num-attention-heads 4)
fi
case $SIZE in
  large|huge) LR=1e-5 ;;
  *) LR="1e-4" ;;
esac
OPTIM="--lr $LR --adam-beta1 0.9 \\
  --adam-beta2 0.95"
launch() {
  torchrun --nproc_per_node 8 --nnodes=2 pretrain_gpt.py "$@" 2>&1 | tee logs/$(date +%F).log
}
echo torchrun pretrain_gpt.py --num-layers 99
launch ${MODEL_ARGS[@]} $OPTIM --split '98,2,0' --data-path 0.3 "/data/a b" 0.7 /data/c --save "$OUT"
"""


def values(configuration: Configuration) -> dict[str, object]:
    return {name: value.unknown if value.unknown else value.value for name, value in configuration.values.items()}


def test_a_script_is_followed() -> None:
    result = read_script(SCRIPT, "train.sh", {})
    assert values(result) == {
        "num_layers": 2,
        "hidden_size": 128,
        "layernorm_epsilon": 1e-6,
        "bf16": True,
        "swiglu": True,
        "num_attention_heads": 4,
        "lr": 1e-4,
        "adam_beta1": 0.9,
        "adam_beta2": 0.95,
        "split": "98,2,0",
        "data_path": "0.3 /data/a b 0.7 /data/c",
        "save": message("configuration.unset", name="OUT", place="train.sh:31"),
        "launcher.nproc_per_node": 8,
        "launcher.nnodes": 2,
    }
    assert result.values["layernorm_epsilon"].where == "train.sh:10 --norm-epsilon"
    assert result.environment["CUDA_DEVICE_MAX_CONNECTIONS"].value == "1"


def test_its_arguments_and_the_environment_count() -> None:
    result = read_script(SCRIPT, "train.sh", {"OUT": "/out"}, ["large"])
    assert (result.values["num_attention_heads"].value, result.values["lr"].value, result.values["save"].value) == (32, 1e-5, "/out")


def test_what_a_quoted_command_sets_counts(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(SCRIPT)
    assert read_command(f"OUT=/out bash {script} large", {}).values["save"].value == "/out"


STUBS = {
    "torchrun": 'printf "%s\\n" "$@" > "$WORDS"',
    "sbatch": 'while [[ $1 == -* ]]; do shift 2; done\nexec bash "$@"',
    "srun": 'while [[ $1 == -* ]]; do shift 2; done\nexec "$@"',
}


def bash_says(tmp_path: Path, text: str, *arguments: str) -> list[str]:
    """What bash itself starts: torchrun replaced by what prints its words, and a scheduler by bash."""
    for name, program in STUBS.items():
        stub = tmp_path / "bin" / name
        stub.parent.mkdir(exist_ok=True)
        stub.write_text(f"#!/bin/bash\n{program}\n")
        stub.chmod(0o755)
    script = tmp_path / "train.sh"
    script.write_text(text)
    environment = {"PATH": f"{stub.parent}:{os.environ['PATH']}", "WORDS": str(tmp_path / "words"), "OUT": "/out"}
    (tmp_path / "logs").mkdir(exist_ok=True)
    subprocess.run(["bash", str(script), *arguments], env=environment, cwd=tmp_path, check=True, capture_output=True, timeout=300)
    return (tmp_path / "words").read_text().splitlines()


@pytest.mark.parametrize(
    ("before", "layers", "why"),
    [
        ("", "$L", message("configuration.unset", name="L", place="train.sh:1")),
        ("L=$(nproc)\n", "$L", message("configuration.output", text="$(nproc)", place="train.sh:1")),
        ("L=2\nif some_program; then L=4; fi\n", "$L", message("configuration.decided", line=2, script="train.sh")),
        ("", "${2}", message("configuration.argument", name="2", script="train.sh")),
        ("for L in 1 2; do break; done\n", "${L%%x}", message("configuration.not_worked_out", text="${L%%x}", place="train.sh:2")),
    ],
)
def test_what_only_a_run_can_tell_is_not_told(before: str, layers: str, why: Message) -> None:
    text = f"{before}torchrun pretrain_gpt.py --num-layers {layers} --lr 1e-4"
    assert as_data(read_script(text, "train.sh", {}).values["num_layers"].unknown) == as_data(why)


def test_a_bare_list_of_arguments() -> None:
    text = "# a comment\n--num-layers 2\n--hidden-size 64 --bf16 \\\n--lr=1e-4\n--no-rope-fusion"
    assert is_bare_list(text)
    result = read_script(text, "llama.args", {})
    assert values(result) == {"num_layers": 2, "hidden_size": 64, "bf16": True, "lr": 1e-4, "apply_rope_fusion": False}
    assert result.values["lr"].where == "llama.args:4 --lr"


NO_BASH = words("configuration.no_bash", place="train.sh:1", text="…").partition("…")[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("echo hello", "no command of train.sh trains"),
        ("exec python run_mindformer.py --config ${YAML:-qwen3.yaml}", "its YAML qwen3.yaml is not here"),
        ("msrun --worker_num=8 /a/run_mindformer.py --config=b.yaml", "its YAML b.yaml is not here"),
        ("torchrun a.py --num-layers 2\ntorchrun a.py --num-layers 3", r"starts 2 trainings that differ \(lines 1, 2\)"),
        ("if [ 1 ]; then (((\n", re.escape(NO_BASH)),
    ],
)
def test_scripts_that_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read_script(text, "train.sh", {})


@pytest.mark.parametrize(
    "command",
    [
        'bash scripts/msrun_launcher.sh "run_mindformer.py --config configs/llama.yaml --seed 7 --use_parallel=True" 8',
        "msrun --worker_num=8 run_mindformer.py --config=configs/llama.yaml --seed=7 --use_parallel True",
        'cd scripts; bash msrun_launcher.sh "run_mindformer.py --config configs/llama.yaml --seed 7 --use_parallel True" 8',
        'CONFIG=configs/llama.yaml\nbash msrun_launcher.sh "run_mindformer.py --config $CONFIG --seed 7 --use_parallel True" 8',
    ],
)
def test_a_command_that_starts_mindformers_is_read_as_its_yaml(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "llama.yaml").write_text("seed: 1\nrunner_config:\n  batch_size: 4\n")
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "train.sh").write_text(command + "\n")
    monkeypatch.chdir(tmp_path)
    for side in (str(tmp_path / "scripts" / "train.sh"), *([command] if command.startswith(("bash", "msrun")) else [])):
        launched = read(side, {})
        told = {name: launched.values[name].value for name in ("seed", "use_parallel", "runner_config.batch_size")}
        assert (launched.side, told) == (MINDFORMERS, {"seed": 7, "use_parallel": True, "runner_config.batch_size": 4})


YAML = """
seed: 42
optimizer:
  type: AdamW
  eps: 1.e-8
model:
  model_config: &m
    num_layers: 2
    rms_norm_eps: 1.0e-5
    nested: {a: [1, 2], b: null}
copy: *m
"""


def test_a_yaml_is_read_with_its_lines() -> None:
    result = read_yaml(YAML, "llama.yaml", Path())
    assert result.values["model.model_config.rms_norm_eps"].value == 1e-5
    assert result.values["model.model_config.rms_norm_eps"].where == "llama.yaml:9"
    assert result.values["model.model_config.nested.a"].value == [1, 2]
    assert result.values["copy.num_layers"].where == "llama.yaml:8"


BOMB = "model:\n  a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"  {chr(98 + at)}: &{chr(98 + at)} [" + ", ".join([f"*{chr(97 + at)}"] * 9) + "]\n" for at in range(9)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "model: !!python/object/apply:os.system ['touch executed']\n",
            r"llama.yaml:1 cannot be read as YAML: the tag tag:yaml.org,2002:python.*nothing was executed",
        ),
        ("model:\n  model_config:\n    x: !mine {}\n", r"llama.yaml:3 .*the tag !mine"),
        ("model:\n  model_config: {num_layers: 2\n", "cannot be read as YAML"),
        ("model:\n  model_config:\n    num_layers: 2\n    num_layers: 3\n", r"num_layers is given twice, in llama.yaml:3 and llama.yaml:4"),
        ("a: 1\n", "is no MindFormers configuration"),
        ("- 1\n- 2\n", "is no MindFormers configuration"),
        ("", "is no MindFormers configuration"),
        ("model: &m\n  x: *m\n", "unfolds into more than"),
        pytest.param(BOMB, "unfolds into more than", id="aliases that would fill the memory"),
    ],
)
def test_yaml_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=message):
        read_yaml(text, "llama.yaml", tmp_path)
    assert not Path("executed").exists()


def test_two_names_of_one_thing_must_agree(tmp_path: Path) -> None:
    result = read_yaml("model:\n  model_config:\n    num_layers: 2\n    num_hidden_layers: 3\n", "llama.yaml", tmp_path)
    names = ("model.model_config.num_layers", "model.model_config.num_hidden_layers")
    values = {"name": names[0], "value": 2, "place": "llama.yaml:3", "other": names[1], "another": 3, "elsewhere": "llama.yaml:4"}
    with pytest.raises(ConfigurationError) as raised:
        result.find(names)
    assert str(raised.value) == words("configuration.contradiction", **values)


def test_a_base_config_lies_below(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("seed: 1\nmodel:\n  model_config:\n    num_layers: 2\n    hidden_size: 64\n")
    result = read_yaml("base_config: base.yaml\nmodel:\n  model_config:\n    num_layers: 4\n", "llama.yaml", tmp_path)
    told = {name: value.value for name, value in result.values.items()}
    assert told == {"model.model_config.num_layers": 4, "model.model_config.hidden_size": 64, "seed": 1}
    with pytest.raises(ConfigurationError, match=r"base_config .*gone\.yaml, which cannot be read"):
        read_yaml("base_config: gone.yaml\nmodel: {a: 1}\n", "llama.yaml", tmp_path)


def test_the_hugging_face_configuration_fills_in(tmp_path: Path) -> None:
    text = "pretrained_model_dir: {}\nuse_legacy: False\nmodel:\n  model_config:\n    hidden_size: 64\n"
    (tmp_path / "config.json").write_text('{"hidden_size": 1, "num_hidden_layers": 5, "rope_scaling": {"rope_type": "llama3"}}')
    result = read_yaml(text.format("."), "llama.yaml", tmp_path)
    assert result.values["model.model_config.hidden_size"].value == 64
    assert result.values["model.model_config.num_hidden_layers"].value == 5
    assert result.values["model.model_config.rope_scaling.rope_type"].value == "llama3"
    absent = read_yaml(text.format("/nowhere"), "llama.yaml", tmp_path)
    assert absent.unread.endswith("config.json")
    assert absent.notes == [message("configuration.no_model_file", place="llama.yaml:1", file="/nowhere/config.json")]


@pytest.mark.parametrize("given", ["no_such_file.yaml", "no_such_file.sh"])
def test_a_file_that_is_not_there(given: str) -> None:
    with pytest.raises(ConfigurationError, match="is no file and no recorded run"):
        read(given, {})


def test_what_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "x.sh").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(ConfigurationError, match="is no text"):
        read(str(tmp_path / "x.sh"), {})


MODEL_ARGS = """ENV_VARS:
  CUDA_DEVICE_MAX_CONNECTIONS: 1
  BLEND: /blend
MODEL_ARGS:
  --num-layers: 12 # of the small model
  --bf16: true
  --lr: .00015
  --split: 949,50,1
  --moe-layer-freq: ([0]*3+[1]*9)
  --data-path: ${BLEND}
  --tokenizer-model: ${ASSETS}/tokenizer.json
  --recompute-modules: [core_attn moe_act]
  --train-iters: 50
  --lr-decay-iters: 1e3
MODEL_ARGS_2:
  --num-layers: 24
TEST_TYPE: regular
"""


def test_the_arguments_of_megatrons_own_tests(tmp_path: Path) -> None:
    (tmp_path / "model_config.yaml").write_text(MODEL_ARGS)
    result = read(str(tmp_path / "model_config.yaml"), {})
    told = {name: value.value for name, value in result.values.items() if not value.unknown}
    numbers = {"num_layers": 12, "lr": 0.00015, "train_iters": 50, "lr_decay_iters": 1000.0, "bf16": True}
    texts = {"split": "949,50,1", "moe_layer_freq": "([0]*3+[1]*9)", "data_path": "/blend", "recompute_modules": "core_attn moe_act"}
    assert told == numbers | texts
    assert result.values["tokenizer_model"].unknown == message("configuration.unset", name="ASSETS", place="model_config.yaml:11")
    assert (result.side, result.values["lr"].where) == (MEGATRON, "model_config.yaml:7 --lr")
    assert result.environment["CUDA_DEVICE_MAX_CONNECTIONS"] == Value("1", SourceLocation("model_config.yaml", 2))
    told = read(str(tmp_path / "model_config.yaml"), {"ASSETS": "/assets", "BLEND": "/other"}).values
    assert (told["tokenizer_model"].value, told["data_path"].value) == ("/assets/tokenizer.json", "/other")


@pytest.mark.parametrize("encoding", ["gb18030", "latin-1", "utf-8-sig"])
def test_comments_may_be_in_any_encoding(tmp_path: Path, encoding: str) -> None:
    comment = "é" if encoding == "latin-1" else "训练"
    text = f"# {comment}\nL=2  # {comment}\ntorchrun pretrain_gpt.py --num-layers $L --lr 1e-4\n"
    (tmp_path / "train.sh").write_bytes(text.encode(encoding))
    assert values(read(str(tmp_path / "train.sh"), {})) == {"num_layers": 2, "lr": 1e-4}
    (tmp_path / "train.yaml").write_bytes(text.encode("utf-16"))
    with pytest.raises(ConfigurationError, match="is no text"):
        read(str(tmp_path / "train.yaml"), {})


def test_of_an_argument_that_is_given_twice_the_last_counts() -> None:
    result = read_script("torchrun pretrain_gpt.py --lr 1e-4 --num-layers 2 \\\n --lr=1e-5", "train.sh", {})
    second = message("configuration.last_counts", flag="--lr", first="train.sh:1 --lr 1e-4", second="train.sh:2 --lr 1e-5")
    assert (result.values["lr"].value, result.values["lr"].where, list(result.notes)) == (1e-5, "train.sh:2 --lr", [second])


def test_words_of_another_file_have_its_lines(tmp_path: Path) -> None:
    (tmp_path / "settings.sh").write_text("# settings\n\nARGS='--lr 1e-4'\n")
    (tmp_path / "train.sh").write_text("A=1\nsource settings.sh\ntorchrun pretrain_gpt.py $ARGS \\\n --num-layers 2\n")
    (tmp_path / "job.sh").write_text("\nbash train.sh\n")
    for name in ("train.sh", "job.sh"):
        places = {key: value.where for key, value in read(str(tmp_path / name), {}).values.items()}
        assert places == {"lr": "settings.sh:3 --lr", "num_layers": "train.sh:4 --num-layers"}


@pytest.mark.parametrize(
    ("before", "takes", "line", "id", "text"),
    [
        ("A='--num-layers 2 --lr 1e-4'", '"$A" --seed 7', 2, "configuration.one_word", "--num-layers 2 --lr 1e-4"),
        ("A=(--lr '1' '--seed 7')", '--num-layers 2 "${A[@]}"', 1, "configuration.one_word", "--seed 7"),
        ("A='--lr 1\n# --seed 7\n'", "--num-layers 2 $A", 2, "configuration.comment_in_quotes", "#"),
        ("A='--lr 1 #--seed 7'", "--num-layers 2 $A", 1, "configuration.comment_in_quotes", "#--seed"),
    ],
    ids=["many arguments in one word", "an element of an array", "a comment in a text", "an argument commented out"],
)
def test_what_quotes_make_of_arguments_is_said(before: str, takes: str, line: int, id: str, text: str) -> None:
    """By the line and the text of what Megatron-LM's parser refuses."""
    found = read_script(f"{before}\ntorchrun pretrain_gpt.py --hidden-size 64 {takes}\n", "train.sh", {})
    assert message(id, place=f"train.sh:{line}", text=text) in found.gaps


def test_a_script_whose_only_argument_is_quoted_whole_says_so() -> None:
    with pytest.raises(ConfigurationError, match="--num-layers 2 --lr 1 in quotes, which is one argument"):
        read_script("A='--num-layers 2 --lr 1'\ntorchrun pretrain_gpt.py \"$A\"\n", "train.sh", {})


def test_a_variable_before_a_command_may_name_a_script(tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text("$BIND torchrun pretrain_gpt.py --num-layers 2 --lr 1e-4\n")
    found = read_command(f"BIND=./bind.sh X='a b.sh' bash {tmp_path / 'train.sh'}", {})
    assert values(found) == {"num_layers": 2, "lr": 1e-4}
    assert found.gaps == ()


def test_a_configuration_that_a_script_edits_is_not_taken_for_the_file_that_is_here() -> None:
    (gap,) = read_script("sed -i 's/a: 1/a: 2/' llama.yaml\nsed -n 1p hosts\ntorchrun x.py --num-layers 2\n", "train.sh", {}).gaps
    assert gap == message("configuration.not_followed", place="train.sh:1", text="sed -i … llama.yaml")


def test_a_loop_without_end_is_not_followed() -> None:
    found = read_script("while true; do N=1$N; done\ntorchrun x.py --num-layers 2 --lr 1 --seed $N\n", "train.sh", {})
    assert values(found)["seed"] == message("configuration.decided", line=1, script="train.sh")
