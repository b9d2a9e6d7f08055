"""Traps of some releases alone: where the version that reads a side is known, one that does not hold for it is not told."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from align_hooks.checklist import sides
from align_hooks.checklist.result import Checklist, as_read, check
from align_hooks.checklist.sides import check as check_files
from align_hooks.configuration.recorded import recorded
from align_hooks.configuration.values import MINDSPEED_LLM
from checklist.exercises import NEW, OLD, megatron, mindformers
from checklist.test_command import configuration, script

NULL = {"tokenizer-type": "NullTokenizer"}


def trapped(result: Checklist, side: int) -> set[str]:
    return {pitfall.id for pitfall in result.sides[side].pitfalls}


@pytest.mark.parametrize(
    ("version", "told"),
    [("", True), ("0.12.0", True), ("0.16.1", True), ("0.17.1", True), ("0.18.0", False), ("0.19.2", False), ("1.0", False)],
)
def test_the_id_that_the_null_tokenizer_adds(version: str, told: bool) -> None:
    result = check(megatron(OLD, NULL), mindformers(OLD, {}), megatron=version)
    assert ("pitfall.null_tokenizer" in trapped(result, 0)) is told


@pytest.mark.parametrize(("found", "told"), [("0.19.2", False), ("0.17.1", True), (None, True)])
def test_the_megatron_that_is_installed_reads_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: str | None, told: bool
) -> None:
    def version(package: str) -> str:
        if package != sides.CORE or found is None:
            raise sides.PackageNotFoundError(package)
        return found

    monkeypatch.setattr(sides, "version", version)
    one, other = script(tmp_path / "train.sh", tokenizer_type="NullTokenizer"), configuration(tmp_path / "llama.yaml")
    result = check_files(str(one), str(other), {})
    assert ("pitfall.null_tokenizer" in trapped(result, 0)) is told


def test_a_record_says_which_one_made_it() -> None:
    facts = {"side": "torch", "arguments": {"num_layers": "2"}, "versions": {"megatron-core": "0.16.1"}}
    assert as_read(recorded(facts, "run"), "1.9", "0.19.2").version == "0.16.1"


def test_which_megatron_a_fork_stands_on_is_not_known() -> None:
    assert as_read(replace(megatron(OLD, NULL), fork=MINDSPEED_LLM), "1.9", "0.19.2").version == ""


@pytest.mark.parametrize(
    ("style", "keys", "pitfall", "since"),
    [
        (OLD, {"optimizer.type": "FP32StateAdamWeightDecay"}, "pitfall.optimizer_gone", ("1.5.0", "1.6.0")),
        (NEW, {"m.hidden_dropout": None}, "pitfall.hidden_dropout", ("1.8.0", "1.9.0")),
        (NEW, {"context.deterministic": "ON"}, "pitfall.not_deterministic", ("1.8.0", "1.9.0")),
        (NEW, {"context.enable_graph_kernel": True}, "pitfall.passed_over", ("1.8.0", "1.9.0")),
    ],
)
def test_traps_of_mindformers(style: str, keys: dict[str, Any], pitfall: str, since: tuple[str, str]) -> None:
    told = [pitfall in trapped(check(megatron(style, {}), mindformers(style, keys), mindformers=version), 1) for version in since]
    assert told == [False, True]
