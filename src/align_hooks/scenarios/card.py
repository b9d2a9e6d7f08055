"""A card: what two runs of a model were shown to agree on, in a file that anybody can check again.

It is YAML. ``title``, ``summary``, ``model.architecture``, and of each item ``status``, ``precision``, ``commands``, ``last_verified``,
``metrics`` and ``expected_result`` mean what they mean in Megatron-Bridge's model verification cards. Its last line is the digest of the
text above it: a digest shows that a file was changed, and is no signature.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct, ValidationError, convert, to_builtins

from align_hooks._version import __version__
from align_hooks.comparison.curves import side
from align_hooks.comparison.diagnosis.commands import trained_again
from align_hooks.comparison.stage_result import StageResult, Status
from align_hooks.comparison.verdict import ComparisonResult, Verdict
from align_hooks.configuration.values import ConfigurationError
from align_hooks.configuration.yaml_files import plain_values, yaml_text
from align_hooks.errors import AlignHooksError, RecordError
from align_hooks.messages import Side, rendered
from align_hooks.process import storage
from align_hooks.record.format import layout
from align_hooks.record.format.digests import xxh3, xxh3_of_pieces
from align_hooks.record.reader import Run
from align_hooks.scenarios.trial import SOURCES
from align_hooks.settings import PREFIX

FORMAT = 1
HEAD = """\
# What runs of a model were shown to agree on. To check it against their records, or to train them again:
#   align-hooks certify --verify CARD
#   align-hooks certify --verify CARD --again FOLDER
"""
SEAL = "digest: "
NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]+")
VERIFIED, JUDGED = "verified", {True: "passed", False: "failed"}
ATTACHED = " align-hooks run -- "
"""What stands between the settings of a line and the command that trains."""
DATE = re.compile(r"\d{4}-\d\d-\d\d")
TAGS = {"tags": ["align-hooks"]}
FRONT = f"---\n{yaml_text(TAGS)}"
"""How a page of ours begins."""


class StageCard(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How a stage of the comparison came out."""

    status: str
    compared: str
    """What was compared, or why nothing was."""
    of: str | None = None
    """Canonical name of what is furthest beside its limit; None where the stage has no numbers."""
    step: int | None = None
    error: float | None = None
    limit: float | None = None
    unit: str | None = None
    """What ``error`` and ``limit`` are counted in."""
    noise: float | None = None
    """Largest error of the reference's repeats in the same number; None where it was not measured."""


class RunCard(Struct, frozen=True, forbid_unknown_fields=True):
    """One run: what trained it, and its record's digests."""

    path: str
    framework: str | None
    trainer: str | None
    versions: dict[str, object]
    commits: dict[str, object]
    device: str | None
    precision: str
    ranks: int
    layout: dict[str, int]
    """Axis to size, of the axes with more than one rank."""
    steps: int
    recorded: str | None
    digests: dict[str, str]
    """Part of the record to its digest. These files hold the digests of all others."""


class ItemCard(Struct, frozen=True, forbid_unknown_fields=True):
    """What one pair of runs shows."""

    status: str
    precision: str
    commands: list[str]
    """Lines for a shell that train both runs as they were trained, and compare them."""
    last_verified: str
    """Date of the comparison, YYYY-MM-DD."""
    expected_result: str
    metrics: dict[str, float]
    """Losses by name; of ``reference_*`` the reference's, else the candidate's."""
    acceptance: dict[str, str]
    """Criterion of the guide's acceptance standard to whether it passed, and the measured value; of those that were judged."""
    notes: list[str]
    """What was not tried, and where limits are from."""
    stages: dict[str, StageCard]
    reference: RunCard
    candidate: RunCard
    repeats: dict[str, RunCard]
    """Runs of the reference on which limits were measured, by a number."""


class Card(Struct, frozen=True, forbid_unknown_fields=True):
    """The file."""

    format: int
    title: str
    summary: str
    align_hooks: str
    model: dict[str, object]
    """``architecture`` and ``model_type`` as the runs built it."""
    items: dict[str, ItemCard]


def item_of(result: ComparisonResult, runs: Sequence[Run], date: str) -> ItemCard:
    """Return what a comparison shows, of ``runs`` (reference, candidate, then repeats) with their records' digests.

    :raises AlignHooksError: the runs do not agree, or one is no record.
    """
    if result.verdict is not Verdict.ALIGNED or result.itself:
        shows = f"{result.verdict.text}: {rendered(result.headline)}"
        raise AlignHooksError(f"{runs[1].path} and {runs[0].path} are not shown to agree: {shows}; a card holds what agrees")
    reference, candidate, *repeats = (run_card(run) for run in runs)
    paths = [str(run.path) for run in runs]
    if len({*paths}) < len(paths):
        raise AlignHooksError("a run is named twice; name each once")
    roles = [Side.REFERENCE, Side.CANDIDATE, *(Side.REFERENCE for _ in repeats)]
    # a record may have been moved since another run read it
    places = {absolute(str(run.facts.settings.get("run")), run.facts.directory): run.path for run in runs}
    lines = [rendered(trained_again(role, run)) for role, run in zip(roles, runs, strict=True)]
    trained = [at_places(line, run.path, places, run.facts.directory) for line, run in zip(lines, runs, strict=True)]
    compare = shlex.join(["align-hooks", "compare", *paths[:2], *(word for path in paths[2:] for word in ("--noise", path))])
    return ItemCard(
        status=VERIFIED,
        precision=candidate.precision,
        commands=[*trained, compare],
        last_verified=date,
        expected_result=f"{result.verdict.text}: {rendered(result.headline)}",
        metrics={**losses(runs[1], ""), **losses(runs[0], "reference_")},
        acceptance={each.name: f"{JUDGED[each.passed]}: {rendered(each.value)}" for each in result.acceptance if each.passed is not None},
        notes=[rendered(note) for note in result.notes],
        stages={stage.stage.id: stage_card(stage, result.calibration) for stage in result.stages},
        reference=reference,
        candidate=candidate,
        repeats={str(number): repeat for number, repeat in enumerate(repeats, 1)},
    )


def absolute(path: str, directory: str | None) -> str:
    """Return a path of a training that was started in a directory, None for this one."""
    return os.path.normpath(Path(directory or Path.cwd(), path))


def at_places(line: str, own: Path, places: Mapping[str, Path], directory: str | None = None) -> str:
    """Return a line of :func:`trained_again` that records at ``own``, and reads each run of ``places``, by its absolute path, at its new
    place; raises RecordError for a line of another form."""
    variables, sign, training = line.partition(ATTACHED)
    try:
        pairs = [word.partition("=")[::2] for word in shlex.split(variables)]
    except ValueError:  # an open quotation
        pairs = []
    if f"{PREFIX}RUN" not in dict(pairs) or not all(name.startswith(PREFIX) for name, _ in pairs) or not sign or "\0" in line:
        raise RecordError(f"no line of certify: {line!r}")
    read = {name: moved(value, places, directory) for name, value in pairs if name in SOURCES}
    named = {**dict(pairs), **read, f"{PREFIX}RUN": str(own)}
    return f"{' '.join(f'{name}={shlex.quote(value)}' for name, value in named.items())}{sign}{training}"


def moved(value: str, places: Mapping[str, Path], directory: str | None) -> str:
    """Return a run, with its steps behind an ``@`` or without, at its new place."""
    path, at, steps = value.rpartition("@")
    for place, rest in ((value, ""), (path, f"{at}{steps}")):
        if place and (new := places.get(absolute(place, directory))) is not None:
            return f"{new}{rest}"
    return value


def stage_card(result: StageResult, calibration: Mapping[str, Mapping[str, float]]) -> StageCard:
    """Return a stage with the number that is furthest beside its limit; ``calibration`` is what was measured on repeats."""
    status, compared = result.status.value, rendered(result.summary)
    known = [finding for finding in result.findings if finding.error is not None] if result.status is Status.SAME else []
    if not known:
        return StageCard(status, compared)
    worst = max(known, key=lambda finding: (finding.limit_ratio, finding.error))
    quantity = str(worst.quantity or "")
    measured = next((found for kind in (quantity, result.stage.id) if (found := calibration.get(f"{kind} of step {worst.step}"))), {})
    noise = measured.get(worst.name) if worst.name else max(measured.values(), default=None)
    name = worst.name or quantity
    return StageCard(status, compared, name, worst.step, worst.error, worst.limit, worst.unit.value, noise)


def run_card(run: Run) -> RunCard:
    """Return what trained a run, and its record's digests; raises RecordError for what is no record."""
    if not run.facts.is_there or run.facts.converted is not None or run.facts.distilled is not None or storage.is_remote(run.path):
        raise RecordError(f"{run.path} is no whole record on this machine; a card is of runs as ALIGN_HOOKS_RUN recorded them")
    facts = run.facts
    summary = side(run)
    return RunCard(
        path=str(run.path),
        framework=facts.framework,
        trainer=facts.trainer,
        versions=facts.versions,
        commits=facts.commits,
        device=facts.device,
        precision=facts.training.precision,
        ranks=summary.ranks,
        layout=dict(summary.layout),
        steps=summary.steps,
        recorded=facts.created,
        digests=digests(run),
    )


def digests(run: Run) -> dict[str, str]:
    """Return part to digest of run.json, manifests, rows and mask, which hold the digests of all else; ranks are digested together."""
    files = {"facts": [layout.run_file(run.path)], "manifest": [layout.manifest(run.path, rank) for rank in run.manifests]}
    files["causal_mask"] = [layout.causal_mask(run.path)]
    files |= {folder.replace("/", "_"): [layout.rows(run.path, folder, rank) for rank in run.manifests] for folder in layout.ROW_FOLDERS}
    there = {part: [path for path in paths if path.exists()] for part, paths in files.items()}
    return {part: xxh3_of_pieces(path.read_bytes() for path in paths) for part, paths in there.items() if paths}


def losses(run: Run, prefix: str) -> dict[str, float]:
    """Return the first and the last loss on record, of runs that have any."""
    known = [row["loss"] for row in run.scalars() if row.get("loss") is not None]
    return {f"{prefix}initial_loss": known[0], f"{prefix}final_loss": known[-1]} if known else {}


def card_of(title: str, items: Mapping[str, ItemCard], model: Mapping[str, object]) -> Card:
    """Return the card of some items of a model."""
    frameworks = dict.fromkeys(side.framework or "unknown" for item in items.values() for side in (item.reference, item.candidate))
    pairs = "one pair of runs agrees" if len(items) == 1 else f"{len(items)} pairs of runs agree"
    stages = [stage.status for item in items.values() for stage in item.stages.values()]
    compared = len(stages) - stages.count(Status.NOT_COMPARED.value)
    summary = f"{pairs}, of {' and '.join(frameworks)}: {compared} of {len(stages)} stages were compared, and none differs"
    return Card(FORMAT, title, summary, __version__, dict(model), dict(items))


def model_of(runs: Sequence[Run]) -> dict[str, object]:
    """Return the model of some runs as the first that knows it built it; None for what is not known."""
    model = next((run.facts.model for run in runs if run.facts.model), {})
    architectures = model.get("architectures")
    architecture = architectures[0] if isinstance(architectures, list) and architectures else None
    return {"architecture": architecture, "model_type": model.get("model_type")}


def text_of(card: Card) -> str:
    """Return the text of the file, sealed by its digest."""
    body = HEAD + yaml_text(to_builtins(card))
    return f"{body}{SEAL}{xxh3(body.encode())}\n"


def hub_metadata(card: Card) -> str:
    """Return the metadata that model hubs read, the ``model-index`` of Hugging Face's model cards, as YAML: a result an item with numbers,
    whose metrics are the errors of the stages."""
    task, results = {"type": "text-generation", "name": "training"}, []
    for name, item in card.items.items():
        stages = {id_: stage for id_, stage in item.stages.items() if stage.error is not None}
        metrics = [{"type": "relative-error", "name": id_, "value": one.error, "args": {"limit": one.limit}} for id_, one in stages.items()]
        compared = f"{name}: {item.candidate.framework} against {item.reference.framework}"
        if metrics:
            results.append({"task": task, "dataset": {"type": "align-hooks", "name": compared}, "metrics": metrics})
    return yaml_text({**TAGS, "model-index": [{"name": card.title, "results": results}]})


def is_sealed(text: str) -> bool:
    """Return whether a card's text is as it was written."""
    body = text.rpartition(SEAL)[0]
    return text == f"{body}{SEAL}{xxh3(body.encode())}\n"


def read_card(text: str, name: str) -> Card:
    """Return the card that a text holds; raises RecordError for any other text."""
    try:
        values = plain_values(text, name)
        if isinstance(values, dict):
            values.pop(SEAL.strip(": "), None)
        card = convert(values, Card, strict=True)
    except (ValidationError, ConfigurationError) as error:
        raise RecordError(f"{name} is no card: {error}; certify writes one") from None
    if card.format != FORMAT:
        raise RecordError(f"{name} is a card of format {card.format}, and this version reads {FORMAT}")
    for key, item in card.items.items():
        paths = [side.path for side in (item.reference, item.candidate, *item.repeats.values())]
        named = key and not NOT_IN_A_NAME.search(key) and all(number.isascii() and number.isdigit() for number in item.repeats)
        problems = {
            "a name of letters, digits, - and _": not named,
            "runs at places of their own": len({*paths}) < len(paths),
            "a date": not DATE.fullmatch(item.last_verified),
        }
        if lacking := [what for what, is_lacking in problems.items() if is_lacking]:
            raise RecordError(f"{name} is no card: items.{key} lacks {' and '.join(lacking)}")
    if not card.items:
        raise RecordError(f"{name} is no card: it holds no item")
    return card
