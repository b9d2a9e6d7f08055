"""The doctor on the real frameworks: what it finds is what a run finds."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from align_hooks import open_run
from align_hooks.configuration.source import read
from align_hooks.doctor.shapes import Shapes, shapes
from align_hooks.doctor.size import of_configuration, of_run
from align_hooks.hooking.attach import installed_version
from align_hooks.ms_side.catalogue import HOOKS as MS_HOOKS
from align_hooks.record.reader import Run
from align_hooks.torch_side.catalogue import HOOKS as TORCH_HOOKS
from real import frameworks
from real.frameworks import LAUNCH, TIMEOUT


def doctor(where: Path, *words: str, **variables: object) -> tuple[int, str, dict[str, Any]]:
    """Exit code, text and JSON of ``align-hooks doctor``."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ALIGN_HOOKS_")}
    asked = {f"ALIGN_HOOKS_{name}": str(value) for name, value in variables.items()}
    command = [sys.executable, "-m", "align_hooks", "doctor", *words, "--json", str(where / "doctor.json")]
    done = subprocess.run(command, cwd=where, env=kept | asked, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout, json.loads((where / "doctor.json").read_text())


@pytest.mark.slow
def test_a_machine_that_is_ready(tmp_path: Path, reference: Path) -> None:
    """Every patch point of the installed frameworks is found, and what a record says of its size is held against the disk."""
    fed = frameworks.fed_by(reference)
    code, text, report = doctor(tmp_path, DEVICE="cpu", RUN=tmp_path / "run", LOCAL_NORMS="all", WEIGHTS="0-3", **fed)
    assert (code, text.splitlines()[0]) == (0, "ready: Megatron-LM and MindFormers"), text
    states = {hook["name"]: hook["state"] for framework in report["frameworks"] for hook in framework["hooks"]}
    absent = dict.fromkeys(["rehearsal_fused_kernels", "mindspeed"], "not there")
    assert states == {hook.name: "found" for hook in (*TORCH_HOOKS, *MS_HOOKS)} | absent
    assert not (tmp_path / "run").exists()  # it claims nothing
    assert "21 tensors" in " ".join(text.split())
    assert "4 times 107 k parameters in fp32" in " ".join(text.split())


def test_the_size_that_a_configuration_describes_is_that_of_the_built_model(reference: Path) -> None:
    recorded = of_run(open_run(reference))
    for name in ("llama.args", "llama.yaml"):
        described = of_configuration(read(str(LAUNCH / name), {}))
        assert (described.elements, described.tokens, described.parts) == (recorded.elements, recorded.tokens, recorded.parts)


BUILT: dict[str, tuple[dict[str, str | None], tuple[str, ...]]] = {
    "grouped": ({}, ()),
    "padded": ({"--vocab-size": "1000", "--make-vocab-size-divisible-by": "128"}, ()),
    "tied and padded, a group a head, heads of their own size": (
        {"--vocab-size": "1000", "--kv-channels": "24"}
        | dict.fromkeys(("--untie-embeddings-and-output-weights", "--group-query-attention", "--num-query-groups", "--ffn-hidden-size")),
        (),
    ),
    "experts": ({}, ("--num-experts", "4", "--moe-router-topk", "2", "--moe-ffn-hidden-size", "96")),
}


def same(described: Shapes, run: Run) -> None:
    """Whole shapes by canonical name are those that a built model recorded, and none is unknown."""
    recorded = {shard.name: shard.shape for rank in run.manifests for shard in run.shards(rank)}
    assert (described.whole, described.unknown, described.padded) == (recorded, frozenset(), run.facts.padded_vocabulary)


def arguments(where: Path, change: dict[str, str | None], flags: tuple[str, ...]) -> str:
    """``launch/llama.args`` changed as :func:`frameworks.megatron` changes it."""
    path = where / "llama.args"
    path.write_text(" ".join([*frameworks.arguments(where, change), *flags]))
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILT)
def test_the_shapes_that_a_script_describes_are_those_of_the_built_model(name: str, tmp_path: Path) -> None:
    change, flags = BUILT[name]
    trained = frameworks.kept(frameworks.megatron, change=change | {"--train-iters": "1"}, flags=flags, RUN="run")
    described = shapes(read(arguments(tmp_path, change, flags), {}), "", megatron=installed_version("megatron-core") or "")
    same(described, open_run(trained.run))


OLDER: dict[str, dict[str, object]] = {
    "grouped": {},
    "tied, a group a head, a computed size": {
        "tie_word_embeddings": True,
        "multiple_of": 48,
        "n_kv_heads": None,
        "intermediate_size": None,
    },
    "padded beyond what feeds it, and a name that is not read": {"vocab_size": 264, "head_dim": 32},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OLDER)
def test_the_shapes_that_a_yaml_describes_are_those_of_the_built_model(name: str, reference: Path) -> None:
    change = {f"model.model_config.{key}": value for key, value in OLDER[name].items()}
    trained = frameworks.kept(frameworks.mindformers, change=change, RUN="run", REPLAY_BATCHES=f"{reference}@0")
    same(shapes(read(str(trained.where / "llama.yaml"), {}), "", vocabulary=256), open_run(trained.run))


@pytest.mark.slow
def test_what_does_not_fit_is_not_ready_in_the_words_of_the_run(tmp_path: Path, reference: Path) -> None:
    (tmp_path / "wide.yaml").write_text((LAUNCH / "llama.yaml").read_text().replace("hidden_size: 64", "hidden_size: 128"))
    fed = frameworks.fed_by(reference) | {"DEVICE": "cpu", "INJECT_GRADIENTS": f"{reference}@0-1"}
    assert doctor(tmp_path, str(LAUNCH / "llama.yaml"), **fed)[0] == 0
    code, text, report = doctor(tmp_path, str(tmp_path / "wide.yaml"), **fed)
    assert (code, text.splitlines()[0]) == (1, "not ready: 2 problems"), text
    refused = frameworks.mindformers(tmp_path, change={"model.model_config.hidden_size": 128}, **fed)
    (line,) = [line for line in refused.ours.splitlines() if "do not fit this model" in line]
    weights, gradients = report["problems"]
    assert weights == "ALIGN_HOOKS_LOAD_WEIGHTS: " + line.removeprefix("align_hooks: ")
    assert gradients.startswith(f"ALIGN_HOOKS_INJECT_GRADIENTS: gradients of {reference} step 0 do not fit this model: ")
