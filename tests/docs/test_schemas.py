"""The JSON that commands write is what its schemas and docs/json.md say, and nothing else."""

import json
from collections.abc import Callable, Iterator
from contextlib import chdir
from copy import deepcopy
from enum import Enum
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from jsonschema import Draft202012Validator

from align_hooks import compare
from align_hooks.checklist.edits import Action, Form
from align_hooks.checklist.judge import RowOutcome
from align_hooks.checklist.row import Effect, RowGroup
from align_hooks.comparison.acceptance import AcceptanceOutcome as Acceptance
from align_hooks.comparison.control_band.watching import Sign, Watched
from align_hooks.comparison.finding import Unit
from align_hooks.comparison.health import Condition
from align_hooks.comparison.stage_result import FaultLocation, Status
from align_hooks.comparison.verdict import Judgement, Verdict
from align_hooks.proof.difference import DifferenceKind
from align_hooks.proof.proof import ProofVerdict
from align_hooks.proof.ways import AGAIN, NORMS
from align_hooks.record.write.atomic import json_text
from align_hooks.report.json import as_json
from align_hooks.report.proof import JSON as PROOF
from align_hooks.scenarios.recheck import Held
from align_hooks.scenarios.trial import Solved
from docs import schemas
from golden.write import cases, other_forward
from invoked import command
from proving.sample import proof_of, trained, with_loss
from scenarios.trained import Trained, unhooked
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
    run.hooks = {"loss": {"state": "attached", "calls": 3}}
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
        *("reference honest --noise noise", "experts experts", "hand hand", "reference.zip honest"),
        *(f"reference {other}" for other in ("faulty", "infinite", "killed", "scalars", "experts")),
    ],
    "show": ["reference", "faulty", "infinite", "killed", "scalars", "experts", "hand", "reference.zip", "reference --verify"],
    "check": ["reference faulty", "reference honest", "reference.zip reference", "ARGS YAML", "reference YAML"],
    "accept": ["reference honest", "reference faulty --noise noise", "reference infinite"],
    "certify": ["--verify card.yaml", "--verify edited.yaml"],
    "watch": [
        *(f"reference {job} --every 0.1" for job in ("honest", "faulty", "infinite")),
        "reference killed --noise noise --every 0.1 --patience 0",
    ],
}
CASES = [(command, line) for command, lines in LINES.items() for line in lines]
Written: TypeAlias = "dict[tuple[str, str], tuple[int, Any]]"


@pytest.fixture(scope="module")
def written(here: Path, tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Command and line to exit code and what the command wrote."""
    out, results = tmp_path_factory.mktemp("out") / "out.json", {}
    with chdir(here):
        assert command("distill", "reference", "reference.zip").returncode == 0
        assert command("certify", "reference", "honest", "--noise", "noise", "--card", "card.yaml").returncode == 0
        Path("edited.yaml").write_text(
            Path("card.yaml").read_text(encoding="utf-8").replace("title: card", "title: another"), encoding="utf-8"
        )
        for name, line in CASES:
            words = [{"ARGS": LAUNCH / "llama.args", "YAML": LAUNCH / "llama.yaml"}.get(word, word) for word in line.split()]
            code = command(name, *words, "--json", out).returncode
            results[name, line] = code, json.loads(out.read_text(encoding="utf-8"), parse_constant=pytest.fail)
    noisy = proof_of({AGAIN.name: with_loss(2, 2.0)}, {}, fixed=True)
    for line, proof in {"equal": proof_of(), "noisy": noisy, "killed": proof_of({NORMS.name: trained(NORMS, [], 137)})}.items():
        content = json_text(as_json(proof, PROOF, align_hooks="0.1.0"))
        results["prove", line] = proof.verdict.exit_code, json.loads(content, parse_constant=pytest.fail)
    for line, ends in {"aligned": "", "found": "other_weights"}.items():
        folder = tmp_path_factory.mktemp("solve")
        with unhooked():
            done, content = Trained(folder).solve("", ends)
        results["solve", line] = done.exit_code, content
    return results


@pytest.mark.parametrize(
    ("name", "line"), [*CASES, ("prove", "equal"), ("prove", "noisy"), ("prove", "killed"), ("solve", "aligned"), ("solve", "found")]
)
def test_what_a_command_writes_is_what_its_schema_says(name: str, line: str, written: Written) -> None:
    code, content = written[name, line]
    assert wrong(name, content) == []
    assert content["exit_code"] == code


def test_every_object_is_written_with_its_keys_in_the_order_of_the_page(written: Written) -> None:
    met: set[str] = set()
    for (name, _), (_, content) in written.items():
        definitions = schemas.schema(name)["$defs"]
        for kind, value in objects({"$ref": f"#/$defs/{schemas.DOCUMENTS[name]}"}, content, definitions):
            assert list(value) == list(definitions[kind]["properties"]), kind
            met.add(kind)
    assert met == schemas.sections().keys()


def objects(schema: Any, content: Any, definitions: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a content that have a definition, with its title."""
    if "$ref" in schema and content is not None:
        title = schema["$ref"].rpartition("/")[2]
        yield title, content
        for key, held in definitions[title]["properties"].items():
            yield from objects(held, content[key], definitions)
    parts = list(content.values()) if isinstance(content, dict) else content if isinstance(content, list) else []
    for inner in (schema.get("items"), schema.get("additionalProperties")):
        for part in parts if isinstance(inner, dict) else ():
            yield from objects(inner, part, definitions)
    for inner in schema.get("anyOf", ()):
        yield from objects(inner, content, definitions)


ENUMERATIONS: dict[tuple[str, str], type[Enum]] = {
    ("ComparisonJson", "verdict"): Verdict,
    ("BlameJson", "place"): FaultLocation,
    ("StageJson", "status"): Status,
    ("FindingJson", "unit"): Unit,
    ("RowIdsJson", "group"): RowGroup,
    ("RowIdsJson", "outcome"): RowOutcome,
    ("RowIdsJson", "effect"): Effect,
    ("ChangeJson", "action"): Action,
    ("EditJson", "form"): Form,
    ("RunJson", "condition"): Condition,
    ("WatchJson", "outcome"): Watched,
    ("AlarmJson", "sign"): Sign,
    ("AcceptanceJson", "outcome"): Acceptance,
    ("ProofJson", "verdict"): ProofVerdict,
    ("TrainingJson", "verdict"): ProofVerdict,
    ("DifferenceJson", "kind"): DifferenceKind,
    ("SolveJson", "result"): Solved,
    ("SolveStepJson", "verdict"): Verdict,
    ("CheckedCardJson", "outcome"): Held,
}
"""Object and key to what it holds a member of."""


def test_every_enumeration_of_the_page_has_the_members_of_the_code() -> None:
    members = {
        place: [member.text if isinstance(member, Judgement) else member.value for member in kind] for place, kind in ENUMERATIONS.items()
    }
    assert {(kind, key): texts for kind, key, texts in schemas.enumerations()} == members


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
def test_a_schema_is_one_and_describes_every_object(name: str) -> None:
    made = schemas.schema(name)
    Draft202012Validator.check_schema(made)
    assert all(kind["description"] and kind["properties"] for kind in made["$defs"].values())


def test_schemas_are_made_of_the_page() -> None:
    """``python tests/docs/schemas.py`` writes them."""
    assert {path.name: path.read_text(encoding="utf-8") for path in schemas.FOLDER.iterdir()} == {
        f"{name}.json": schemas.text(name) for name in schemas.DOCUMENTS
    }
