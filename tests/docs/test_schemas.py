"""The JSON that commands write is what its schemas and docs/json.md say, and nothing else."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from align_hooks import compare
from align_hooks.cli import main
from docs import schemas
from golden.write import cases, other_forward
from synthetic import LAUNCH, Synthetic, by_hand, routed, scalars_only


def strict(schema: Any) -> Any:
    """A schema that knows no key but those it names: a key that nobody wrote down is then an error."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(part) for key, part in schema.items()}
    return made | {"additionalProperties": False} if "properties" in made and made.get("type") == "object" else made


def wrong(name: str, content: object) -> list[str]:
    """What a command's schema says is wrong with a content, and where."""
    errors = Draft202012Validator(strict(schemas.schema(name))).iter_errors(content)
    return [f"{'/'.join(map(str, error.absolute_path))}: {error.message[:200]}" for error in errors]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of many kinds."""
    here, run = tmp_path_factory.mktemp("json"), Synthetic()
    run.model |= {"rms_norm_eps": 1e-5}
    run.facts = {"framework": "Megatron-LM", "arguments": {"num_layers": 1, "hidden_size": 4}, "versions": {"megatron-core": "0.19.0"}}
    run.write(here / "reference")
    run.drifted().write(here / "honest")
    run.drifted(1e-5).write(here / "noise")
    faulty = other_forward(run)
    faulty.facts = deepcopy(run.facts) | {"arguments": {"num_layers": 2, "hidden_size": 4}}
    faulty.write(here / "faulty")
    infinite = deepcopy(run)
    infinite.rows[1] |= {"loss": float("nan"), "grad_norm": float("inf")}
    infinite.write(here / "infinite")
    Synthetic(ended=None).write(here / "killed")
    scalars_only().write(here / "scalars")
    routed("routing").write(here / "experts")
    by_hand(here / "hand")
    return here


LINES = {
    "compare": [
        "reference honest --noise noise",
        "reference faulty",
        "reference infinite",
        "reference killed",
        "reference scalars",
        "reference experts",
        "experts experts",
        "hand hand",
        "reference.zip honest",
    ],
    "show": ["reference", "faulty", "infinite", "killed", "scalars", "experts", "hand", "reference.zip", "reference --verify"],
    "check": ["reference faulty", "reference honest", "reference.zip reference", "ARGS YAML", "reference YAML"],
    "accept": ["reference honest", "reference faulty --noise noise", "reference infinite"],
    "watch": ["reference honest --every 0.1", "reference faulty --every 0.1", "reference killed --noise noise --every 0.1 --patience 0"],
}


def called(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["align-hooks", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


@pytest.mark.parametrize(("command", "line"), [(command, line) for command, lines in LINES.items() for line in lines])
def test_what_a_command_writes_is_what_its_schema_says(
    command: str, line: str, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(here)
    if "reference.zip" in line:
        assert called(monkeypatch, "distill", "reference", "reference.zip") == 0
    words = [{"ARGS": str(LAUNCH / "llama.args"), "YAML": str(LAUNCH / "llama.yaml")}.get(word, word) for word in line.split()]
    code = called(monkeypatch, command, *words, "--json", str(tmp_path / "out.json"))
    content = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert wrong(command, content) == [], capsys.readouterr()
    assert content["exit_code"] == code
    assert list(content) == list(schemas.schema(command)["$defs"][schemas.DOCUMENTS[command].__name__]["properties"])


def test_the_golden_cases_are_what_the_schema_says(tmp_path: Path) -> None:
    for name, *runs in cases():
        paths = [run.write(tmp_path / name / str(index)) for index, run in enumerate(runs) if run is not None]
        assert wrong("compare", compare(*paths[:2], noise=paths[2:]).to_dict()) == [], name


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: content.update(more=1),
        lambda content: content.pop("eps"),
        lambda content: content.update(verdict="alligned"),
        lambda content: content["stages"][0].update(more=1),
        lambda content: content["stages"][3].pop("findings"),
        lambda content: content["runs"][0].update(steps="3"),
        lambda content: content.update(eps="infinity"),
    ],
)
def test_another_key_or_value_would_be_noticed(spoil: Callable[[dict[str, Any]], object], here: Path) -> None:
    content = compare(here / "reference", here / "honest").to_dict()
    assert wrong("compare", content) == []
    spoil(content)
    assert len(wrong("compare", content)) == 1


@pytest.mark.parametrize("name", schemas.DOCUMENTS)
def test_a_schema_is_one_and_describes_every_key(name: str) -> None:
    made = schemas.schema(name)
    Draft202012Validator.check_schema(made)
    for title, kind in made["$defs"].items():
        assert kind["description"], title
        undescribed = [key for key, value in kind["properties"].items() if not schemas.described(value, made["$defs"])]
        assert undescribed == []


def test_schemas_and_page_are_made_from_the_code() -> None:
    """``python tests/docs/schemas.py`` writes them."""
    assert {path.name: path.read_text(encoding="utf-8") for path in schemas.FOLDER.iterdir()} == {
        f"{name}.json": schemas.text(name) for name in schemas.DOCUMENTS
    }
    assert schemas.PAGE.read_text(encoding="utf-8") == schemas.page()
