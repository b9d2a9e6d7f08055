"""One command a row: an unmodified Megatron-LM of any tried version, recorded, fed and judged against the wheel's run.

``python tests/matrix/megatron.py VERSION… [--repository PATH_OR_URL]`` clones each version's tag into ``build/matrix``, trains
its own ``pretrain_gpt.py`` on the CPU three times (a witness with recording off, the witness with everything recorded, and
the script itself on the weights and batches of a run of ``launch/pretrain_gpt.py``) and on two ranks in three layouts,
compares, prints a Markdown row and writes ``results/megatron-VERSION.json``. The fed runs have another seed than the rest, so
that they would have other weights and batches of their own. Run it with the project's own Python; a version that needs another
gets its own virtual environment in ``build/matrix``. Exit code 0 only where every version was proven.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import table
from checkout import Failed, clone, digests, git
from interpreter import environment, versions
from proof import conclude, is_bitwise, is_whole, judge, overridden, unproven
from reference import make_reference, pretrain
from training import BUILD, EVERYTHING, STEPS, WITNESSES

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

WITHOUT_ENGINE: Layouts = {"tensor": TENSOR, "pipeline": LAYOUTS["pipeline"], "data": ("--overlap-grad-reduce",)}
"""The same for 0.12, whose distributed optimizer asks for Transformer Engine."""


@dataclass(frozen=True)
class Version:
    """What one version needs: the Python minor version, arguments of ``llama.args`` that it reads otherwise, its jobs of two ranks."""

    python: str = "3.12"
    change: Mapping[str, str] = field(default_factory=dict)
    layouts: Layouts = field(default_factory=lambda: LAYOUTS)


PACKAGES: dict[str, tuple[str, ...]] = {
    "3.12": (),  # the project's own environment, whose wheel the checkout shadows
    "3.11": (
        *("torch==2.13.0", "numpy==1.26.4", "pybind11==3.1.0", "einops==0.8.2", "tqdm", "regex", "six", "PyYAML"),
        *("wrapt", "packaging", "safetensors", "ml_dtypes"),
    ),
}
"""What is installed beside each Python."""

EOD_APART = {"--vocab-size": "255"}
"""NullTokenizer added the end of a document to the vocabulary until it counted it in: 256 ids either way."""

VERSIONS: dict[str, Version] = {
    "0.12.0": Version("3.11", EOD_APART, WITHOUT_ENGINE),
    "0.12.1": Version("3.11", EOD_APART, WITHOUT_ENGINE),
    "0.12.2": Version("3.11", EOD_APART, WITHOUT_ENGINE),
    "0.12.3": Version("3.11", EOD_APART, WITHOUT_ENGINE),
    "0.13.0": Version(change=EOD_APART),
    "0.13.1": Version(change=EOD_APART),
    "0.14.0": Version(change=EOD_APART),
    "0.15.0": Version(change=EOD_APART),
    "0.15.1": Version(change=EOD_APART),
    "0.15.2": Version(change=EOD_APART),
    "0.15.3": Version(change=EOD_APART),
    "0.16.0": Version(change=EOD_APART),
    "0.16.1": Version(change=EOD_APART),
    "0.17.0": Version(change=EOD_APART),
    "0.17.1": Version(change=EOD_APART),
    "0.18.0": Version(),
    "0.18.2": Version(),
    "0.19.0": Version(),
}
"""Every released tag in the supported range."""


def prove(version: str, repository: str, reference: Path) -> dict[str, Any]:
    """The result of one version; what did not work out is its gap."""
    result = unproven("megatron", version, VERSIONS[version].python, version)
    try:
        train_and_judge(version, repository, reference, result)
    except Failed as reason:
        result["gap"] = str(reason)
    return result


def train_and_judge(version: str, repository: str, reference: Path, result: dict[str, Any]) -> None:
    """Fill ``result`` as far as things go; raises Failed at the first that does not."""
    where, corpus = BUILD / version, reference.parent / "corpus"
    needed, change = VERSIONS[version].python, VERSIONS[version].change
    python = environment(needed, PACKAGES[needed], BUILD / f"python{needed}")
    checkout = clone(repository, f"core_v{version}", where / "checkout")
    before = digests(checkout)
    result["packages"] = versions(python, NUMBERS) | {"Megatron-LM": git(checkout, "rev-parse", "HEAD")}
    script = checkout / "pretrain_gpt.py"
    for name, variables in (("plain", {}), ("recorded", EVERYTHING | {"RUN": where / "recorded" / "run"})):
        pretrain(python, where / name, [WITNESS, script], corpus, variables, change, {"WITNESS": str(where / name / "witness.npz")})
    fed = EVERYTHING | {"RUN": where / "candidate" / "run", "REPLAY_BATCHES": reference, "LOAD_WEIGHTS": reference, "SEED": "7"}
    pretrain(python, where / "candidate", [script], corpus, fed, change)
    recorded, candidate = open_run(where / "recorded" / "run"), open_run(where / "candidate" / "run")
    result["packages"] |= recorded.manifest["versions"]
    judged = judge(reference, where / "candidate" / "run")
    result |= {"verdict": judged["verdict"], "worst": judged["worst"]}
    proofs = {
        "record": is_whole(recorded) and is_whole(candidate),
        "load": "weights" in overridden(candidate) and judged["stages"]["initial weights"] == "same",
        "replay": "training data" in overridden(candidate) and judged["stages"]["batches"] == "same",
        "bitwise": bitwise(where / "plain" / "witness.npz", where / "recorded" / "witness.npz"),
        "sharded": sharded(python, where, script, corpus, fed, change, VERSIONS[version].layouts),
        "unedited": digests(checkout) == before,
    }
    conclude(result, judged, proofs)


def sharded(
    python: Path, where: Path, script: Path, corpus: Path, fed: Mapping[str, object], change: Mapping[str, str], layouts: Layouts
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
    with np.load(plain) as one, np.load(recorded) as other:
        if one["elsewhere"].size or other["elsewhere"].size:
            raise Failed(f"modules from outside the checkout: {', '.join([*one['elsewhere'], *other['elsewhere']])}")
    return is_bitwise(plain, recorded, losses=2 * STEPS)


def main() -> int:
    """Prove the versions named on the command line, all without any."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("versions", nargs="*", metavar="VERSION", default=list(VERSIONS), help=f"of {', '.join(VERSIONS)}; all if left out")
    parser.add_argument("--repository", default=os.environ.get("MEGATRON_LM_REPOSITORY", REPOSITORY), help="a path or a URL")
    options = parser.parse_args()
    if unknown := [version for version in options.versions if version not in VERSIONS]:
        parser.error(f"no row for {', '.join(unknown)}; there are {', '.join(VERSIONS)}")
    reference = make_reference(BUILD / "reference")
    results = []
    for version in options.versions:
        result = prove(version, options.repository, reference)
        (table.RESULTS / f"megatron-{version}.json").write_text(json.dumps(result, indent=1) + "\n")
        print(table.row(result), flush=True)
        results.append(result)
    return int(any(result["gap"] for result in results))


if __name__ == "__main__":
    sys.exit(main())
