"""The workflow of launch/examples and the snippets of docs/ci.md: well-formed, and of commands, options and variables that there are."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pytest
import yaml

from align_hooks import open_run
from align_hooks.cli import app
from align_hooks.record.distill import distill
from synthetic import Synthetic
from test_docs import COMMANDS, blocks, without_comments

ROOT = Path(__file__).parents[2]
WORKFLOW = ROOT / "launch/examples/github_action.yaml"
PAGES = [ROOT / "docs" / name for name in ("ci.md", "ci.zh-CN.md")]


def scripts() -> Iterator[str]:
    """The shell of every step, and of the lines of other systems."""
    for job in yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"].values():
        yield from (step["run"] for step in job["steps"] if "run" in step)
    for page in PAGES:
        for block in blocks(page, "yaml"):
            for job in yaml.safe_load(block).values():
                yield from job["script"]


def test_the_workflow_is_one() -> None:
    """``on`` is a truth value in YAML, which is how PyYAML reads it."""
    workflow = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    assert set(workflow) == {"name", True, "permissions", "jobs"}
    (job,) = workflow["jobs"].values()
    assert job["runs-on"] and job["timeout-minutes"]
    for step in job["steps"]:
        assert ("run" in step) != ("uses" in step)
        assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step.get("uses", "a/b@v1"))
    assert "# change" in WORKFLOW.read_text(encoding="utf-8")


def test_every_script_is_shell() -> None:
    found = list(scripts())
    assert len(found) > 5
    for script in found:
        done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, timeout=60, check=False)
        assert done.stderr == "", script


def test_every_command_and_option_exists() -> None:
    lines = [line for script in scripts() for line in script.replace("\\\n", " ").splitlines()]
    lines += re.findall(r"^#   (align-hooks .*)$", WORKFLOW.read_text(encoding="utf-8"), re.M)
    ours = [line[line.index("align-hooks ") :] for line in lines if re.search(r"(^|\s)align-hooks [a-z]", line)]
    assert len(ours) >= 7
    for line in ours:
        _, command, *words = shlex.split(line.partition(" -- ")[0])
        known = {option for parameter in COMMANDS[command].params for option in parameter.opts}
        assert [word for word in words if word.startswith("--") and word not in known] == [], line


def test_what_one_step_writes_the_next_ones_read() -> None:
    (compare,) = (script for script in scripts() if "compare" in script and "build/" in script)
    (job,) = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"].values()
    written = set(re.findall(r"build/comparison\.\w+", compare))
    read = set(re.findall(r"build/comparison\.\w+", str([step for step in job["steps"] if step.get("run") != compare])))
    assert read == written
    recorded = next(step["env"] for step in job["steps"] if "ALIGN_HOOKS_RUN" in step.get("env", {}))
    assert recorded["ALIGN_HOOKS_RUN"] in compare and recorded["ALIGN_HOOKS_REPLAY_BATCHES"] in compare
    assert all(isinstance(value, str) for value in recorded.values())


def test_both_languages_have_the_same_blocks() -> None:
    for language in ("sh", "yaml", "python", "text"):
        english, chinese = ([without_comments(block) for block in blocks(page, language)] for page in PAGES)
        assert english == chinese != []


def test_the_test_of_the_page_passes(tmp_path: Path) -> None:
    run = Synthetic()
    (tmp_path / "reference.zip").write_bytes(distill(open_run(run.write(tmp_path / "reference"))).content)
    run.drifted().write(tmp_path / "runs/candidate")
    left: dict[str, object] = {}
    (block,) = blocks(PAGES[0], "python")
    exec(compile(block, "ci.md", "exec"), left)
    with chdir(tmp_path):
        left["test_the_new_kernel_trains_as_the_old_one"]()  # type: ignore[operator]
    assert (tmp_path / "comparison.html").exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_option_of_distill_is_told(page: Path) -> None:
    options = {option for parameter in app.commands["distill"].params for option in parameter.opts}  # type: ignore[attr-defined]
    assert {option for option in options if option.startswith("--")} - set(re.findall(r"--[a-z-]+", page.read_text())) == {"--executor"}
