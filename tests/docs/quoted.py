"""What pages quote of our own output, printed anew: ``python tests/docs/quoted.py`` writes it into every page that quotes it.

A page quotes between ``<!-- python tests/docs/quoted.py NAME -->`` and ``<!-- end -->``. A quotation is a part of a
golden file (``tests/golden``), or is printed by a command on files of ``launch/``, so that no page shows what no command prints.
"""

import re
import sys
import tempfile
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from textwrap import wrap

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from align_hooks import open_run
from align_hooks.cli import app
from align_hooks.record.distill import distill
from align_hooks.testing import assert_aligned
from golden.write import LONG, cases
from invoked import invoke
from synthetic import LAUNCH, Synthetic

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "terminal_en.txt"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
PART = re.compile(r"(?s)(<!-- python tests/docs/quoted\.py (\w+) -->\n).*?(<!-- end -->)")
MADE = re.compile(r"(?s)<!-- (python [^\n]+) -->\n.*?<!-- end -->")
"""Anything that is made by a command of ours."""
CHINESE = ".zh-CN.md"
WIDTH = 80
"""Of the terminal, which a page of the site shows without scrolling."""


# ---- what is quoted


def printed(case: str, count: int) -> str:
    """The first paragraphs that a terminal shows of a comparison of the golden files."""
    text = GOLDEN.read_text(encoding="utf-8").partition(f"######## {case}\n\n")[2].partition("\n########")[0]
    return "\n".join(fitted(line) for line in paragraphs(text, count).splitlines())


def fitted(line: str) -> str:
    """A line of the golden files, which are as wide as need be, as a terminal of :data:`WIDTH` columns shows it."""
    if re.match(r" \S", line):  # of a table
        return line if len(line) <= WIDTH else line[: WIDTH - 1] + ("─" if line.endswith("─") else "…")
    indent = line[: len(line) - len(line.lstrip())]
    return "\n".join(wrap(line, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False))


def paragraphs(text: str, count: int) -> str:
    """The first paragraphs of a text."""
    return "\n\n".join(re.split(r"\n\s*\n", text.strip("\n"))[:count])


def check() -> str:
    """What ``check`` says of the small pair when one side has another epsilon in its norms."""
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder) / "llama.yaml"
        other.write_text((LAUNCH / "llama.yaml").read_text(encoding="utf-8").replace("rms_norm_eps: 1.e-5", "rms_norm_eps: 1.e-6"))
        said = invoke(app, ["check", str(LAUNCH / "llama.args"), str(other)], env={"COLUMNS": str(WIDTH)})
    return paragraphs(said.stdout, 2) + "\n…"


def ladder() -> str:
    """What ``ladder --judge`` says of the plan of docs/ladder.md when its last rung differs."""
    plan = re.search(r"```yaml\n(.*?)```", (ROOT / "docs" / "ladder.md").read_text(encoding="utf-8"), re.DOTALL)
    assert plan is not None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "plan.yaml"
        file.write_text(plan[1].replace("folder: runs/ladder", f"folder: {folder}"), encoding="utf-8")
        run = Synthetic(settings={"batches": "all", "local_norms": "all", "weights": "0"})
        for name in ("one-card", "tensor-parallel"):
            run.write(Path(folder) / name)
        run.model["rope_theta"] = 500000.0
        for batch in run.batches.values():
            batch["token_losses"][:, 1:] *= np.float32(1.001)
        run.write(Path(folder) / "pipeline-parallel")
        said = invoke(app, ["ladder", str(file), "--judge"], env={"COLUMNS": str(WIDTH)})
    return said.stdout


def assertion() -> str:
    """What a failing ``assert_aligned`` says of the small runs of the golden files, whose norms have another epsilon."""
    _, reference, candidate, _ = next(case for case in cases() if case[0].startswith("another forward pass"))
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        Path("reference.zip").write_bytes(distill(open_run(reference.write(Path("reference")))).content)
        candidate.write(Path("runs/candidate"))
        try:
            assert_aligned("reference.zip", "runs/candidate")
        except AssertionError as error:
            text = LONG.sub(lambda number: f"{float(number[0]):.4g}", f"AssertionError: {error}")
    return "\n".join(fitted(line) for line in text.splitlines())


QUOTES: dict[str, Callable[[], str]] = {
    "aligned": lambda: printed("aligned", 2),
    "diverged": lambda: printed("another forward pass, noise measured", 1),
    "optimizer": lambda: printed("another optimizer", 1),
    "check": check,
    "ladder": ladder,
    "assertion": assertion,
}


def quoted(name: str) -> str:
    """A quotation as a block of Markdown."""
    return "```text\n" + "\n".join(line.rstrip() for line in QUOTES[name]().splitlines()).strip("\n") + "\n```\n"


# ---- the pages


def filled(text: str, file: Path) -> str:
    """A page with its quotations as they are printed now; a Chinese one also with the tables that were made for the English one."""
    if file.name.endswith(CHINESE):
        english = file.with_name(file.name.replace(CHINESE, ".md")).read_text(encoding="utf-8")
        made = {found[1]: found[0] for found in MADE.finditer(english)}
        text = MADE.sub(lambda found: made.get(found[1], found[0]), text)
    return PART.sub(lambda found: found[1] + quoted(found[2]) + found[3], text)


if __name__ == "__main__":
    for file in PAGES:
        before = file.read_text(encoding="utf-8")
        if (after := filled(before, file)) != before:
            file.write_text(after, encoding="utf-8")
