"""A card says what a comparison showed, and its check names whatever is no longer so."""

import json
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from align_hooks.cli import app
from align_hooks.record.format.digests import opened, seal
from align_hooks.record.format.layout import is_file_of_record
from align_hooks.scenarios.card import HEAD, SEAL, at_places, is_sealed, read_card, text_of
from invoked import Result, invoke
from scenarios.trained import Trained
from synthetic import Synthetic


def certify(*words: object) -> Result:
    """What ``align-hooks certify`` prints."""
    return invoke(app, ["certify", *map(str, words)], {"COLUMNS": "200"})


def checked(card: Path, *words: object) -> tuple[int, dict[str, str]]:
    """The exit code of a check, and the place of whatever is no longer so to what it is."""
    said = card.with_suffix(".json")
    done = certify("--verify", card, "--json", said, *words)
    assert done.exception is None, done.exception
    return done.exit_code, {each["place"]: each["now"] for each in json.loads(said.read_text())["departures"]}


@pytest.fixture
def card(tmp_path: Path) -> Path:
    """The card of a pair that agrees, beside its records."""
    facts = {
        "framework": "Megatron-LM",
        "versions": {"megatron-core": "0.19.2"},
        "device": "NVIDIA H200",
        "commits": {"megatron.core": "a" * 40},
    }
    for name in ("reference", "candidate"):
        Synthetic(facts=facts).write(tmp_path / name)
    file = tmp_path / "card.yaml"
    done = certify(tmp_path / "reference", tmp_path / "candidate", "--card", file)
    assert (done.exit_code, done.exception) == (0, None), done.output
    return file


def test_a_card_says_what_its_comparison_showed_and_holds(card: Path) -> None:
    said = yaml.safe_load(card.read_text())
    item = said["items"]["candidate"]
    assert (item["status"], item["precision"], item["candidate"]["device"]) == ("verified", "float32", "NVIDIA H200")
    assert item["reference"]["versions"] == {"megatron-core": "0.19.2"}
    gradients = item["stages"]["gradients"]
    assert (gradients["of"], gradients["step"], gradients["error"], gradients["unit"]) == ("model.embed_tokens.weight", 0, 0.0, "relative")
    assert gradients["limit"] > 0
    assert {stage["status"] for stage in item["stages"].values()} <= {"same", "not compared"}
    assert checked(card) == (0, {})
    assert card.stat().st_size < 20_000


def test_any_letter_of_a_card_that_is_changed_is_noticed(card: Path) -> None:
    text = card.read_text()
    assert is_sealed(text)
    body = text[: text.rindex(SEAL)]
    changed = [body[:at] + ("1" if letter != "1" else "2") + body[at + 1 :] + text[len(body) :] for at, letter in enumerate(body)]
    assert not any(map(is_sealed, changed))


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("items", "candidate", "stages", "gradients", "limit"), 0.5),
        (("items", "candidate", "stages", "gradients", "status"), "not compared"),
        (("items", "candidate", "metrics", "initial_loss"), 1.0),
        (("items", "candidate", "candidate", "versions", "megatron-core"), "0.19.3"),
        (("items", "candidate", "reference", "device"), "Ascend910B3"),
        (("items", "candidate", "reference", "commits", "megatron.core"), "b" * 40),
        (("items", "candidate", "candidate", "digests", "scalars"), "0" * 32),
        (("items", "candidate", "candidate", "steps"), 100),
        (("items", "candidate", "precision"), "bfloat16"),
        (("items", "candidate", "expected_result"), "aligned: all of it"),
        (("model", "model_type"), "qwen3"),
        (("align_hooks",), "9.9"),
    ],
)
def test_what_was_changed_in_a_card_and_sealed_again_is_named(where: tuple[str, ...], value: object, card: Path) -> None:
    text = card.read_text()
    values = yaml.safe_load(text)
    del values["digest"]
    inner = values
    for key in where[:-1]:
        inner = inner[key]
    assert inner[where[-1]] != value
    inner[where[-1]] = value
    card.write_text(text_of(read_card(yaml.safe_dump(values, sort_keys=False), "card")))
    assert is_sealed(card.read_text())
    code, found = checked(card)
    assert (code, [*found]) == (1, [".".join(where)])


def test_a_byte_of_any_file_that_is_changed_is_named(card: Path) -> None:
    record = card.parent / "candidate"
    files = sorted(path for path in record.rglob("*") if path.is_file() and is_file_of_record(str(path.relative_to(record))))
    assert len(files) > 15
    for file in files:
        content = file.read_bytes()
        file.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
        code, found = checked(card)
        name = str(file.relative_to(record))
        assert code == 1, name
        assert any(name in place or name in now for place, now in found.items()), (name, found)
        file.write_bytes(content)
    assert checked(card) == (0, {})


@pytest.mark.parametrize(("key", "value"), [("device", "Ascend910B3"), ("versions", {"megatron-core": "0.20.0"})])
def test_a_record_that_was_trained_otherwise_is_named(key: str, value: object, card: Path) -> None:
    file = card.parent / "candidate/run.json"
    facts = opened(file.read_bytes()) | {key: value}
    file.write_bytes(seal(json.dumps(facts, indent=1).encode()))
    code, found = checked(card)
    changed = "device" if key == "device" else "versions.megatron-core"
    assert (code, {*found}) == (1, {f"items.candidate.candidate.{changed}", "items.candidate.candidate.digests.facts"})


def test_runs_that_do_not_agree_get_no_card(tmp_path: Path) -> None:
    Synthetic().write(tmp_path / "reference")
    other = Synthetic()
    for row in other.rows:
        row["loss"] += 0.5
    other.write(tmp_path / "candidate")
    done = certify(tmp_path / "reference", tmp_path / "candidate", "--card", tmp_path / "card.yaml")
    assert "are not shown to agree: diverged: " in str(done.exception)
    done = certify(tmp_path / "reference", tmp_path / "reference", "--card", tmp_path / "card.yaml")
    assert "are not shown to agree" in str(done.exception)  # a run agrees with itself whatever it is
    assert not (tmp_path / "card.yaml").exists()


def test_a_card_gains_items_and_what_another_wrote_is_left(card: Path) -> None:
    where = card.parent
    Synthetic().write(where / "tp2")
    Synthetic().write(where / "again")
    assert certify(where / "reference", where / "tp2", "--card", card, "--noise", where / "again", "--item", "two ranks").exit_code == 0
    items = read_card(card.read_text(), "card").items
    assert [*items] == ["candidate", "two_ranks"]
    assert [*items["two_ranks"].repeats] == ["1"]
    assert checked(card) == (0, {})
    (where / "notes.yaml").write_text("items: all of them\n")
    done = certify(where / "reference", where / "tp2", "--card", where / "notes.yaml")
    assert "notes.yaml is no card" in str(done.exception)
    assert (where / "notes.yaml").read_text() == "items: all of them\n"


def test_a_hub_reads_the_page(card: Path) -> None:
    page = card.with_suffix(".md").read_text()
    front = yaml.safe_load(page.split("---\n")[1])
    (model,) = front["model-index"]
    assert {metric["name"] for result in model["results"] for metric in result["metrics"]} >= {"gradients", "step_0_loss"}
    assert "align-hooks compare" in page


def test_a_record_that_is_gone_is_no_departure(card: Path) -> None:
    (card.parent / "candidate").rename(card.parent / "elsewhere")
    done = certify("--verify", card)
    assert "candidate is not there" in str(done.exception)
    assert "--again" in str(done.exception)


@pytest.mark.parametrize("text", ["", "a: [", "items: {a: 1}", "!!python/object:os.system {}", HEAD])
def test_what_is_no_card_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "card.yaml").write_text(text)
    done = certify("--verify", tmp_path / "card.yaml")
    assert "card.yaml" in str(done.exception)


@pytest.fixture
def of_trainings(trained: Trained) -> Path:
    """A card of two trainings whose commands are on record."""
    _, said = trained.solve("device=CPU", "device=CPU", "--trials", "1")
    assert said["steps"][0]["verdict"] == "aligned"
    runs = trained.folder / "runs"
    file = trained.folder / "card.yaml"
    assert certify(runs / "reference", runs / "candidate", "--card", file).exit_code == 0
    return file


def test_a_card_is_made_again_by_its_commands(of_trainings: Path, trained: Trained) -> None:
    folder = trained.folder / "again"
    assert checked(of_trainings, "--again", folder) == (0, {})
    assert trained.made == ["reference", "candidate"] * 2
    assert checked(of_trainings, "--again", folder) == (0, {})
    assert trained.made == ["reference", "candidate"] * 2  # what is there is not trained again
    settings = json.loads((folder / "candidate/candidate/run.json").read_bytes())["settings"]
    assert settings["load_weights"] == f"{folder}/candidate/reference@0"


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (("device=CPU", "device=GPU"), "device"),
        (('"torch"', '"torch"  # another framework\nrecord["facts"] = {"versions": {"torch": "3.0"}}'), "versions.torch"),
    ],
)
def test_what_no_longer_holds_of_new_trainings_is_named(change: tuple[str, str], place: str, of_trainings: Path, trained: Trained) -> None:
    if place == "device":
        of_trainings.write_text(of_trainings.read_text().replace(*change))
    else:
        script = trained.folder / "trains.py"
        script.write_text(script.read_text().replace("**given}", '**given, "versions": {"torch": "3.0"}}'))
    code, found = checked(of_trainings, "--again", trained.folder / "again")
    assert code == 1
    assert {*found} == {f"items.candidate.{side}.{place}" for side in ("reference", "candidate")}


def test_new_trainings_that_part_are_named(of_trainings: Path, trained: Trained) -> None:
    script = trained.folder / "trains.py"
    script.write_text(script.read_text().replace('if "wrong" in what', 'if run.name == "candidate"'))
    code, found = checked(of_trainings, "--again", trained.folder / "again")
    assert (code, [*found]) == (1, ["items.candidate"])


def test_new_trainings_that_part_together_are_named(of_trainings: Path, trained: Trained) -> None:
    script = trained.folder / "trains.py"
    script.write_text(script.read_text().replace('if "wrong" in what', "if True"))
    code, found = checked(of_trainings, "--again", trained.folder / "again")
    assert (code, {*found}) == (1, {f"items.candidate.metrics.{name}" for name in ("initial_loss", "reference_initial_loss")})


def test_a_training_that_fails_is_an_error(of_trainings: Path, trained: Trained) -> None:
    script = trained.folder / "trains.py"
    script.write_text("raise SystemExit('no card is free')")
    done = certify("--verify", of_trainings, "--again", trained.folder / "again")
    assert "was not recorded (exit code 1): no card is free" in str(done.exception)


def test_places_of_a_line_are_moved_and_nothing_else() -> None:
    line = (
        "ALIGN_HOOKS_RUN=runs/b ALIGN_HOOKS_LOAD_WEIGHTS=runs/a@0 ALIGN_HOOKS_TEACHER='other place@1' align-hooks run -- bash runs/a 'x y'"
    )
    moved = at_places(line, {"/d/runs/a": Path("/new place/a"), "/d/runs/b": Path("/b")}, "/d")
    settings = "ALIGN_HOOKS_RUN=/b ALIGN_HOOKS_LOAD_WEIGHTS='/new place/a@0' ALIGN_HOOKS_TEACHER='other place@1'"
    assert moved == f"{settings} align-hooks run -- bash runs/a 'x y'"
    assert shlex.split(moved)[-1] == "x y"
    assert subprocess.run(["bash", "-n", "-c", moved], check=False).returncode == 0
