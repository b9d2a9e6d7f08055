"""One command a cell: an unmodified MindSpeed-LLM, fed and judged against the Megatron-LM that it stands on.

``python tests/matrix/mindspeed.py CELL…`` clones MindSpeed-LLM's branch, MindSpeed's and Megatron-LM's core_v0.12.1 into
``build/matrix/mindspeed``, and trains MindSpeed-LLM's own ``pretrain_gpt.py`` on the CPU with plain torch in the place of an
NPU's operators (``standin``): on the weights and batches of a recorded run of that Megatron-LM, once without a record and once
with everything recorded, or on two ranks. It proves what Python does around the operators, and nothing of these. A cell is
``VERSION:MODEL`` or ``VERSION:MODEL:LAYOUT``. Repositories are those of MEGATRON_LM_REPOSITORY, MINDSPEED_REPOSITORY and
MINDSPEED_LLM_REPOSITORY, where these are set.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from checkout import Failed, clone, digests, git, last_line
from interpreter import versions
from megatron import LAYOUTS, NUMBERS, REPOSITORY, WITNESS
from proof import conclude, is_bitwise, is_whole, judge, overridden, prove_rows, unproven
from reference import pretrain
from table import Result
from training import BUILD, EVERYTHING, ROOT, STEPS

from align_hooks import open_run

HOME = BUILD / "mindspeed"
STANDIN = Path(__file__).parent / "standin"
CORE = "core_v0.12.1"
"""The Megatron-LM of both versions."""
SOURCES = {
    "MindSpeed-LLM": ("MINDSPEED_LLM_REPOSITORY", "https://gitcode.com/Ascend/MindSpeed-LLM", "{version}"),
    "MindSpeed": ("MINDSPEED_REPOSITORY", "https://gitcode.com/Ascend/MindSpeed", "{version}_core_r0.12.1"),
    "Megatron-LM": ("MEGATRON_LM_REPOSITORY", REPOSITORY, CORE),
}
"""Name to the variable that names a clone, its address, and the branch."""
BESIDE = ("peft==0.17.1",)
"""Packages that MindSpeed-LLM 26.1 imports and ours do not need."""
OWN = {"--vocab-size": "255"}
"""NullTokenizer adds the end of a document to the vocabulary."""
FUSED = (Path(__file__).parent / "mindspeed.args").read_text().split()
"""What MindSpeed-LLM's own launch scripts of Qwen3 set beside the model."""
MODELS = {"qwen3": (), "qwen3_moe": ("--moe-grouped-gemm", "--moe-permute-fusion", "--norm-topk-prob")}
DISPATCHERS = {"qwen3": {}, "qwen3_moe": {"--moe-token-dispatcher-type": "alltoall_seq"}}
"""Model to flags, and to arguments that MindSpeed-LLM reads otherwise."""
LEFT_OUT = ("--no-rope-fusion", "--no-persist-layer-norm", "--moe-permute-fusion")
ULYSSES = ("--context-parallel-size", "2", "--context-parallel-algo", "ulysses_cp_algo")
TWO_RANKS = {"tensor": LAYOUTS["tensor"], "pipeline": LAYOUTS["pipeline"], "context": ULYSSES}
CELLS = [":".join(parts) for version in ("2.3.0", "26.1.0") for parts in ((version, "qwen3"), (version, "qwen3_moe"))]
CELLS += [f"{version}:qwen3:{layout}" for version in ("2.3.0", "26.1.0") for layout in TWO_RANKS]


@cache
def source(name: str, version: str) -> Path:
    """Return a fresh checkout of a project."""
    variable, address, branch = SOURCES[name]
    branch = branch.format(version=version)
    return clone(os.environ.get(variable, address), branch, HOME / f"{name}-{branch}" / "checkout")


@cache
def beside() -> Path:
    """Return a folder with what is imported beside ours, installed once."""
    folder = HOME / "beside"
    if not folder.exists():
        line = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), *BESIDE]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(f"pip could not install {' '.join(BESIDE)}: {last_line(done.stderr)}")
    return folder


@cache
def reference(model: str, corpus: Path) -> Path:
    """Return a recorded run of Megatron-LM itself."""
    where, script = HOME / f"reference_{model}", [source("Megatron-LM", "") / "pretrain_gpt.py"]
    pretrain(Path(sys.executable), where, script, corpus, {**EVERYTHING, "RUN": where / "run"}, OWN, family=model)
    return where / "run"


def prove(name: str, repository: str, made: Path) -> Result:
    """Return the result of one cell; what did not work out is its gap."""
    result = unproven("mindspeed", name.partition(":")[0], "3.12", name)
    try:
        train_and_judge(name, made.parent / "corpus", result)
    except Failed as reason:
        result["gap"] = str(reason)
    return result


def train(
    name: str, where: Path, corpus: Path, asked: Mapping[str, object], before: Sequence[object] = (), own: Mapping[str, str] | None = None
) -> None:
    """Train a cell with ``ALIGN_HOOKS_*`` variables; ``before`` are a script that runs MindSpeed-LLM's, and its arguments."""
    version, model, *layout = name.split(":")
    llm, mindspeed, core = (source(project, version) for project in SOURCES)
    path = os.pathsep.join(map(str, (ROOT / "src", STANDIN, mindspeed, llm, core, beside())))
    environment = {"PYTHONPATH": path, "TORCH_EXTENSIONS_DIR": str(HOME / "extensions"), **(own or {})}
    change = {**OWN, **DISPATCHERS[model], **dict.fromkeys(LEFT_OUT)}
    two, script = TWO_RANKS[layout[0]] if layout else (), [*before, llm / "pretrain_gpt.py"]
    pretrain(Path(sys.executable), where, script, corpus, asked, change, environment, two, (*FUSED, *MODELS[model]), model)


def train_and_judge(name: str, corpus: Path, result: Result) -> None:
    """Fill ``result`` as far as things go; raises Failed at the first that does not."""
    version, model, *layout = name.split(":")
    where, megatron = HOME / name.replace(":", "_"), reference(model, corpus)
    sources = [source(project, version) for project in SOURCES]
    before = list(map(digests, sources))
    result["packages"] = versions(Path(sys.executable), NUMBERS)
    for project, checkout in zip(SOURCES, sources, strict=True):
        result["packages"] |= {project: git(checkout, "rev-parse", "HEAD")}
    fed, run = {"REPLAY_BATCHES": megatron, "LOAD_WEIGHTS": megatron}, where / "recorded" / "run"
    for folder, asked in (("plain", fed), ("recorded", {**fed, **EVERYTHING, "RUN": run})):
        if folder == "recorded" or not layout:
            own = {"WITNESS": str(where / folder / "witness.npz"), "WITNESS_IMPORTS": "mindspeed_llm,mindspeed_llm.training.training"}
            train(name, where / folder, corpus, asked, [] if layout else [WITNESS], own)
    recorded = open_run(run)
    result["packages"] |= recorded.facts.versions
    judged = judge(megatron, run)
    result |= {"verdict": judged["verdict"], "worst": judged["worst"]}
    check = recorded.self_check
    proofs = {
        "record": is_whole(recorded) and not check.contradictions and check.steps == tuple(range(STEPS)),
        "load": "weights" in overridden(recorded) and judged["stages"]["initial weights"] == "same",
        "replay": "training data" in overridden(recorded) and judged["stages"]["batches"] == "same",
        "unedited": list(map(digests, sources)) == before,
    }
    if not layout:
        proofs["bitwise"] = is_bitwise(
            where / "plain" / "witness.npz", where / "recorded" / "witness.npz", losses=(1 + (model == "qwen3")) * STEPS
        )
    conclude(result, judged, proofs)


if __name__ == "__main__":
    sys.exit(prove_rows(__doc__ or "", dict.fromkeys(CELLS), "", prove, BUILD / "reference"))
