"""``align-hooks check`` in a process of its own: exit codes, what is printed, JSON, pages."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

import invoked
from align_hooks.checklist.result import CheckVerdict, Scheduled
from align_hooks.messages import rendered
from checklist.exercises import MEGATRON, OLD, mindformers_tree
from synthetic import Synthetic
from worded import words

LAUNCH = Path(__file__).parents[2] / "launch"


command = partial(invoked.command, "check")


def script(path: Path, **changes: Any) -> Path:
    told = {**MEGATRON, **{name.replace("_", "-"): value for name, value in changes.items()}}
    words = [f"  --{name}" if value is None else f"  --{name} {value}" for name, value in told.items()]
    path.write_text("#!/bin/bash\ntorchrun --nproc_per_node 1 pretrain_gpt.py \\\n" + " \\\n".join(words) + "\n")
    return path


def configuration(path: Path, **changes: Any) -> Path:
    path.write_text(yaml.safe_dump(mindformers_tree(OLD, {name.replace("__", "."): value for name, value in changes.items()})))
    return path


def test_two_files_that_agree(tmp_path: Path) -> None:
    done = command(script(tmp_path / "train.sh"), configuration(tmp_path / "llama.yaml"))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert done.stdout.startswith(rendered(CheckVerdict.CLEAN))
    assert words("headline.nothing") in done.stdout


def test_a_difference_with_both_values_their_places_and_the_change(tmp_path: Path) -> None:
    one = script(tmp_path / "train.sh", norm_epsilon="1e-6")
    done = command(one, configuration(tmp_path / "llama.yaml"), COLUMNS="120")
    assert done.returncode == 1
    assert done.stdout.startswith(rendered(CheckVerdict.DIFFERS))
    assert words("headline.settings", count=1) in done.stdout
    lines = done.stdout.splitlines()
    at = next(at for at, line in enumerate(lines) if "rms_norm_eps" in line)
    assert lines[at].split() == ["rms_norm_eps", "1e-06", "1e-05", "rms_norm_eps:", "1.0e-06"]
    number = next(at for at, line in enumerate(one.read_text().splitlines(), 1) if "norm-epsilon" in line)
    assert words("place.line", line=number) in lines[at + 1]


def test_it_fits_eighty_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a path is printed whole, however long it is
    done = command(script(Path("train.sh"), norm_epsilon="1e-6", lr="1e-5"), configuration(Path("llama.yaml")), "--all", COLUMNS="80")
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_what_is_not_told_is_no_agreement(tmp_path: Path) -> None:
    done = command(script(tmp_path / "train.sh", vocab_size="$VOCABULARY"), configuration(tmp_path / "llama.yaml"))
    assert done.returncode == 4
    assert "$VOCABULARY" in done.stdout
    done = command(script(tmp_path / "train.sh", vocab_size="$VOCABULARY"), configuration(tmp_path / "llama.yaml"), VOCABULARY="256")
    assert done.returncode == 0


def test_the_learning_rate_of_the_whole_run(tmp_path: Path) -> None:
    one = script(tmp_path / "train.sh", lr_decay_style="cosine", lr_warmup_fraction="0.2", min_lr="1e-5")
    other = configuration(
        tmp_path / "llama.yaml", lr_schedule__type="CosineWithWarmUpLR", lr_schedule__warmup_ratio=0.2, lr_schedule__lr_end=2e-5
    )
    done = command(one, other, "--json", tmp_path / "check.json")
    assert done.returncode == 1
    rates = json.loads((tmp_path / "check.json").read_text())["courses"][0]
    assert (rates["id"], rates["same"], rates["steps"]) == (Scheduled.LEARNING_RATE.value, False, list(range(10)))
    assert rates["reference"][:3] == [0.0, 0.0005, 0.001]
    assert (rates["differing"], rates["first"]) == (7, 3)


def test_json_has_every_row_and_what_no_row_covers(tmp_path: Path) -> None:
    one = script(tmp_path / "train.sh", quantum_entanglement=3)
    command(one, configuration(tmp_path / "llama.yaml", flux__capacitor=1.21), "--json", tmp_path / "check.json")
    found = json.loads((tmp_path / "check.json").read_text())
    assert len(found["rows"]) == sum(found["counts"].values()) > 160
    uncovered = [{one["name"]: one["value"] for one in side["not_covered"]} for side in found["sides"]]
    assert uncovered[0] == {"quantum_entanglement": "3"}
    assert uncovered[1] == {"flux.capacitor": "1.21"}


def test_unknown_names_are_listed(tmp_path: Path) -> None:
    done = command(script(tmp_path / "train.sh", quantum_entanglement=3), configuration(tmp_path / "llama.yaml"))
    assert (done.returncode, words("heading.not_covered_may_matter") in done.stdout) == (4, True)
    assert words("check.may_matter", name="quantum_entanglement", value="3", place="train.sh:")[:-1] in done.stdout


def test_a_script_that_ends_before_it_trains_says_where(tmp_path: Path) -> None:
    one = script(tmp_path / "train.sh")
    one.write_text('if [[ -z "$DATA" ]]; then\n  exit 1\nfi\n' + one.read_text())
    done = command(one, configuration(tmp_path / "llama.yaml"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "no command of train.sh trains: it ends at train.sh:2; what it asks for there may be put before the command" in done.stderr
    assert command(f"DATA=/x bash {one}", configuration(tmp_path / "llama.yaml")).returncode == 0


@pytest.mark.parametrize(
    ("one", "message"),
    [
        ("no_such_file.sh", "no_such_file.sh is no file and no recorded run"),
        ("torchrun nothing.py", "no command of the command trains"),
        ("'unclosed", "is no file and no recorded run"),
    ],
)
def test_what_cannot_be_read_is_one_line_and_exit_code_two(tmp_path: Path, one: str, message: str) -> None:
    done = command("--", one, configuration(tmp_path / "llama.yaml"))
    assert done.returncode == 2
    assert done.stdout == ""
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_object_in_a_yaml_is_never_made(tmp_path: Path) -> None:
    hostile = tmp_path / "hostile.yaml"
    hostile.write_text(f"model: !!python/object/apply:os.system ['touch {tmp_path / 'executed'}']\n")
    done = command(script(tmp_path / "train.sh"), hostile)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "nothing was executed" in done.stderr
    assert not (tmp_path / "executed").exists()


def test_a_directory_that_is_no_record_is_exit_code_three(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = command(tmp_path / "empty", configuration(tmp_path / "llama.yaml"))
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1)


def test_a_record_without_a_configuration_is_refused(tmp_path: Path) -> None:
    run = Synthetic().write(tmp_path / "run")
    done = command(run, run)
    assert done.returncode == 3
    assert "holds no run.json with the framework's arguments" in done.stderr


def test_one_file_for_two_options_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = command(script(tmp_path / "a.sh"), configuration(tmp_path / "b.yaml"), "--html", out, "--json", out)
    assert (done.returncode, out.exists()) == (2, False)


def test_a_tokenizer_that_is_not_there(tmp_path: Path) -> None:
    done = command(script(tmp_path / "a.sh"), configuration(tmp_path / "b.yaml"), "--tokenizer", tmp_path / "gone.json")
    assert done.returncode == 2
    assert "name a tokenizer.json" in done.stderr


PAIRS = sorted(path.with_suffix("") for path in (*LAUNCH.glob("*.yaml"), *LAUNCH.glob("families/*.yaml")))


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_the_pairs_of_launch_are_clean(pair: Path) -> None:
    """Each is found aligned where it is run, both sides from the same weights, which files do not say: that is left to a person."""
    done = command(pair.with_suffix(".args"), pair.with_suffix(".yaml"))
    assert done.returncode == 0, done.stdout
    assert words("came_out.different") not in done.stdout
    assert len(PAIRS) == 6


def test_the_mended_yaml_is_written_beside_the_old_one(tmp_path: Path) -> None:
    reference, candidate = script(tmp_path / "train.sh", adam_beta1="0.8"), configuration(tmp_path / "llama.yaml")
    before = candidate.read_text()
    can_be = words("check.can_be_fixed", name=candidate)
    assert can_be in command(reference, candidate, COLUMNS="500").stdout
    done = command(reference, candidate, "--fix", tmp_path / "mended.yaml")
    assert (done.returncode, done.stderr, "--fix FILE" in done.stdout) == (1, "", False)
    assert candidate.read_text() == before
    lines = done.stdout.splitlines()
    assert {"+  betas: [0.8, 0.95]", "  base_config: llama.yaml", "  optimizer:"} <= set(lines)
    assert words("check.fixed", judgement=CheckVerdict.CLEAN) in done.stdout
    assert command(reference, tmp_path / "mended.yaml").returncode == 0


def test_a_yaml_that_needs_nothing_is_written_as_it_is(tmp_path: Path) -> None:
    candidate = configuration(tmp_path / "llama.yaml")
    done = command(script(tmp_path / "train.sh"), candidate, "--fix", tmp_path / "mended.yaml")
    assert done.returncode == 0
    assert (tmp_path / "mended.yaml").read_text() == candidate.read_text()


@pytest.mark.parametrize(("swapped", "file"), [(True, "mended.yaml"), (False, "llama.yaml"), (False, "."), (False, "report.html")], ids=str)
def test_nothing_is_mended_that_is_no_yaml_or_would_be_lost(swapped: bool, file: str, tmp_path: Path) -> None:
    sides = [script(tmp_path / "train.sh", adam_beta1="0.8"), configuration(tmp_path / "llama.yaml")]
    before = {path.name: path.read_text() for path in sides}
    pages = ["--html", tmp_path / "report.html"] if file == "report.html" else []
    done = command(*(sides[::-1] if swapped else sides), "--fix", tmp_path / file, *pages)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1 and "--fix" in done.stderr
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(("more", "asks"), [("--tokenizer-model $TOKENIZER", False), ("--rotary-base $BASE", True), ("$MORE", True)])
def test_a_run_is_advised_only_for_what_a_run_tells(tmp_path: Path, more: str, asks: bool) -> None:
    path = script(tmp_path / "train.sh")
    path.write_text(path.read_text().rstrip() + f" {more}\n")
    done = command(f"bash {path} 1 8", configuration(tmp_path / "llama.yaml"))
    assert (f"align-hooks run --arguments-only -- bash {path} 1 8" in done.stdout) is asks, done.stdout
