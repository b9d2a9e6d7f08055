"""The commands that advice prints, filled in for a pair: they are pasted as they are, before the command that a run was started with.

Where that command is on record, it is printed; else a variable of the shell stands for it, which says itself what to put there. Whoever
records a side again gets what decides its numbers (seed, determinism, device) as it was, and where it is to be compared with what there
is, what it recorded too. The commands are data, in ``commands.txt``.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.pair import Pair
from align_hooks.comparison.stage_result import StageResult, first_different
from align_hooks.data_file import sections
from align_hooks.messages import Argument, Side, message
from align_hooks.process.storage import is_remote
from align_hooks.quantities.registry import SWITCHES
from align_hooks.record.reader import Run
from align_hooks.settings import PREFIX, Settings


def _commands(parts: Sequence[str], commands: Sequence[str]) -> dict[str, str]:
    """Return name to command of the lines of the file, with what they share filled in."""
    filled = dict(line.split(": ", 1) for line in commands)
    for part, text in (line.split(": ", 1) for line in parts):
        filled = {name: command.replace(f"{{{part}}}", text) for name, command in filled.items()}
    return filled


_TABLES = sections(Path(__file__).parent / "commands.txt")
COMMANDS = _commands(_TABLES["parts"], _TABLES["commands"])
"""Commands to paste."""
PASTED = {f"next.{advice}": names.split() for advice, names in (line.split(": ") for line in _TABLES["advice"])}
"""The commands of each advice, in the order in which they are run."""
OF_CANDIDATE = ("fed", "fed_again", "resumed", "injected", "injected_again", "routed", "points_of_candidate")
OF_REFERENCE = ("noise", "replayable", "injectable", "points_of_reference")
SIDES = dict.fromkeys(OF_CANDIDATE, Side.CANDIDATE) | dict.fromkeys(OF_REFERENCE, Side.REFERENCE)
"""Of commands that are variables to set, the side before whose command they stand."""
OF_BOTH = ("first_step", "routable", "norms_and_sketches", "beside_dump")
"""What both sides are to record beside what they did; each is trained again as it was."""
TRAINING = {Side.CANDIDATE: "command.candidate", Side.REFERENCE: "command.reference"}
"""The variable of the shell for a training command that is not on record."""
REHEARSED = ("seed", "deterministic", "device")
"""Settings that decide a run's numbers."""
RECORDED = tuple(name for switch in SWITCHES for name in (switch.name, *(option.name for option in switch.options)))
"""Settings that say what is recorded of a run."""
FED = ("replay_batches", "load_weights")
HANDED = ("inject_gradients", "replay_routing")
"""Settings by which a run is handed what is not its own, beside batches and weights."""
KEPT = tuple(name for name in RECORDED if name.startswith(("activations", "routing")))
"""What a run recorded beside what every command asks for: with it a cause is named in the next comparison too."""
NUMBERS = "ALIGN_HOOKS_BATCHES=all ALIGN_HOOKS_LOCAL_NORMS=all "
"""What is recorded of a side of which nothing was."""
UPDATES_TO_INJECT, MOST_UPDATES = 3, 20
"""The fewest, as Adam's betas cancel in the first update; and the most, of which a run can be expected to keep all gradients."""


def commands_of(advice: str, context: ComparisonContext, stages: Sequence[StageResult]) -> list[Argument]:
    """The commands of an advice (the id of its message) for a pair, in the order in which they are run."""
    filled = filled_in(context, stages)
    runs = dict(zip(Side, context.pair.runs, strict=True))
    lines: list[Argument] = []
    for name in PASTED.get(advice, ()):
        command = COMMANDS[name].format(**filled)
        if name in OF_BOTH:
            named = {word.partition("=")[0] for word in command.split()}
            kept = tuple(name for name in (*RECORDED, *FED, *HANDED) if PREFIX + name.upper() not in named)
            places = zip(Side, (filled["reference_again"], filled["again"]), strict=True)
            lines += [_run(side, runs[side], f"{PREFIX}RUN={place} {variables(runs[side], kept)}{command}") for side, place in places]
        elif name in SIDES:
            lines.append(_run(SIDES[name], runs[SIDES[name]], command))
        else:
            lines.append(message("command.two_runs", compare=command) if name == "compare" else command)
    return lines


def _run(side: Side, run: Run, command: str) -> Argument:
    """Return the line that trains a side again, with these variables."""
    training = training_command(run) or message(TRAINING[side])
    return message("command.run", variables=variables(run, REHEARSED) + command, training=training)


def training_command(run: Run) -> str | None:
    """Return the command that trained a run, for a shell in any directory; None where it is not on record, or had its part on each host."""
    command, directory = run.facts.command, run.facts.directory
    if command is None or len({manifest.launch.host for manifest in run.manifests.values()}) > 1:
        return None
    return command if directory in (None, str(Path.cwd())) else f"env -C {shlex.quote(directory)} {command}"


def filled_in(context: ComparisonContext, stages: Sequence[StageResult]) -> dict[str, str]:
    """What fills :data:`COMMANDS`: paths as a shell takes them, steps, and further variables, each with a blank behind it."""
    pair, first = context.pair, context.pair.first or 0
    reference, candidate = pair.runs
    here = places_to_record(pair.runs)
    paths = {
        "reference": reference.path,
        "candidate": candidate.path,
        "noise": f"{here[0]}_noise",
        "again": f"{here[1]}_again",
        "reference_again": f"{here[0]}_again",
        "broken": candidate.path if reference.steps else reference.path,
        "contradicted": next((run.path for run in pair.runs if run.manifests and run.self_check.of_layout), candidate.path),
    }
    updates, parted = updates_to_inject(pair, stages), first_apart(stages) or first
    span = f"{first}-{updates[-1]}"
    routed = "ALIGN_HOOKS_ROUTING=all " if reference.steps_of("routing") else ""
    quoted = {name: shlex.quote(str(path)) for name, path in paths.items()}
    its_own = f"ALIGN_HOOKS_REPLAY_BATCHES={quoted['reference']}@{span} ALIGN_HOOKS_LOAD_WEIGHTS={quoted['reference']}@{first} "
    as_fed = variables(reference, (*FED, *HANDED))
    return quoted | {
        "first": str(first),
        "its_own": its_own if feeds(reference, first) else as_fed,
        "as_fed": as_fed,
        "routed": routed,
        "kept": variables(candidate, KEPT),
        "kept_of_reference": variables(reference, KEPT),
        "at_step": f" --step {parted}" if parted > first else "",
        "more": routed + (f"ALIGN_HOOKS_ACTIVATIONS={first} " if first in pair.steps("activations") else ""),
        "recorded": (variables(candidate, RECORDED) or NUMBERS) + variables(candidate, HANDED),
        "updates": span,
        "states": f"{first}-{updates[-1] + 1}",
    }


def feeds(run: Run, step: int) -> bool:
    """Whether another run can start from what a run recorded of a step: its batch and its weights."""
    return step in run.batch_steps() and step in run.weight_steps()


def updates_to_inject(pair: Pair, stages: Sequence[StageResult]) -> list[int]:
    """The steps of a pair of whose gradients both sides are to make their updates: from the first one on, three, or as many as were made
    before the first step that differs; of a step far behind that, three."""
    first, parted = pair.first or 0, first_apart(stages)
    wanted = UPDATES_TO_INJECT if parted is None else max(UPDATES_TO_INJECT, parted - first)
    wanted = wanted if wanted <= MOST_UPDATES else UPDATES_TO_INJECT
    return [step for step in range(first, first + wanted) if step in pair.reference.steps] or [first]


def first_apart(stages: Sequence[StageResult]) -> int | None:
    """The first step that differs in the first stage that does; None where nothing does, or that is of no step."""
    result = first_different(stages)
    steps = [finding.step for finding in result.beyond if finding.step is not None] if result is not None else []
    return min(steps, default=None)


def variables(run: Run, names: tuple[str, ...]) -> str:
    """The variables that set a run's settings of some names as they were, those that differ from their defaults."""
    defaults = Settings().as_text()
    given = {name: run.facts.settings.get(name) for name in names}
    return "".join(
        f"{PREFIX}{name.upper()}={shlex.quote(str(value))} " for name, value in given.items() if value not in (None, defaults[name])
    )


def places_to_record(runs: Sequence[Run]) -> list[str]:
    """Return beside what path each side is recorded again: its own, or where nothing can be recorded (object storage, a distilled file) its
    name in this directory, with the side before it where both have one name."""
    names = [run.path.name if is_remote(run.path) else str(run.path) for run in runs]
    return names if len({*names}) == len(names) else [f"{side.value}_{name}" for side, name in zip(Side, names, strict=True)]
