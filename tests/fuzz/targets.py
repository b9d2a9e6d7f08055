"""What an input is fed to: the commands' own functions, and what each of them may touch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from align_hooks import open_run
from align_hooks.cli.check import check
from align_hooks.cli.compare import compare
from align_hooks.cli.convert import convert
from align_hooks.cli.distill import distill
from align_hooks.cli.show import show
from align_hooks.errors import RecordError
from align_hooks.process.archive import packed
from align_hooks.quantities.registry import SKETCHES
from align_hooks.record.inventory import not_whole
from align_hooks.record.read.sums import counted_totals
from align_hooks.record.reader import Run
from align_hooks.record.verify import verify
from fuzz import damage, mutations, seeds
from fuzz.mutations import Scene
from fuzz.seeds import LOG, PARTNER, RUN, SOURCE, Seed

Mutate = Callable[[Random, Scene], list[str]]


class Unnoticed(Exception):
    """A changed byte of a digested file was taken for what was recorded."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an input lies: ``scene`` is the mutated copy of a seed, ``seed`` the seed as it was, ``out`` takes what is written."""

    scene: Path
    seed: Path
    out: Path

    run = property(lambda self: self.scene / RUN)
    partner = property(lambda self: self.seed / PARTNER)
    json = property(lambda self: self.out / "out.json")
    html = property(lambda self: self.out / "out.html")


@dataclass(frozen=True, slots=True)
class Target:
    """``title`` is its line of the table, ``weight`` its share of the inputs; ``guarded`` says that no link may lead it out of a record."""

    title: str
    call: Callable[[Place], None]
    seeds: Sequence[Seed]
    weight: int
    guarded: bool = True
    mutate: Mutate = mutations.mutate


def read_everything(path: Path) -> Run:
    """Open a record and read all that its interface gives."""
    run = open_run(path)
    _ = repr(run), [str(problem) for problem in run.problems], run.missing, run.scalars(), run.self_check, run.unrecorded_inputs
    for step in run.steps:
        _ = run.row(step), run.rank_rows(step), run.random_states(step)
    for step in run.batch_steps():
        _ = run.batch_facts(step), run.batch(step).arrays(), run.batch_descriptions(step)
        _ = run.expert_counts(step)
    for step in run.steps_of("routing"):
        _ = [experts.sum() for experts in run.routing(step).values()]
    for step in run.steps_of("activations"):
        points = run.activations(step)
        _ = [(summary, points.by_micro_batch(name)) for name, summary in points.items()]
        _ = [points.tensor(name).sum() for name in points if points.has_tensor(name)]
    for step in run.local_norm_steps():
        _ = run.local_norms(step), counted_totals(run, [step])
    for kind, steps in ((run.gradients, run.gradient_steps()), (run.weights, run.weight_steps())):
        for step in steps:
            _ = [tensor.sum() for tensor in kind(step).values()]
    for step in run.optimizer_state_steps():
        state = run.optimizer_state(step)
        _ = state.updates, state.dtypes, [tensor.sum() for moment in state.moments.values() for tensor in moment.values()]
    for kind in SKETCHES:
        for step in run.sketch_steps(kind):
            _ = list(run.sketches(kind, step).items())
    return run


def verified(path: Path) -> list[str]:
    """What ``show --verify`` finds wrong."""
    run = open_run(path)
    return [str(problem) for problem in (*run.problems, *not_whole(run), *verify(run).wrong)]


def digested(place: Place) -> None:
    """Raise Unnoticed where a changed record passes for whole."""
    try:
        problems = verified(place.run)
    except RecordError as error:
        problems = [str(error)]
    if not problems and not is_whole(place):
        raise Unnoticed("nothing was found in a record of which a byte was changed")


def is_whole(place: Place) -> bool:
    """Whether a changed record lost nothing but the end of a last line."""
    changed = [path for path in place.scene.rglob("*") if path.is_file()]
    return all(
        path.read_bytes().rstrip(b"\n") == (place.seed / path.relative_to(place.scene)).read_bytes().rstrip(b"\n") for path in changed
    )


def check_files(place: Place) -> None:
    reference, candidate = (next(iter(sorted(place.scene.glob(f"{side}.*"))), place.run) for side in seeds.SIDES)
    check(str(reference), str(candidate), json=place.json)


def convert_log(place: Place) -> None:
    convert(place.scene / LOG, place.out / RUN, place.run if (place.seed / RUN).exists() else None)


def convert_other(place: Place, out: str = RUN, names: str | None = None, **options: str) -> None:
    convert(place.scene / SOURCE, place.out / out, place.seed / names if names else None, **options)


def read_packed(place: Place) -> None:
    """Read everything of a mutated record that somebody put into a zip file."""
    files = [path for path in Scene(place.scene, (place.run,), None).files() if path.suffix != ".claim" and str(path).isascii()]
    (place.out / "run.zip").write_bytes(packed({str(path.relative_to(place.run)): path.read_bytes() for path in files}))
    read_everything(place.out / "run.zip")


TARGETS = {
    "open": Target("`open_run`, and everything read", lambda at: bool(read_everything(at.run)) and None, seeds.RECORDS, 22),
    "show": Target("`show --verify RUN`", lambda at: show(at.run, verify=True), seeds.RECORDS, 18),
    "compare": Target("`compare RUN OTHER --json`", lambda at: compare(at.run, at.partner, json=at.json), seeds.RECORDS, 14),
    "turned": Target("`compare OTHER RUN`", lambda at: compare(at.partner, at.run), seeds.RECORDS, 9),
    "noise": Target("`compare OTHER OTHER --noise RUN`", lambda at: compare(at.partner, at.partner, noise=[at.run]), seeds.RECORDS, 3),
    "page": Target("`compare RUN OTHER --html`", lambda at: compare(at.run, at.partner, html=at.html), seeds.RECORDS, 2),
    "run_page": Target("`show RUN --html`", lambda at: show(at.run, html=at.html), seeds.RECORDS, 2),
    "check": Target("`check FILE FILE --json`", check_files, seeds.CONFIGURATIONS, 14, guarded=False),
    "check_runs": Target("`check RUN OTHER --all`", lambda at: check(str(at.run), str(at.partner), everything=True), seeds.CHECKED, 6),
    "check_page": Target("`check RUN OTHER --html`", lambda at: check(str(at.run), str(at.partner), html=at.html), seeds.CHECKED, 1),
    "convert": Target("`convert LOG RUN`", convert_log, seeds.LOGS, 9, guarded=False),
    "weights": Target("`convert WEIGHTS DIRECTORY --to`", partial(convert_other, out="hf", to="huggingface"), seeds.WEIGHTS_OF_OTHERS, 12),
    "dump": Target("`convert DUMP RUN`", convert_other, seeds.DUMPS, 7),
    "curves": Target("`convert CURVES RUN`", convert_other, seeds.CURVES, 5),
    "monitor": Target("`convert MONITOR RUN --names`", partial(convert_other, names=PARTNER, side="torch"), seeds.MONITORS, 3),
    "distill": Target("`distill RUN FILE`", lambda at: distill(str(at.run), at.out / "run.zip"), seeds.RECORDS, 5),
    "packed": Target("a record in a zip, and everything read", read_packed, seeds.RECORDS, 5),
    "distilled": Target("`compare FILE OTHER`", lambda at: compare(str(at.run), str(at.partner)), seeds.DISTILLED, 5),
    "digested": Target("one byte changed, `show --verify`", digested, seeds.DIGESTED, 20, mutate=damage.one_byte),
}
"""By name."""
