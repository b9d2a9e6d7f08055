"""One command a cell: an unmodified Megatron-LM of any tried version, recorded, fed and judged against the wheel's run.

``python tests/matrix/megatron.py CELL… [--repository PATH_OR_URL]`` clones a version's tag into ``build/matrix`` (of a cell
``VERSION@wheel``, unpacks the wheel beside our ``pretrain_gpt.py``, as no wheel holds one), trains its ``pretrain_gpt.py``
on the CPU three times (a witness with recording off, the witness with everything recorded, and the script itself on the
weights and batches of a run of ``launch/pretrain_gpt.py``) and, of every release, on two ranks in three layouts, of 0.12 in
four (of a cell ``VERSION:FAMILY`` by another family's arguments, on one rank), compares, prints a Markdown row and writes
``results/megatron-CELL.json``. The fed runs have another seed than the rest, so that they would have other weights and batches
of their own. Run it with the project's own Python; a cell that needs another gets its own virtual environment in
``build/matrix``: ``VERSION@3.10`` asks for another than the row ``VERSION`` has. Exit code 0 only where every cell came out as
``CELLS`` says.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np
from checkout import SCRIPT, Failed, clone, digests, git, unpack
from interpreter import environment, versions
from proof import conclude, is_bitwise, is_whole, judge, overridden, prove_rows, unproven
from reference import pretrain
from table import Result
from training import BUILD, EVERYTHING, LAUNCH, STEPS, WITNESSES

from align_hooks import open_run

WITNESS = WITNESSES / "witness_checkout.py"
REPOSITORY = "https://github.com/NVIDIA/Megatron-LM"
NUMBERS = ("torch", "numpy", "pybind11", "triton", "einops", "wrapt", "safetensors")
"""Packages whose versions the numbers may depend on."""


Layouts = Mapping[str, tuple[str, ...]]
TENSOR = ("--tensor-model-parallel-size", "2", "--sequence-parallel")
LAYOUTS: Layouts = {
    "tensor": (*TENSOR, "--use-distributed-optimizer"),
    "pipeline": ("--pipeline-model-parallel-size", "2"),
    "data": ("--use-distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather"),
}
"""Flags of the jobs of two ranks that every version trains too."""

CONTEXT = ("--context-parallel-size", "2")
WITHOUT_ENGINE: Layouts = {"tensor": TENSOR, "pipeline": LAYOUTS["pipeline"], "data": ("--overlap-grad-reduce",), "context": CONTEXT}
"""The same for 0.12: its distributed optimizer asks for Transformer Engine, its loss function sums over context-parallel ranks."""


@dataclass(frozen=True)
class Cell:
    """What one cell needs: the Python minor version, arguments of ``llama.args`` that the version reads otherwise, its jobs of two ranks.

    ``packages`` are installed beside that Python, where it is not the project's own environment; ``wheel`` is what the package index has,
    in the place of a checkout; ``gap`` a part of why the version itself does not start there.
    """

    python: str = "3.12"
    packages: tuple[str, ...] = ()
    change: Mapping[str, str | None] = field(default_factory=dict)
    layouts: Layouts = field(default_factory=lambda: LAYOUTS)
    wheel: bool = False
    commit: str = ""
    """Of the main branch, for a version that is not released."""
    gap: str = ""
    family: str = "llama"
    """Whose arguments it trains: of another than this on one rank."""


OURS = "3.12"
"""The Python of the project's own environment, whose wheel a checkout shadows."""

PACKAGES = (
    *("torch==2.13.0", "numpy==1.26.4", "pybind11==3.1.0", "einops==0.8.2", "tqdm", "regex", "six", "PyYAML"),
    *("wrapt", "packaging", "safetensors", "xxhash", "msgspec", "pydantic==2.14.3", "triton==3.7.1"),
)
"""What is installed beside every other Python, and for 0.12 beside this one too: it imports einops."""

EOD_APART = {"--vocab-size": "255"}
"""NullTokenizer added the end of a document to the vocabulary until it counted it in: 256 ids either way."""

RELEASES: dict[str, Cell] = {
    **dict.fromkeys(("0.12.0", "0.12.1", "0.12.2", "0.12.3"), Cell("3.11", PACKAGES, EOD_APART, WITHOUT_ENGINE)),
    **dict.fromkeys(("0.13.0", "0.13.1", "0.14.0", "0.15.0", "0.15.1", "0.15.2", "0.15.3"), Cell(change=EOD_APART)),
    **dict.fromkeys(("0.16.0", "0.16.1", "0.17.0", "0.17.1"), Cell(change=EOD_APART)),
    **dict.fromkeys(("0.18.0", "0.18.2", "0.19.0"), Cell()),
}
"""Every released tag in the supported range."""

LAST = ("0.12.3", "0.13.1", "0.14.0", "0.15.3", "0.16.1", "0.17.1", "0.18.2", "0.19.0")
"""The last release of each minor version: tried on every Python too."""
WHEELS = ("0.17.1", "0.18.0", "0.18.2", "0.19.0", "0.19.2")
"""The wheels that hold ``megatron.training``."""
OURS_FITS = "0.19"
OF_A_TAG = ("pretrain_gpt.py", "gpt_builders.py", "model_provider.py")
PYTHONS = ("3.10", "3.11", "3.12")
UNRELEASED = {"0.20.0@main": "d98e8a64ddf34856e74b24714e3bedb2f5a39553"}
"""Cells of the main branch, and the commit that was tried."""
LATENT = "deepseek_v3"
"""The family beside Llama: latent attention, experts, and dense layers before these."""
WITHOUT_ROPE_TYPE = {"--rope-type": None}
"""Up to 0.13 there is no such argument: latent attention has YaRN, which by its default factor 1 turns as plain positions do."""
GAPS = {
    **dict.fromkeys(("0.18.2@3.10", "0.18.2@3.11", "0.19.0@3.10", "0.19.0@3.11"), "cannot import name 'override' from 'typing'"),
    "0.17.1@wheel": "No module named 'megatron.legacy'",
}
"""Cells in which the version itself does not start, and a part of why: typing.override came with 3.12, and its script imports what the
wheel leaves out."""


def _cells() -> dict[str, Cell]:
    cells = dict(RELEASES)
    for version in LAST:
        for python in PYTHONS:
            if python != RELEASES[version].python:
                name = f"{version}@{python}"
                packages = PACKAGES if python != OURS else RELEASES[version].packages
                cells[name] = replace(RELEASES[version], python=python, packages=packages, layouts={}, gap=GAPS.get(name, ""))
    cells |= {name: Cell(commit=commit) for name, commit in UNRELEASED.items()}
    for version in WHEELS:
        cells[f"{version}@wheel"] = Cell(change=EOD_APART if version < "0.18" else {}, wheel=True, gap=GAPS.get(f"{version}@wheel", ""))
    for version in LAST:
        of_family = RELEASES[version].change | (WITHOUT_ROPE_TYPE if version < "0.14" else {})
        cells[f"{version}:{LATENT}"] = Cell(change=of_family, layouts={}, family=LATENT)
    return cells


CELLS = _cells()
"""Name of a row to what it needs."""


def prove(name: str, repository: str, reference: Path) -> Result:
    """The result of one cell; what did not work out is its gap."""
    result = unproven("megatron", re.split("[:@]", name)[0], CELLS[name].python, name)
    try:
        train_and_judge(name, repository, reference, result)
    except Failed as reason:
        result["gap"] = str(reason)
    return result


def train_and_judge(name: str, repository: str, reference: Path, result: Result) -> None:
    """Fill ``result`` as far as things go; raises Failed at the first that does not."""
    cell, where, corpus = CELLS[name], BUILD / name.replace(":", "_"), reference.parent / "corpus"
    if cell.family != "llama":
        reference = reference_of(cell.family, corpus)
    python = environment(cell.python, cell.packages, BUILD / f"python{cell.python}")
    source = obtained(result["version"], repository, where / "checkout", wheel=cell.wheel, commit=cell.commit)
    before = digests(source)
    result["packages"] = versions(python, NUMBERS) | ({} if cell.wheel else {"Megatron-LM": git(source, "rev-parse", "HEAD")})
    script = source / "pretrain_gpt.py"
    for run, variables in (("plain", {}), ("recorded", EVERYTHING | {"RUN": where / "recorded" / "run"})):
        witness = {"WITNESS": str(where / run / "witness.npz")}
        pretrain(python, where / run, [WITNESS, script], corpus, variables, cell.change, witness, family=cell.family)
    fed = EVERYTHING | {"RUN": where / "candidate" / "run", "REPLAY_BATCHES": reference, "LOAD_WEIGHTS": reference, "SEED": "7"}
    pretrain(python, where / "candidate", [script], corpus, fed, cell.change, family=cell.family)
    recorded, candidate = open_run(where / "recorded" / "run"), open_run(where / "candidate" / "run")
    result["packages"] |= recorded.facts.versions
    judged = judge(reference, where / "candidate" / "run")
    result |= {"verdict": judged["verdict"], "worst": judged["worst"]}
    proofs = {
        "record": is_whole(recorded) and is_whole(candidate),
        "load": "weights" in overridden(candidate) and judged["stages"]["initial weights"] == "same",
        "replay": "training data" in overridden(candidate) and judged["stages"]["batches"] == "same",
        "bitwise": bitwise(where / "plain" / "witness.npz", where / "recorded" / "witness.npz"),
    }
    if cell.layouts:
        proofs["sharded"] = sharded(python, where, script, corpus, fed, cell.change, cell.layouts)
    conclude(result, judged, proofs | {"unedited": digests(source) == before})


@cache
def reference_of(family: str, corpus: Path) -> Path:
    """A recorded run of the installed wheel by a family's arguments."""
    where = BUILD / f"reference_{family}"
    script = [LAUNCH / "pretrain_gpt.py"]
    pretrain(Path(sys.executable), where, script, corpus, EVERYTHING | {"RUN": where / "run"}, family=family)
    return where / "run"


def obtained(version: str, repository: str, where: Path, *, wheel: bool, commit: str) -> Path:
    """A version's source with a ``pretrain_gpt.py``, which no wheel ships: ours fits 0.19, for older wheels it is the tag's."""
    if not wheel:
        return clone(repository, f"core_v{version}", where, commit=commit)
    scripts = [SCRIPT]
    if version < OURS_FITS:
        tag = clone(repository, f"core_v{version}", where.parents[1] / f"{version}@scripts" / "checkout")
        scripts = [tag / name for name in OF_A_TAG]
    return unpack("megatron-core", version, where, scripts)


def sharded(
    python: Path, where: Path, script: Path, corpus: Path, fed: Mapping[str, object], change: Mapping[str, str | None], layouts: Layouts
) -> bool:
    """Whether two ranks in each of ``layouts`` align with the reference that they are fed from, and their records hold."""
    for name, flags in layouts.items():
        run = where / name / "run"
        pretrain(python, where / name, [script], corpus, {**fed, "RUN": run}, change, layout=flags)
        check = open_run(run).self_check
        if judge(Path(str(fed["REPLAY_BATCHES"])), run)["code"] or check.contradictions or check.steps != tuple(range(STEPS)):
            return False
    return True


def bitwise(plain: Path, recorded: Path) -> bool:
    """Whether recording changed no bit; raises Failed where a Megatron module was not the checkout's."""
    with np.load(plain) as without, np.load(recorded) as with_recording:
        if without["elsewhere"].size or with_recording["elsewhere"].size:
            raise Failed(f"modules from outside the checkout: {', '.join([*without['elsewhere'], *with_recording['elsewhere']])}")
    return is_bitwise(plain, recorded, losses=2 * STEPS)


if __name__ == "__main__":
    expected = {name: cell.gap for name, cell in CELLS.items()}
    source = os.environ.get("MEGATRON_LM_REPOSITORY", REPOSITORY)
    sys.exit(prove_rows(__doc__ or "", expected, source, prove, BUILD / "reference"))
