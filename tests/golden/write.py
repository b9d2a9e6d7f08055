"""What people read of a few comparisons, as files: one a renderer and language. A message that is reworded breaks these and no other test.

``python tests/golden/write.py`` writes them again; look at the difference before it is committed.
"""

import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from align_hooks import open_run
from align_hooks.comparison.control_band.signed_drift import SignedDrift
from align_hooks.comparison.finding import Metric
from align_hooks.comparison.pipeline import compare
from align_hooks.comparison.verdict import ComparisonResult, Verdict
from align_hooks.record.format.norms import squared_sum
from align_hooks.report.comparison import document
from align_hooks.report.comparison_page import comparison_page
from align_hooks.report.failure import failure
from align_hooks.report.junit import junit
from align_hooks.report.markdown import markdown
from synthetic import NAMES, Synthetic, adamw, grown, optimizer
from worded import on_terminal

HERE = Path(__file__).parent
WIDTH = 1000
"""Of the terminal: no line is broken or cut."""
FOLDER = "_golden"
"""How the name of the directory ends in which the runs lie."""
MASKS = {
    rf"/[\w/.-]+{FOLDER}\b": "/runs",
    r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?( UTC|Z|[+-]\d\d:\d\d)?": "DATE",
    r"\b[0-9a-f]{16}\b": "RUN",
    r"Vega [\d.]+\d": "Vega VERSION",
}
"""What is another on each day or machine."""
LONG = re.compile(r"\d+\.\d{6,}(e[-+]\d+)?")
"""Numbers whose last digits another processor may round otherwise."""
BLOCKS = {"title", "h1", "h2", "h3", "p", "li", "dt", "dd", "tr", "summary", "legend", "label", "option", "figcaption", "nav"}
"""Elements that begin a line."""
CELLS = {"td", "th", "a", "button"}
"""Elements that stand apart from what is before them, as a ``span`` does that has no language."""


# ---- what is compared


def other_forward(reference: Synthetic) -> Synthetic:
    """A candidate with another epsilon in its norms, which its losses and gradients show."""
    candidate, random = deepcopy(reference), np.random.default_rng(11)
    candidate.model |= {"rms_norm_eps": 1e-6}
    for step, row in enumerate(candidate.rows):
        batch = candidate.batches[step]
        batch["token_losses"] *= (1 + 1e-2 * random.standard_normal(batch["token_losses"].shape)).astype(np.float32)
        row["loss"] = row["objective_loss"] = float(np.average(batch["token_losses"], weights=batch["loss_mask"]))
    for step, gradients in candidate.gradients.items():
        for name, gradient in gradients.items():
            gradients[name] = gradient * (1 + 1e-2 * random.standard_normal(gradient.shape)).astype(np.float32)
            candidate.norms[step][name] = squared_sum(gradients[name])
    candidate.train()
    return candidate


def other_update(reference: Synthetic) -> Synthetic:
    """A candidate that updates with another beta than it has on record."""
    candidate, settings = deepcopy(reference), optimizer()
    for group in settings["groups"]:
        group["betas"] = [0.9, 0.999]
    adamw(candidate, settings)
    return candidate


def cases() -> Iterator[tuple[str, Synthetic, Synthetic, Synthetic | None]]:
    """Name, reference, candidate and a repeat of the reference where there is one."""
    run = Synthetic()
    run.model |= {"rms_norm_eps": 1e-5}  # a setting to differ in
    yield "aligned", run, run.drifted(), None
    yield "another forward pass, noise measured", run, other_forward(run), run.drifted(1e-5)
    yield "another optimizer", run, other_update(run), None
    yield "another model", run, grown({NAMES[0]: (10, 4), NAMES[1]: (8, 4)}), None


def comparisons() -> dict[str, ComparisonResult]:
    """The comparisons of all cases."""
    made = {}
    for name, *runs in cases():
        with tempfile.TemporaryDirectory(suffix=FOLDER) as folder:
            written = zip(("reference", "candidate", "noise"), runs, strict=True)
            reference, candidate, *noise = [open_run(run.write(Path(folder) / side)) for side, run in written if run]
            made[name] = compare(reference, candidate, noise=noise)
    return made


# ---- how it reads


class Read(HTMLParser):
    """The lines that a reader of one language sees on a page, what is folded away included, and what a screen reader is told."""

    def __init__(self, text: str, language: str) -> None:
        super().__init__()
        self.hidden, self.pieces, self.closed = {"en": "zh", "zh": "en"}[language], [""], ""
        self.feed(text)

    @property
    def lines(self) -> list[str]:
        """Without empty ones."""
        return [line for piece in self.pieces if (line := " ".join(piece.split()))]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if self.closed:
            return
        if tag in ("script", "style", "svg") or (tag == "span" and attributes.get("lang") == self.hidden):
            self.closed = tag
        if tag in BLOCKS:
            self.pieces.append("")
        elif tag in CELLS or (tag == "span" and "lang" not in attributes):
            self.pieces[-1] += " "
        if label := attributes.get("aria-label" if self.hidden == "zh" else "data-label-zh"):
            self.pieces[-1] += f" [{label}] "
        if self.hidden == "en" and attributes.get("data-zh"):
            self.pieces[-1], self.closed = str(attributes["data-zh"]), tag

    def handle_data(self, data: str) -> None:
        if not self.closed:
            self.pieces[-1] += data

    def handle_endtag(self, tag: str) -> None:
        if tag == self.closed:
            self.closed = ""
        if tag in BLOCKS:
            self.pieces.append("")


def on_page(comparison: ComparisonResult, language: str) -> str:
    """The text of a page in a language."""
    return "\n".join(Read(comparison_page(comparison, "VERSION"), language).lines)


COMMAND = "align-hooks compare reference.zip runs/candidate"
DRIFTS = [SignedDrift(Metric.LOSS, -1e-7, 2e-7, 3, 3), SignedDrift(Metric.LOCAL_NORMS, 3e-7, 5e-7, 6, 3, "self_attn.q_proj")]


def as_failure(comparison: ComparisonResult) -> str:
    """The error of a test."""
    return failure(comparison, [Verdict.ALIGNED], COMMAND, "build/page.html")


RENDERERS: dict[str, Callable[[ComparisonResult], str]] = {
    "terminal_en.txt": lambda comparison: on_terminal(document(comparison), WIDTH),
    "page_en.txt": partial(on_page, language="en"),
    "page_zh_CN.txt": partial(on_page, language="zh"),
    "failure_en.txt": as_failure,
    "junit_en.txt": partial(junit, command=COMMAND),
    "markdown_en.txt": lambda comparison: markdown(document(comparison, drifts=DRIFTS, command=COMMAND)),
}
"""The file of each renderer and language."""


def golden(renderer: Callable[[ComparisonResult], str], made: dict[str, ComparisonResult]) -> str:
    """Everything that a file holds: each case under its name."""
    text = "\n".join(f"######## {name}\n\n{renderer(comparison).rstrip()}\n" for name, comparison in made.items())
    for pattern, word in MASKS.items():
        text = re.sub(pattern, word, text)
    text = LONG.sub(lambda number: f"{float(number[0]):.4g}", text)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def main() -> None:
    made = comparisons()
    for name, renderer in RENDERERS.items():
        (HERE / name).write_text(golden(renderer, made), encoding="utf-8")


if __name__ == "__main__":
    main()
