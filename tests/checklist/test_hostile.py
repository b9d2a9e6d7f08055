"""What was written to mislead ``check``: scripts as bash runs them or said not to be followed, values that are no numbers, bombs."""

import itertools
import os
import subprocess
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from align_hooks.checklist.judge import RowOutcome
from align_hooks.checklist.result import CLEAN, DIFFERS, UNDECIDED, Checklist
from align_hooks.checklist.sides import check
from align_hooks.configuration.megatron import read_script, read_words
from align_hooks.configuration.script import Script, ShellWord
from align_hooks.configuration.values import Configuration, ConfigurationError
from align_hooks.messages import message
from checklist.exercises import row
from checklist.test_command import command, configuration, script
from checklist.test_readers import BOMB, bash_says, values
from chosen import every
from worded import ids, words
from work import at_most

TRAIN = "torchrun pretrain_gpt.py --num-layers 2"
ENOUGH = 10_000_000
"""Calls that reading a hostile file may take; the hardest takes 2.6 million."""
SOURCED = {
    "settings.sh": 'LR=1e-4\nLAYERS=(--num-layers 2)\nadd() { MORE+=(--seed "$1"); }\n',
    "early.sh": "LR=1e-4\nreturn 0\nLR=1e-5\n",
    "args.sh": "LR=$1\n",
    "chain.sh": "source settings.sh\nLR=3e-4\n",
    "quits.sh": "LR=1e-4\nexit 0\n",
    "trains.sh": f"{TRAIN} --lr $LR --seed $1\n",
}

INVISIBLE = {
    "lines: nbsp in var": "A='--lr 1e-4 --seed 7\u00a0x'\n@TRAIN $A",
    "commands: xargs": "echo --lr 1e-4 | xargs @TRAIN ",
    "lines: continuation spaces": "@TRAIN \\  \n  --lr 1e-4\ntrue",
}
"""Tricky scripts of blanks that nobody sees in ``scripts.txt``."""


def scripts() -> dict[str, dict[str, str]]:
    """The scripts of ``scripts.txt``, by group and name."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for part in Path(__file__).with_name("scripts.txt").read_text(encoding="utf-8").split("\n=== ")[1:]:
        head, _, script = part.partition("\n")
        group, _, name = head.partition(" | ")
        found[group][name] = script.rstrip("\n") + ("\n" if group in ("nested", "of Windows") else "")
    found["trickier"] |= INVISIBLE
    return found


SCRIPTS = scripts()


def of(*groups: str) -> pytest.MarkDecorator:
    """Try the scripts of groups."""
    return pytest.mark.parametrize("text", [pytest.param(text, id=name) for group in groups for name, text in SCRIPTS[group].items()])


def written(tmp_path: Path, text: str) -> str:
    """A case with its command, beside the files that cases read."""
    for name, content in SOURCED.items():
        (tmp_path / name).write_text(content)
    return text.replace("@TRAIN", TRAIN)


def reads(tmp_path: Path, text: str) -> Configuration:
    return read_script(text, "train.sh", {"OUT": "/out"}, folder=tmp_path)


def checked(one: Path, other: Path, **variables: str) -> Checklist:
    """The check of two files, of which MindFormers 1.9 reads a YAML."""
    return check(str(one), str(other), variables, mindformers="1.9")


def passed(tmp_path: Path, text: str) -> Configuration:
    """What bash passes to the training, word by word."""
    return read_words([ShellWord(word, 1) for word in bash_says(tmp_path, text)], Script("bash"))


def wrong(found: Configuration, right: Configuration) -> dict[str, tuple[object, object]]:
    """What is told, is not so, and is not said to be unknown: by name, what is told and what bash passes."""
    if found.gaps:  # shown first, and never an agreement
        return {}
    told, true = values(found), values(right)
    unknown = {name for name, value in found.values.items() if value.unknown}
    return {name: (told.get(name), true.get(name)) for name in {**told, **true} if name not in unknown and told.get(name) != true.get(name)}


@of("followed", "nested")
def test_it_is_followed_to_the_end(tmp_path: Path, text: str) -> None:
    text = written(tmp_path, text)
    found = reads(tmp_path, text)
    assert values(found) == values(passed(tmp_path, text))
    assert found.gaps == ()


@of("trickier")
def test_it_is_as_bash_runs_it_or_said_not_to_be_followed(tmp_path: Path, text: str) -> None:
    text = written(tmp_path, text)
    right = passed(tmp_path, text)
    with suppress(ConfigurationError):
        assert wrong(reads(tmp_path, text), right) == {}


def test_what_may_be_appended_to_keeps_what_it_has(tmp_path: Path) -> None:
    array, text = ("A=(--lr 1e-4)", "A+=(--seed 7)", '"${A[@]}"'), ('A="--lr 1e-4"', 'A="$A --seed 7"', "$A")
    for one, more, all_of in (array, text):
        found = reads(tmp_path, written(tmp_path, f"{one}\nif grep -q x y; then {more}; fi\n@TRAIN {all_of}"))
        assert found.values["lr"].value == 1e-4
        why = message("configuration.decided", line=2, script="train.sh")
        assert [(gap.id, gap.arguments["why"]) for gap in found.gaps] == [("configuration.more_arguments", why)]


def test_each_piece_has_its_own_reason(tmp_path: Path) -> None:
    found = reads(tmp_path, written(tmp_path, 'C="@TRAIN --lr $LR --seed $(cat seed)"\neval $C'))
    whys = {name: value.unknown.id for name, value in found.values.items() if value.unknown}
    assert whys == {"lr": "configuration.unset", "seed": "configuration.output"}


def says_it_does_not_know(tmp_path: Path, text: str) -> bool:
    try:
        found = reads(tmp_path, text)
    except ConfigurationError:
        return True
    return bool(found.gaps) or any(value.unknown for value in found.values.values())


@of("trains nothing")
def test_what_never_trains_is_no_training(tmp_path: Path, text: str) -> None:
    text = written(tmp_path, text)
    with pytest.raises(FileNotFoundError):
        bash_says(tmp_path, text)
    assert says_it_does_not_know(tmp_path, text)


@of("trains twice")
def test_two_trainings_are_not_one(tmp_path: Path, text: str) -> None:
    assert says_it_does_not_know(tmp_path, written(tmp_path, text))


@of("exported")
def test_the_training_has_this_environment(tmp_path: Path, text: str) -> None:
    text = written(tmp_path, text)
    stub = tmp_path / "torchrun"
    stub.write_text('#!/bin/bash\nprintf "%s" "$NCCL_ALGO" > held\n')
    stub.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-c", text], env=environment, cwd=tmp_path, check=True, timeout=300)
    held = reads(tmp_path, text).environment.get("NCCL_ALGO")
    assert (held is not None and held.unknown) or (held.value if held else "") == (tmp_path / "held").read_text()


@of("of Windows")
def test_line_ends_of_windows_change_nothing(tmp_path: Path, text: str) -> None:
    """Bash itself keeps the carriage returns; nobody means them, so such a script reads as the one that was written."""
    text = written(tmp_path, text)
    assert values(reads(tmp_path, text.replace("\n", "\r\n"))) == values(passed(tmp_path, text))


def test_an_argument_list_that_may_hold_more_is_no_agreement(tmp_path: Path) -> None:
    one = script(tmp_path / "train.sh")
    one.write_text(one.read_text().rstrip() + " \\\n  $EXTRA\n")
    other = configuration(tmp_path / "llama.yaml")
    done = command(one, other)
    assert (done.returncode, done.stderr) == (UNDECIDED, "")
    (gap,) = read_script(one.read_text(), "train.sh", {}).gaps
    assert ids(gap) == ["configuration.more_arguments", "configuration.unset"]
    assert "$EXTRA" in done.stdout
    assert checked(one, other, EXTRA="--bf16").exit_code == CLEAN
    assert checked(one, other, EXTRA="--qk-layernorm").exit_code == DIFFERS


def test_a_sourced_file_that_is_not_here_is_no_agreement(tmp_path: Path) -> None:
    one = script(tmp_path / "train.sh")
    one.write_text("source cluster/settings.sh\n" + one.read_text())
    done = command(one, configuration(tmp_path / "llama.yaml"))
    assert (done.returncode, done.stderr) == (UNDECIDED, "")
    place = f"{one}:1" if f"{one}:1" in done.stdout else "train.sh:1"
    assert words("configuration.not_here", place=place, text="cluster/settings.sh") in " ".join(done.stdout.split())
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "settings.sh").write_text("SEED=7\n")
    assert checked(one, tmp_path / "llama.yaml").exit_code == CLEAN


def test_what_a_missing_file_may_have_set_is_said_where_it_differs(tmp_path: Path) -> None:
    """A value that stands before the file is read may be another after it."""
    one = script(tmp_path / "train.sh", lr="$LR")
    one.write_text("LR=9\nsource absent.sh\n" + one.read_text())
    found = checked(one, configuration(tmp_path / "llama.yaml"))
    assert found.exit_code == DIFFERS
    assert found.gaps == [message("configuration.not_here", place="train.sh:2", text="absent.sh")]


ARGUMENTS = "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 128 --lr 1e-3"
AFTER_A_MISSING_FILE = {
    "all is set after it": ("source absent.sh\nMORE='--bf16'", "$MORE", True),
    "a number stands before it": ("N=4\nsource absent.sh", "--micro-batch-size $N", True),
    "what nothing sets is a value": ("source absent.sh", "--data-path $DATA", True),
    "arguments stand before it": ("MORE='--bf16'\nsource absent.sh", "$MORE", False),
    "nothing stands before it": ("MORE=\nsource absent.sh", "$MORE", False),
    "something else stands for it": ("source absent.sh", "${MORE:-}", False),
    "what it is told otherwise": ("source absent.sh", "${MORE:+--bf16}", False),
    "the script's own arguments": ("source absent.sh", '"$@"', False),
    "an array stands before it": ("MORE=()\nsource absent.sh\nMORE+=(--bf16)", "${MORE[@]}", False),
    "it is put back": ("MORE=\nsource absent.sh\nf() { local MORE=1; }\nf", "$MORE", False),
    "it is added to": ('MORE=\nsource absent.sh\nMORE="$MORE --bf16"', "$MORE", False),
    "it is set where the script ends": ("MORE=\nsource absent.sh\nif test -e x; then MORE=1; exit; fi", "$MORE", False),
    "it is set in a subshell": ("MORE=\nsource absent.sh\n(MORE=1)", "$MORE", False),
    "a second file is not here": ("source absent.sh\nMORE=\nsource gone.sh", "$MORE", False),
    "another gap": ("source absent.sh\nalias x=y", "--bf16", False),
}
"""What stands before a command, what it takes, and whether a file that is not here can have added no argument to it."""


@pytest.mark.parametrize("case", AFTER_A_MISSING_FILE)
def test_a_missing_file_adds_arguments_by_what_the_command_reads_alone(case: str) -> None:
    before, takes, bounded = AFTER_A_MISSING_FILE[case]
    found = read_script(f"{before}\ntorchrun pretrain_gpt.py {ARGUMENTS} {takes}\n", "train.sh", {})
    assert found.gaps
    assert (set(found.gaps) == set(found.bounded)) == bounded


def test_data_that_is_made_first_is_no_training() -> None:
    made = "python3 tools/preprocess_data.py --seq-length 2048 --workers 3\n" * 2
    found = read_script(f"{made}torchrun pretrain_gpt.py --num-layers 2 --seq-length 128\n", "train.sh", {})
    assert values(found) == {"num_layers": 2, "seq_length": 128}


CHOSEN = {
    "one branch": ("if $(at_night); then MORE='--rotary-base 5'; fi", "$MORE", {"rotary_base"}),
    "each branch": (
        "if $(at_night); then MORE='--bf16'; else MORE='--fp16 \\\n --no-bias-swiglu-fusion'; fi",
        "$MORE",
        {"bf16", "fp16", "bias_swiglu_fusion"},
    ),
    "it is added to": ("MORE='--bf16'\nif $(at_night); then MORE=\"$MORE --seed 3\"; fi", "$MORE", {"seed"}),
    "an array is added to": ("MORE=(--bf16)\nif $(at_night); then MORE+=(--seed 3); fi", "${MORE[@]}", {"seed"}),
    "what a condition decides within": (
        *('if $(at_night); then A=--bf16; fi\nif $(at_noon); then MORE="--seed 3 $A"; fi', "$MORE", {"bf16", "seed"}),
    ),
    "the value of a flag": ('if $(at_night); then MORE="--seed $(date)"; fi', "$MORE", {"seed"}),
    "evaluated": ('if $(at_night); then MORE=--bf16; fi\nALL="$MORE"', "$ALL", {"bf16"}),
    "what only a run can tell": ("if $(at_night); then MORE=$(cat flags); fi", "$MORE", None),
    "a loop": ('for I in $(cat seeds); do MORE="$MORE --seed $I"; done', "$MORE", None),
}
"""What stands before a command, what it takes, and the arguments that may be in it; None where any may be."""


@pytest.mark.parametrize("case", CHOSEN)
def test_a_condition_adds_what_its_branches_say(case: str) -> None:
    before, takes, names = CHOSEN[case]
    found = read_script(f"{before}\ntorchrun pretrain_gpt.py {ARGUMENTS} {takes}\n", "train.sh", {})
    assert found.gaps
    assert [found.bounded.get(gap) for gap in found.gaps] == [names] * len(found.gaps)


@pytest.mark.parametrize(
    ("before", "takes", "outcome"),
    [
        ("if $(at_night); then MORE='--seed 3'; fi\n", " $MORE", RowOutcome.DIFFERENT),
        ("if $(at_night); then MORE='--norm-epsilon 1e-3'; fi\n", " $MORE", RowOutcome.UNKNOWN),
        ("source absent.sh\n", "", RowOutcome.DIFFERENT),
        ("MORE=\nsource absent.sh\n", " $MORE", RowOutcome.UNKNOWN),
    ],
    ids=["a branch sets another", "a branch sets it", "a missing file can have set nothing", "a missing file may have set it"],
)
def test_a_default_differs_where_nothing_can_have_set_it(tmp_path: Path, before: str, takes: str, outcome: RowOutcome) -> None:
    """``--norm-epsilon`` is not given, so that it is 1e-5."""
    one, other = script(tmp_path / "train.sh"), configuration(tmp_path / "llama.yaml", model__model_config__rms_norm_eps=1e-3)
    one.write_text(f"{before}{one.read_text().rstrip()}{takes}\n")
    assert row(checked(one, other), "rms_norm_eps").outcome is outcome


ODD = {
    "lr": "lr_schedule__learning_rate",
    "min_lr": "lr_schedule__lr_end",
    "lr_warmup_iters": "lr_schedule__warmup_steps",
    "weight_decay": "optimizer__weight_decay",
    "adam_eps": "optimizer__eps",
    "clip_grad": "runner_wrapper__max_grad_norm",
    "norm_epsilon": "model__model_config__rms_norm_eps",
    "init_method_std": "model__model_config__init_method_std",
    "rotary_base": "model__model_config__theta",
    "num_layers": "model__model_config__num_layers",
    "seq_length": "model__model_config__seq_length",
    "vocab_size": "model__model_config__vocab_size",
    "global_batch_size": "runner_config__batch_size",
}
"""Arguments that may be given what is no number, and the YAML's key."""


@pytest.mark.parametrize(("value", "name"), every(4, itertools.product(("nan", "inf"), ODD)))
def test_what_is_no_number_never_agrees(tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str, value: str) -> None:
    cosine: dict[str, Any] = {"lr_decay_style": "cosine"}
    one = script(tmp_path / "train.sh", **{**cosine, "load": "''", name: value})
    changes: dict[str, Any] = {"lr_schedule__type": "CosineWithWarmUpLR", "load_checkpoint": "", ODD[name]: float(value)}
    other = configuration(tmp_path / "llama.yaml", **changes)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        codes = {pair: checked(*pair).exit_code for pair in ((one, other), (other, one), (one, one), (other, other))}
    assert [pair for pair, code in codes.items() if code == CLEAN] == []
    assert capfd.readouterr() == ("", "")


def test_numpy_says_nothing_of_what_is_no_number(tmp_path: Path) -> None:
    other = configuration(tmp_path / "llama.yaml", lr_schedule__type="CosineWithWarmUpLR", optimizer__weight_decay=float("inf"))
    done = command(script(tmp_path / "train.sh", lr_decay_style="cosine", lr="nan"), other)
    assert (done.returncode in (DIFFERS, UNDECIDED), done.stderr) == (True, "")


@pytest.mark.parametrize("key", ["lr", "weight_decay", "lr_warmup_iters", "num_layers", "adam_eps"])
def test_a_number_that_no_machine_holds_is_no_internal_error(tmp_path: Path, key: str) -> None:
    other = configuration(tmp_path / "llama.yaml", **{ODD[key]: 10**400})
    with suppress(ConfigurationError):
        assert checked(script(tmp_path / "train.sh"), other).exit_code in (DIFFERS, UNDECIDED)


@pytest.mark.parametrize("style", ["linear", "inverse-square-root", "WSD"])
@pytest.mark.parametrize(
    ("name", "value"),
    [("lr", "1e308"), ("min_lr", "1e308"), ("lr_warmup_iters", "-1"), ("train_iters", "0"), ("train_iters", "1e308"), ("lr", "-inf")],
)
def test_schedules_out_of_all_bounds_warn_of_nothing(tmp_path: Path, style: str, name: str, value: str) -> None:
    changes: dict[str, Any] = {"lr_decay_style": style, "lr_warmup_iters": "2", "lr_wsd_decay_iters": "3", name: value}
    one, other = script(tmp_path / "train.sh", **changes), configuration(tmp_path / "llama.yaml")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alone = checked(one, one)
        checked(one, other)
    assert value != "-inf" or alone.exit_code == UNDECIDED


def test_either_side_may_come_first(tmp_path: Path) -> None:
    one = script(tmp_path / "train.sh", norm_epsilon="1e-6", lr="1e-4", num_layers="4", rotary_base="500000")
    other = configuration(tmp_path / "llama.yaml", optimizer__weight_decay=0.0)
    forward, backward = checked(one, other), checked(other, one)
    assert (set(forward.differing), forward.exit_code) == (set(backward.differing), backward.exit_code)
    assert {*forward.differing} >= {"rms_norm_eps", "num_layers", "rotary_base", "learning_rate", "weight_decay"}
    done = command(other, one)
    assert (done.returncode, done.stderr) == (DIFFERS, "")
    assert "--norm-epsilon 1e-05" in done.stdout
    one, other = script(tmp_path / "train.sh"), configuration(tmp_path / "llama.yaml")
    assert [(found.differing, found.exit_code) for found in (checked(one, other), checked(other, one))] == [([], CLEAN)] * 2


def test_what_no_row_covers_is_listed_where_two_scripts_differ(tmp_path: Path) -> None:
    one = script(tmp_path / "one.sh", quantum_entanglement=3, same_on_both=5)
    done = command(one, script(tmp_path / "other.sh", quantum_entanglement=4, same_on_both=5, only_here=6))
    for name, ours, theirs in (("quantum_entanglement", "3", "4"), ("only_here", "–", "6")):
        assert words("check.values", name=name, reference=ours, candidate=theirs) in " ".join(done.stdout.split())
    assert "same_on_both" not in done.stdout and "not covered, candidate: 1 setting (--all lists it)" in done.stdout
    assert command(one, tmp_path / "other.sh", "--all").stdout.count("same_on_both") == 2  # among what no row covers, once a side


def test_what_no_row_covers_is_listed_where_two_yamls_differ(tmp_path: Path) -> None:
    one, other = (configuration(tmp_path / f"{value}.yaml", flux__capacitor=value) for value in (1.21, 2.42))
    assert checked(one, other).setting_differences == (("flux.capacitor", "1.21", "2.42"),)


def merged(levels: int) -> str:
    """Mappings that each merge the one before, nine times."""
    rest = "".join(f"a{at}: &a{at}\n  <<: [{', '.join([f'*a{at - 1}'] * 9)}]\n  x{at}: 1\n" for at in range(1, levels))
    return f"a0: &a0 {{x0: 1, y0: 2}}\n{rest}model:\n  <<: *a{levels - 1}\n"


ONE_LINE = {
    "merge keys": merged(12),
    "aliases": BOMB,
    "a base without end": "base_config: /dev/zero\nmodel: {a: 1}\n",
    "a base that is itself": "base_config: hostile.yaml\nmodel: {model_config: {num_layers: 2}}\n",
    "nested lists": f"model: {'[' * 3000}{']' * 3000}\n",
    "nested mappings": f"model: {'{a: ' * 3000}1{'}' * 3000}\n",
    "a number of 5000 digits": f"model: {{num_layers: {'9' * 5000}}}\n",
    "a day that is none": "model: {a: 2001-99-14}\n",
    "two megabytes": "# x\n" * 500_000 + "model: {a: 1}\n",
    "two documents": "model: {a: 1}\n---\nmodel: {a: 2}\n",
    "a script of two megabytes": "# x\n" * 500_000 + f"{TRAIN}\n",
    "nested groups": "{ " * 3000 + f"{TRAIN}; " + "} ; " * 3000,
    "nested expansions": f"{TRAIN} --lr {'${A:-' * 3000}1{'}' * 3000}\n",
    "brackets that nobody closes": "(" * 20_000,
    "a string that doubles": "A=xxxxxxxxxx\n" + "A=$A$A\n" * 40 + f"{TRAIN} --save $A\n",
    "an array that doubles": "A=(x x)\n" + 'A=("${A[@]}" "${A[@]}")\n' * 40 + f'{TRAIN} --data-path "${{A[@]}}"\n',
}
"""Files that end in one line of what is wrong with them."""
SLOW = {
    "functions that call themselves": f"f() {{ {'f; ' * 8}}}\nf\n{TRAIN}\n",
    "a script that sources itself": "source hostile.sh\n" * 4 + f"{TRAIN}\n",
    "eval of itself": f"X='{'eval $X; ' * 6}'\neval $X\n{TRAIN}\n",
    "appended to and on": "A=()\n" + "A+=(x y z)\n" * 20_000 + f"{TRAIN} --data-path ${{A[@]}}\n",
    "thousands of conditions": "".join(f"if [ -f x{at} ]; then V{at}=1; fi\n" for at in range(8000)) + f"{TRAIN}\n",
    "thousands of arguments": f"{TRAIN} \\\n" + "".join(f"  --x{at} {at} \\\n" for at in range(20_000)) + "\n",
    "a pattern that looks back": f"S={'a' * 20_000}\n{TRAIN} --save ${{S%%*a*a*a*b}}\n",
}
"""Scripts that cost time; each is less than a megabyte."""


@pytest.fixture
def usual_recursion() -> Iterator[None]:
    """The interpreter's own limit, as a command has it: MindSpore raises that of a process that imports it."""
    raised = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(raised)


@pytest.mark.usefixtures("usual_recursion")
@pytest.mark.parametrize("text", ONE_LINE.values(), ids=ONE_LINE)
def test_a_file_that_nobody_wrote_by_hand_is_one_line(tmp_path: Path, text: str) -> None:
    agree = {"sh": script(tmp_path / "ok.sh"), "yaml": configuration(tmp_path / "ok.yaml")}
    kind = "yaml" if "model:" in text else "sh"
    hostile = tmp_path / f"hostile.{kind}"
    hostile.write_text(text)
    one, other = (agree | {kind: hostile}).values()
    with at_most(ENOUGH), pytest.raises(ConfigurationError) as said:
        checked(one, other)
    assert len(str(said.value).splitlines()) == 1


@pytest.mark.parametrize("text", every(3, SLOW.values()), ids=SLOW)
def test_what_costs_time_ends_soon(tmp_path: Path, text: str) -> None:
    (tmp_path / "hostile.sh").write_text(text)
    with at_most(ENOUGH):
        says_it_does_not_know(tmp_path, text)


@pytest.mark.parametrize("text", [merged(12), f"model: {'[' * 100_000}\n"], ids=["a bomb", "lists that nobody closes"])
def test_a_process_ends_in_one_line_and_exit_code_two(tmp_path: Path, text: str) -> None:
    """libyaml follows lists by recursion in C, which ends a process without a word."""
    (tmp_path / "hostile.yaml").write_text(text)
    done = command(script(tmp_path / "train.sh"), tmp_path / "hostile.yaml")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)


def test_a_base_of_a_base_counts(tmp_path: Path) -> None:
    """MindFormers follows base_config all the way down."""
    other = configuration(tmp_path / "first.yaml")
    (tmp_path / "second.yaml").write_text("base_config: first.yaml\noptimizer: {eps: 1.0e-8}\n")
    (tmp_path / "third.yaml").write_text("base_config: second.yaml\nmodel: {model_config: {num_layers: 2}}\n")
    found = checked(other, tmp_path / "third.yaml")
    assert (found.differing, found.exit_code) == ([], CLEAN)
