"""What ``check`` makes of odd inputs, as a person meets it: an exit code of the contract, one line or a report, and nothing else.

No traceback, no control sequence, no end that never comes. Work is counted in calls, what is printed in letters. Bombs and scripts that
mislead are in ``test_hostile.py``.
"""

import itertools
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from align_hooks.checklist.lookup import LONGEST
from align_hooks.checklist.result import CLEAN, DIFFERS, UNDECIDED
from align_hooks.cli import main
from align_hooks.configuration.yaml_files import DEEPEST
from checklist.test_command import configuration, script
from chosen import every
from work import at_most

ENOUGH = 10_000_000
"""Calls of a check: a plain one takes a twentieth."""
LONGEST_REPORT = 60_000
"""Letters of a report."""
UNREADABLE, USAGE = 3, 2
REPORT = (CLEAN, DIFFERS, UNDECIDED)
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""What a terminal obeys, and what turns the order of letters; not the end of a line."""
TRAIN = "torchrun pretrain_gpt.py --num-layers 2"
Said = Callable[..., tuple[int, str]]


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Said:
    """Run the command, and give its exit code and what it printed; ``ok.sh`` and ``ok.yaml`` are two sides that agree."""
    monkeypatch.chdir(tmp_path)
    script(tmp_path / "ok.sh")
    configuration(tmp_path / "ok.yaml")

    def run(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["align-hooks", "check", *arguments])
        with at_most(ENOUGH), pytest.raises(SystemExit) as ended:
            main()
        out, error = capfd.readouterr()
        code = ended.value.code if isinstance(ended.value.code, int) else 0
        assert "Traceback" not in out + error
        assert CONTROL.search(out + error) is None
        assert len(out) < LONGEST_REPORT
        assert (bool(out), len(error.splitlines())) == ((True, 0) if code in REPORT else (False, 1)), (code, out, error)
        return code, out or error

    return run


def plain() -> str:
    return Path("ok.yaml").read_text(encoding="utf-8")


def training() -> str:
    return Path("ok.sh").read_text(encoding="utf-8").rstrip()


# ---- files


UTF16 = {"little": "utf-16-le", "big": "utf-16-be", "marked": "utf-16"}
NO_TEXT: dict[str, bytes] = {
    "empty": b"",
    "blank": b" \n\t\n",
    "binary": b"\x7fELF" + bytes(range(256)) * 40,
    "NUL": b"model: {a: 1}\0\n",
    "too large": b"# " + b"x" * 10_000_000,
    **{f"UTF-16, {name}": "model: {a: 1}\n".encode(code) for name, code in UTF16.items()},
}


@pytest.mark.parametrize("name", ["odd.yaml", "odd.sh", "odd.json"])
@pytest.mark.parametrize("content", NO_TEXT.values(), ids=NO_TEXT)
def test_what_is_no_configuration_is_said_in_a_line(said: Said, name: str, content: bytes) -> None:
    Path(name).write_bytes(content)
    assert said("ok.sh", name)[0] == USAGE
    assert said(name, "ok.yaml")[0] == USAGE


@pytest.mark.parametrize(("comment", "encoding"), [("训练", "gb18030"), ("café", "latin-1"), ("训练", "utf-8")])
def test_comments_of_a_script_may_be_in_any_encoding_and_those_of_a_yaml_are_utf_8(said: Said, comment: str, encoding: str) -> None:
    """MindFormers reads UTF-8 alone."""
    written = f"# {comment}\n".encode(encoding)
    Path("odd.sh").write_bytes(written + training().encode() + b"\n" + written)
    assert said("odd.sh", "ok.yaml")[0] == CLEAN
    Path("odd.yaml").write_bytes(written + plain().encode())
    assert said("ok.sh", "odd.yaml")[0] == (CLEAN if encoding == "utf-8" else USAGE)


def test_a_mark_of_bytes_and_line_ends_of_windows_change_nothing(said: Said) -> None:
    for name, text in (("odd.yaml", plain()), ("odd.sh", training() + "\n")):
        for content in (b"\xef\xbb\xbf" + text.encode(), text.replace("\n", "\r\n").encode()):
            Path(name).write_bytes(content)
            assert said(*(("ok.sh", name) if name.endswith("yaml") else (name, "ok.yaml")))[0] == CLEAN


def test_a_directory_without_a_record_is_unreadable(said: Said) -> None:
    Path("empty").mkdir()
    Path("named.yaml").mkdir()
    for name in ("empty", "named.yaml"):
        assert (said("ok.sh", name)[0], said(name, "ok.yaml")[0]) == (UNREADABLE, UNREADABLE)


@pytest.mark.parametrize(
    "place", ["pipe", "pipe.yaml", "/dev/zero", "/dev/null", "/dev/stdin", "loop.yaml", "x" * 5000, "no\nthing\x1b[31m.yaml"]
)
def test_what_is_no_file_is_not_waited_for(said: Said, place: str) -> None:
    os.mkfifo("pipe")
    os.mkfifo("pipe.yaml")
    Path("loop.yaml").symlink_to("loop.yaml")
    assert said("ok.sh", place)[0] == USAGE
    assert said(place, "ok.yaml")[0] == USAGE


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_a_file_that_may_not_be_read_is_said_in_a_line(said: Said) -> None:
    Path("ok.yaml").chmod(0)
    assert said("ok.sh", "ok.yaml")[0] == USAGE


@pytest.mark.parametrize("name", ["new\nline.yaml", "\x1b[31mred.yaml", "[bold].yaml", "训练 配置.yaml", "ü‮x.yaml", "<script>.yaml"])
def test_a_file_of_any_name_is_read_and_printed_harmless(said: Said, name: str) -> None:
    Path(name).write_text(plain(), encoding="utf-8")
    assert said("ok.sh", name)[0] == CLEAN
    Path(name).write_text("model: [\n", encoding="utf-8")
    assert said("ok.sh", name)[0] == USAGE


# ---- YAML

DEEP = {
    "lists": "[" * 100_000,
    "lists that are closed": "[" * 20_000 + "]" * 20_000,
    "tables": "{a: " * 100_000,
    "closed in what is quoted": '{b: "}", a: ' * 50_000,
    "lists of lists by dashes": "\n " + "- " * 100_000 + "1",
    "keys that are keys": "\n " + "? " * 100_000 + "1",
    "dashes and marks": "\n " + "- ? " * 50_000 + "1",
    "lines": "\n" + "".join(f"{' ' * at}a:\n" for at in range(1, 1300)),
}
"""Bits of a YAML whose parser, written in C, follows all of them by recursion and ends the process."""


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
def test_what_lies_too_deep_is_said_in_a_line(said: Said, text: str) -> None:
    Path("odd.yaml").write_text(f"model: {text}\n")
    assert said("ok.sh", "odd.yaml")[0] == USAGE


def test_as_many_lists_as_anybody_writes_are_read(said: Said) -> None:
    Path("odd.yaml").write_text(plain() + "callbacks:\n" + "  - {type: X, a: [1, 2]}\n" * (DEEPEST // 4))
    assert said("ok.sh", "odd.yaml")[0] in REPORT


REFUSED = {
    "an object": "x: !!python/object/apply:os.system ['touch made']\n",
    "a tag of its own": "x: !mine 3\n",
    "a table with a tag": "x: !mine {a: 1}\n",
    "a key twice": "seed: 1\nseed: 2\n",
    "itself below": "base_config: odd.yaml\n",
    "a number that is none": "x: !!int two\n",
    "an alias of nothing": "x: *nothing\n",
    "a tab": "\tx: 1\n",
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_a_yaml_that_mindformers_would_not_read_is_refused(said: Said, text: str) -> None:
    Path("odd.yaml").write_text("\n".join(line for line in plain().splitlines() if not line.startswith("seed:")) + "\n" + text)
    assert said("ok.sh", "odd.yaml")[0] == USAGE
    assert not Path("made").exists()


SECTIONS = (
    *("model", "runner_config", "optimizer", "lr_schedule", "grouped_lr_schedule", "train_dataset", "runner_wrapper", "parallel_config"),
    *("parallel", "context", "moe_config", "recompute_config", "processor", "callbacks", "trainer", "use_legacy", "seed"),
    *("load_checkpoint", "eval_dataset", "checkpoint"),
    *("model.model_config", "train_dataset.data_loader", "model.model_config.rope_scaling"),
)


@pytest.mark.parametrize(("section", "value"), every(5, itertools.product(SECTIONS, ([1, {"a": 2}, [3]], "x", 3, None))))
def test_anything_may_stand_where_a_table_is_expected(said: Said, section: str, value: object) -> None:
    tree = place = yaml.safe_load(plain())
    *path, last = section.split(".")
    for part in path:
        place = place[part]
    place[last] = value
    Path("odd.yaml").write_text(yaml.safe_dump(tree))
    assert said("ok.sh", "odd.yaml")[0] in REPORT


FILES = {
    "a list": "[]",
    "a number": "3",
    "text": '"x"',
    "nothing": "null",
    "half": "{",
    "deep": "[" * 100_000,
    "digits": '{"num_hidden_layers": ' + "9" * 10_000 + "}",
}


def beside_its_own_file(said: Said, text: str) -> int:
    """What the check of a YAML ends with whose model has a ``config.json`` of a text."""
    Path("config.json").write_text(text)
    Path("odd.yaml").write_text("use_legacy: False\npretrained_model_dir: .\nmodel: {model_config: {seq_length: 128}}\n")
    return said("ok.sh", "odd.yaml")[0]


@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
def test_a_models_own_file_that_is_none_is_said_in_a_line(said: Said, text: str) -> None:
    assert beside_its_own_file(said, text) == USAGE


def test_a_models_own_file_with_values_of_other_kinds_is_read(said: Said) -> None:
    wrong = {"num_hidden_layers": "two", "hidden_size": [1], "num_attention_heads": None, "rope_scaling": [1], "architectures": {"a": 1}}
    wrong |= {"model_type": 3, "rms_norm_eps": {}, "vocab_size": True, "head_dim": -1, "intermediate_size": 1e300, "rope_theta": "\x1b[2J"}
    assert beside_its_own_file(said, json.dumps(wrong)) in (DIFFERS, UNDECIDED)


# ---- scripts

ANY = (*REPORT, USAGE)
SCRIPTS: dict[str, tuple[str, tuple[int, ...]]] = {
    "it sources itself": (f"source odd.sh\n{TRAIN}\n", ANY),
    "it runs itself": (f". $0\nbash $0\n{TRAIN}\n", ANY),
    "a bomb of substitutions": ("A=" + "$(" * 3000 + "echo" + ")" * 3000 + f"\n{TRAIN} --spec $A\n", ANY),
    "output without an end": (f"A=$(yes)\nB=$(cat /dev/zero)\n{TRAIN} --spec $A --seed $B\n", (DIFFERS, UNDECIDED)),
    "a bomb of processes": (f":(){{ :|:& }};:\n{TRAIN}\n", ANY),
    "a loop without an end": (f"while true; do A+=x; done\n{TRAIN} --spec $A\n", ANY),
    "a loop of a thousand million": (f"for ((i=0; i<1000000000; i++)); do A+=x; done\n{TRAIN}\n", ANY),
    "braces of a thousand million": (f"for i in {{1..1000000000}}; do A+=x; done\n{TRAIN}\n", ANY),
    "braces times braces": (f"{TRAIN} --data-path {{1..100000}}{{1..100000}}\n", ANY),
    "here-documents that nobody closes": (f"cat <<A\ncat <<B\n{TRAIN}\n", (USAGE,)),
    "a quote that nobody closes": (f'{TRAIN} --spec "abc\n', (DIFFERS, UNDECIDED, USAGE)),
    "another that nobody closes": (f"A='x\n{TRAIN}\n", (USAGE,)),
    "a backslash at the end": (f"{TRAIN} \\", REPORT),
    "backslashes at the end": (f"{TRAIN} \\\n\\\n\\", REPORT),
}


@pytest.mark.parametrize(("text", "codes"), SCRIPTS.values(), ids=SCRIPTS)
def test_a_script_that_never_ends_is_read_to_its_end(said: Said, text: str, codes: tuple[int, ...]) -> None:
    Path("odd.sh").write_text(text)
    assert said("odd.sh", "ok.yaml")[0] in codes


HARMLESS = ["\x1b[31mred", "\x1b]0;title\x07", "\x9b2J", "[bold]x[/bold]", "[/]", "<script>alert(1)</script>", "a\u202eb", "y" * 400_000]


@pytest.mark.parametrize("value", every(4, HARMLESS), ids=[value[:9].encode("unicode_escape").decode() for value in HARMLESS])
def test_what_a_value_holds_is_printed_harmless(said: Said, value: str) -> None:
    Path("odd.sh").write_text(f"{training()} --normalization '{value[:100]}' --made-up '{value}'\n")
    assert said("odd.sh", "ok.yaml", "--html", "page.html")[0] == DIFFERS
    assert value not in Path("page.html").read_text(encoding="utf-8") or value.isalpha() or value.startswith("[")
    Path("odd.yaml").write_text(plain() + yaml.safe_dump({"made": {"up": value, value[:100]: 3}}))
    assert said("ok.sh", "odd.yaml", "--html", "page.html")[0] == UNDECIDED
    assert "<script>alert" not in Path("page.html").read_text(encoding="utf-8")


# ---- numbers

NUMBERS = {"nan": "nan", "inf": "inf", "1e400": "1e400", "10000 digits": "1" + "0" * 9999, "negative": "-3", "nothing": "0", "text": "two"}
NUMBERS |= {"a list": "[1,2]", "None": "None", "a Boolean": "True", "other digits": "٣", "an underscore": "1_000", "half": "2.5"}
FLAGS = ("num_layers", "num_attention_heads", "hidden_size", "global_batch_size", "train_iters", "tensor_model_parallel_size")
KEYS = ("num_layers", "num_heads", "hidden_size", "vocab_size", "theta")


@pytest.mark.parametrize("value", every(7, NUMBERS.values()), ids=NUMBERS)
def test_no_number_ends_a_check(said: Said, value: str) -> None:
    """Of a script each as bash passes it, of a YAML as YAML reads it."""
    for flag in FLAGS:
        script(Path("odd.sh"), **{flag: value})
        assert said("odd.sh", "ok.yaml")[0] in ANY, flag
    for key in KEYS:
        configuration(Path("odd.yaml"), **{f"model__model_config__{key}": "@"})
        Path("odd.yaml").write_text(Path("odd.yaml").read_text().replace("'@'", value))
        assert said("ok.sh", "odd.yaml")[0] in ANY, key


LAYERS = {
    "a thousand million": ("'[1]*1000000000'", False),
    "a million million by brackets": ("'(([1]*9999)*9999)*9999'", False),
    "brackets in brackets": ("'" + "(" * 5000 + "[1]" + ")" * 5000 + "'", False),
    "a program": ('\'__import__("os").system("touch made")\'', False),
    "what people write": ('"([0]*3+[1]*58)"', True),
}


@pytest.mark.parametrize(("pattern", "read"), LAYERS.values(), ids=LAYERS)
def test_no_pattern_of_layers_is_evaluated(said: Said, pattern: str, read: bool) -> None:
    script(Path("odd.sh"), num_layers=61, num_experts=8, moe_layer_freq=pattern)
    assert said("odd.sh", "ok.yaml", "--json", "check.json")[0] in (DIFFERS, UNDECIDED)
    assert not Path("made").exists()
    rows = {row["id"]: row for row in json.loads(Path("check.json").read_text(encoding="utf-8"))["rows"]}
    assert ("58" in json.dumps(rows["layers_with_experts"]["reference"])) is read


def test_a_thousand_million_layers_with_experts_take_no_memory(said: Said) -> None:
    assert LONGEST < 1_000_000
    script(Path("odd.sh"), num_layers=1_000_000_000, num_experts=8)
    configuration(Path("odd.yaml"), model__model_config__num_layers=1_000_000_000, moe_config__expert_num=8)
    for pair in (("odd.sh", "ok.yaml"), ("ok.sh", "odd.yaml"), ("odd.sh", "odd.yaml")):
        assert said(*pair)[0] in (DIFFERS, UNDECIDED)
