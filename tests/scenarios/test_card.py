"""A card says what a comparison showed, and its check names whatever is no longer so."""

import json
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from align_hooks.cli import app
from align_hooks.errors import RecordError
from align_hooks.messages.catalogue import speaking
from align_hooks.record.format.digests import opened, seal, xxh3
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


def test_a_card_that_was_edited_or_added_to_is_noticed(card: Path) -> None:
    text = card.read_text()
    assert is_sealed(text)
    other_end = text[:-2] + ("1\n" if text[-2] == "0" else "0\n")
    assert not any(map(is_sealed, (text.replace("llama", "qwen3", 1), other_end, f"{text}\n", text.replace("\n", "\r\n"), "")))


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
    assert "\n# card\n" in page


def test_a_record_that_is_gone_is_named_and_the_others_are_checked(card: Path) -> None:
    where = card.parent
    Synthetic().write(where / "second")
    assert certify(where / "reference", where / "second", "--card", card).exit_code == 0
    (where / "candidate").rename(where / "elsewhere")
    file = where / "second" / "scalars" / "rank_0.jsonl"
    file.write_bytes(file.read_bytes().replace(b"9.0", b"9.5", 1))
    code, found = checked(card)
    assert (code, {*found}) == (1, {"items.candidate", "items.second"})
    assert "is not a directory" in found["items.candidate"]


@pytest.mark.parametrize("text", ["", "a: [", "items: {a: 1}", "!!python/object:os.system {}", HEAD])
def test_what_is_no_card_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "card.yaml").write_text(text)
    done = certify("--verify", tmp_path / "card.yaml")
    assert isinstance(done.exception, RecordError)
    assert "card.yaml is no card: " in str(done.exception)


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


@pytest.mark.parametrize(("change", "place"), [("device=GPU", "device"), ('"versions": {"torch": "3.0"}', "versions.torch")])
def test_what_no_longer_holds_of_new_trainings_is_named(change: str, place: str, of_trainings: Path, trained: Trained) -> None:
    """The device is what the card's own commands say; the version is one that was installed since."""
    if place == "device":
        of_trainings.write_text(of_trainings.read_text().replace("device=CPU", change))
    else:
        script = trained.folder / "trains.py"
        script.write_text(script.read_text().replace("**given}", f"**given, {change}}}"))
    code, found = checked(of_trainings, "--again", trained.folder / "again")
    edited = {"digest"} if place == "device" else set()
    assert (code, {*found}) == (1, edited | {f"items.candidate.{side}.{place}" for side in ("reference", "candidate")})


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
    assert "was not recorded: the line ended with exit code 1: no card is free" in str(done.exception)


def resealed(card: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a card and seal it again, as a forger does."""
    values = yaml.safe_load(card.read_text())
    del values["digest"]
    change(values)
    body = HEAD + yaml.safe_dump(values, sort_keys=False)
    card.write_text(f"{body}{SEAL}{xxh3(body.encode())}\n")


def renamed(name: str) -> Callable[[dict[str, Any]], object]:
    """Give the card's item another name."""

    def change(values: dict[str, Any]) -> None:
        values["items"] = {name: values["items"]["candidate"]}

    return change


@pytest.mark.parametrize(
    "change",
    [
        renamed("../../elsewhere"),
        renamed("a.b"),
        renamed(""),
        lambda values: values.update(items={}),
        lambda values: values.update(certified_by="nobody"),
        lambda values: values["items"]["candidate"]["candidate"].update(cards=4096),
        lambda values: values["items"]["candidate"].update(last_verified="today"),
        lambda values: values["items"]["candidate"]["candidate"].update(path=values["items"]["candidate"]["reference"]["path"]),
        lambda values: values["items"]["candidate"].update(repeats={"../x": values["items"]["candidate"]["candidate"]}),
        lambda values: values["items"]["candidate"]["stages"]["gradients"].update(limit="x"),
    ],
)
def test_what_certify_does_not_write_is_no_card(change: Callable[[dict[str, Any]], object], card: Path) -> None:
    resealed(card, change)
    done = certify("--verify", card, "--again", card.parent / "again")
    assert isinstance(done.exception, RecordError), done.output
    assert "is no card" in str(done.exception)
    assert not (card.parent / "again").exists()


@pytest.mark.parametrize("name", ["summary", "path", "notes", "metrics", "step", "digests"])
def test_no_name_of_an_item_hides_what_was_changed(name: str, card: Path) -> None:
    resealed(card, forged(name))
    code, found = checked(card)
    assert (code, {*found}) == (1, {"summary", f"items.{name}.candidate.device"})


def test_another_version_may_say_the_same_in_other_words_and_no_other_numbers(card: Path) -> None:
    def change(values: dict[str, Any]) -> None:
        values["align_hooks"], values["summary"] = "0.0.1", "one pair agrees"
        values["items"]["candidate"]["stages"]["gradients"] |= {"compared": "all of them", "limit": 0.5}

    resealed(card, change)
    assert checked(card) == (0, {})
    resealed(card, lambda values: values["items"]["candidate"]["stages"]["gradients"].update(error=1e-9))
    assert checked(card) == (1, {"items.candidate.stages.gradients.error": "0.0"})


def test_noise_that_was_measured_is_on_the_card(card: Path) -> None:
    where = card.parent
    Synthetic().drifted(1e-5).write(where / "noise")
    assert certify(where / "reference", where / "candidate", "--noise", where / "noise", "--card", where / "n.yaml").exit_code == 0
    stages = read_card((where / "n.yaml").read_text(), "n").items["candidate"].stages
    assert {id for id, stage in stages.items() if stage.noise is not None} >= {"gradients", "local_norms", "token_losses"}


def test_what_the_environment_or_an_earlier_record_changes_of_new_trainings_is_named(of_trainings: Path, trained: Trained) -> None:
    folder = trained.folder / "again"
    assert checked(of_trainings, "--again", folder) == (0, {})
    resealed(
        of_trainings,
        lambda values: values["items"]["candidate"].update(
            commands=[
                line.replace("ALIGN_HOOKS_SKETCHES=all", "ALIGN_HOOKS_SKETCHES=0") for line in values["items"]["candidate"]["commands"]
            ]
        ),
    )
    code, found = checked(of_trainings, "--again", folder)
    assert (code, {*found}) == (1, {"items.candidate.commands.1", "items.candidate.commands.2"})


def test_a_check_takes_a_card_alone(card: Path) -> None:
    assert "takes a card alone" in str(certify(card.parent / "reference", card.parent / "candidate", "--verify", card).exception)


def forged(name: str) -> Callable[[dict[str, Any]], object]:
    """Give the card's item another name, and claim more than was shown."""

    def change(values: dict[str, Any]) -> None:
        renamed(name)(values)
        values["items"][name]["candidate"]["device"] = "forged"
        values["summary"] = "12 pairs agree"

    return change


@pytest.mark.parametrize("name", ["path", "notes"])
def test_no_name_of_an_item_hides_what_new_trainings_show(name: str, of_trainings: Path, trained: Trained) -> None:
    resealed(of_trainings, forged(name))
    code, found = checked(of_trainings, "--again", trained.folder / "again")
    assert (code, {*found}) == (1, {f"items.{name}.candidate.device"})


@pytest.mark.parametrize(
    "command",
    [
        "'",
        "rm -rf x",
        "ALIGN_HOOKS_RUN=a align-hooks compare",
        "ALIGN_HOOKS_SEED=1 align-hooks run -- true",
        "'a;b=1' ALIGN_HOOKS_RUN=a align-hooks run -- true",
        "a\0b",
    ],
)
def test_a_line_that_certify_does_not_write_is_not_run(command: str, of_trainings: Path, trained: Trained) -> None:
    resealed(of_trainings, lambda values: values["items"]["candidate"].update(commands=[command] * 3))
    done = certify("--verify", of_trainings, "--again", trained.folder / "again")
    assert "no line of certify" in str(done.exception)
    assert trained.made == ["reference", "candidate"]


def test_a_first_loss_is_judged_by_the_limit_of_the_new_runs(of_trainings: Path, trained: Trained) -> None:
    def change(values: dict[str, Any]) -> None:
        item = values["items"]["candidate"]
        item["metrics"] |= {"initial_loss": 1.0, "reference_initial_loss": 1.0}
        item["stages"]["step_0_loss"]["limit"] = 1e9

    resealed(of_trainings, change)
    _, found = checked(of_trainings, "--again", trained.folder / "again")
    assert {*found} == {f"items.candidate.metrics.{name}" for name in ("initial_loss", "reference_initial_loss")}


def test_a_training_that_ends_with_an_error_is_one(of_trainings: Path, trained: Trained) -> None:
    script = trained.folder / "trains.py"
    script.write_text(script.read_text() + "\nsys.exit(7)\n")
    done = certify("--verify", of_trainings, "--again", trained.folder / "again")
    assert "ended with exit code 7" in str(done.exception)


def test_nothing_that_is_no_page_of_ours_is_overwritten(card: Path) -> None:
    where = card.parent
    (where / "README.md").write_text("mine")
    for name, said in (("README.yaml", "is no page of a card"), ("card.md", "ends in .yaml"), ("card", "ends in .yaml")):
        done = certify(where / "reference", where / "candidate", "--card", where / name)
        assert said in str(done.exception)
    assert (where / "README.md").read_text() == "mine"
    assert not (where / "README.yaml").exists()
    assert certify(where / "reference", where / "candidate", "--card", card).exit_code == 0  # the same again


def test_an_item_of_other_runs_is_not_replaced_and_an_edited_card_gains_none(card: Path) -> None:
    where = card.parent
    Synthetic().write(where / "other" / "candidate")
    other = where / "reference", where / "other" / "candidate"
    assert "--item" in str(certify(*other, "--card", card).exception)
    assert certify(*other, "--card", card, "--item", "second").exit_code == 0
    Synthetic(model={"model_type": "qwen3", "hidden_size": 4}).write(where / "q")
    Synthetic(model={"model_type": "qwen3", "hidden_size": 4}).write(where / "r")
    assert "is of another model" in str(certify(where / "q", where / "r", "--card", card).exception)
    card.write_text(card.read_text().replace("NVIDIA H200", "GB300"))
    assert "was edited since it was written" in str(certify(*other, "--card", card, "--item", "third").exception)


def test_a_record_with_a_changed_byte_gets_no_card(card: Path) -> None:
    file = card.parent / "candidate" / "step_1" / "rank_0" / "gradients.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\xff")
    done = certify(card.parent / "reference", card.parent / "candidate", "--card", card.parent / "second.yaml")
    assert "gradients.safetensors" in str(done.exception)
    assert not (card.parent / "second.yaml").exists()


def test_a_card_holds_in_any_language_and_directory(card: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    with speaking("zh_CN"):
        assert checked(card) == (0, {})


@pytest.mark.parametrize("name", ["cpu", "42", "all", "runs@2", "it's here"])
def test_no_name_of_a_run_spoils_its_commands(name: str, tmp_path: Path) -> None:
    places = tmp_path / "reference", tmp_path / name
    Synthetic(settings={"batches": "all", "local_norms": "all", "seed": "42", "device": "cpu"}).write(places[0])
    Synthetic(settings={"batches": "all", "local_norms": "all", "replay_batches": str(places[0])}).write(places[1])
    card = tmp_path / "card.yaml"
    done = certify(*places, "--card", card)
    assert done.exit_code == 0, done.output
    first, second = (shlex.split(line) for line in read_card(card.read_text(), "card").items.popitem()[1].commands[:2])
    assert {"ALIGN_HOOKS_SEED=42", "ALIGN_HOOKS_DEVICE=cpu", "ALIGN_HOOKS_BATCHES=all", f"ALIGN_HOOKS_RUN={places[0]}"} <= {*first}
    assert {f"ALIGN_HOOKS_RUN={places[1]}", f"ALIGN_HOOKS_REPLAY_BATCHES={places[0]}@all"} <= {*second}


def test_a_copy_of_the_candidate_measures_no_noise(card: Path) -> None:
    where = card.parent
    shutil.copytree(where / "candidate", where / "copy")
    done = certify(where / "reference", where / "candidate", "--noise", where / "copy", "--card", where / "second.yaml")
    assert "are not shown to agree" in str(done.exception)


def test_places_of_a_line_are_moved_and_nothing_else() -> None:
    line = (
        "ALIGN_HOOKS_RUN=runs/b ALIGN_HOOKS_LOAD_WEIGHTS=runs/a@0 ALIGN_HOOKS_TEACHER='other place@1' align-hooks run -- bash runs/a 'x y'"
    )
    moved = at_places(line, Path("/own@2"), {"/d/runs/a": Path("/new place/a"), "/d/runs/b": Path("/b")}, "/d")
    settings = "ALIGN_HOOKS_RUN=/own@2 ALIGN_HOOKS_LOAD_WEIGHTS='/new place/a@0' ALIGN_HOOKS_TEACHER='other place@1'"
    assert moved == f"{settings} align-hooks run -- bash runs/a 'x y'"
    assert shlex.split(moved)[-1] == "x y"
    assert subprocess.run(["bash", "-n", "-c", moved], check=False).returncode == 0
