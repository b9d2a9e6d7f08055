"""The examples of docs/python.md and docs/ci.md run, one after the other, on runs that recorded everything; so does the notebook."""

import contextlib
import io
import json
import re
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest

from align_hooks import Run
from align_hooks.names.points import GRADIENT
from synthetic import ROWS, SEQUENCE, STEPS, routed
from test_docs import blocks

DOCS = Path(__file__).parents[2] / "docs"
POINTS = ("model.embed_tokens", "model.layers.0.mlp.down_proj", "model.norm")
PAGES = [DOCS / name for name in ("python.md", "python.zh-CN.md")]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs of a model with experts that recorded everything."""
    here, made = tmp_path_factory.mktemp("python"), routed("routing", "activations")
    random = np.random.default_rng(5)
    for step in range(STEPS):
        values = {point: random.standard_normal((ROWS, SEQUENCE, 8)).astype(np.float32) for point in POINTS}
        made.activations[step] = values | {point + GRADIENT: value * np.float32(0.1) for point, value in values.items()}
    made.facts = {"framework": "Megatron-LM"}
    made.write(here / "runs/megatron")
    made.drifted().write(here / "runs/mindformers")
    return here


@pytest.fixture
def inside(here: Path) -> Iterator[Path]:
    """The same, as the working directory, with figures that go to files."""
    backend = mpl.get_backend()
    with chdir(here):
        mpl.use("Agg")
        yield here
    mpl.use(backend)


def run(code: list[str], name: str) -> tuple[dict[str, Any], str]:
    """Run blocks one after the other; what they leave, and what they print."""
    left: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        for number, block in enumerate(code):
            exec(compile(block, f"{name}, block {number}", "exec"), left)
    return left, printed.getvalue()


def test_the_examples_run(inside: Path) -> None:
    left, printed = run(blocks(PAGES[0], "python"), "python.md")
    assert "aligned" in printed and "model.norm.weight" in printed
    assert left["comparison"].exit_code == 0
    for file in ("comparison.html", "losses.png", "norms.png"):
        assert (inside / file).stat().st_size > 1000


def test_both_languages_have_the_same_examples() -> None:
    english, chinese = ([re.sub(r"\s*#.*", "", block) for block in blocks(page, "python")] for page in PAGES)
    assert english == chinese
    assert len(english) > 8


def test_every_public_member_of_a_run_that_a_reader_needs_is_told() -> None:
    """Those of its files are for whoever writes a stage."""
    told = {name for page in PAGES for name in re.findall(r"\b[a-z_]+\b", page.read_text(encoding="utf-8"))}
    members = {name for name in vars(Run) if not name.startswith("_")}
    assert sorted(members - told - {"rows", "has_sketches"}) == []


def test_the_notebook_runs(inside: Path) -> None:
    notebook = json.loads((DOCS / "notebooks/compare.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    left, _ = run([cell.replace("%matplotlib inline", "") for cell in cells], "compare.ipynb")
    assert left["comparison"].exit_code == 0
    assert len(mpl.pyplot.get_fignums()) >= 2
    mpl.pyplot.close("all")


def test_the_notebook_was_run_without_an_error() -> None:
    notebook = json.loads((DOCS / "notebooks/compare.ipynb").read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", ())]
    assert {output["output_type"] for output in outputs} <= {"stream", "display_data", "execute_result"}
    assert any("image/png" in output.get("data", {}) for output in outputs)
