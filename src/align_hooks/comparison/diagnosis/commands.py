"""Fill the commands of advice for a pair, to be pasted before the command that a run was started with.

That command is printed where it is on record; else a shell variable stands for it, which says what to put there. A side that is recorded
again keeps what decides its numbers (seed, determinism, device), and for a comparison with existing records what it recorded too. The
commands are data, in ``commands.txt``."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.diagnosis.symptom import first_symptom
from align_hooks.comparison.pair import Pair
from align_hooks.comparison.stage_result import StageResult
from align_hooks.data_file import sections
from align_hooks.messages import Argument, Side, message
from align_hooks.process.storage import is_remote
from align_hooks.quantities.registry import SWITCHES
from align_hooks.record.reader import Run
from align_hooks.settings import PREFIX, Settings


def _commands(parts: Sequence[str], commands: Sequence[str]) -> dict[str, str]:
    """Return name to command of the lines of the file, with shared parts filled in."""
    filled = dict(line.split(": ", 1) for line in commands)
    for part, text in (line.split(": ", 1) for line in parts):
        filled = {name: command.replace(f"{{{part}}}", text) for name, command in filled.items()}
    return filled


_TABLES = sections(Path(__file__).parent / "commands.txt")
COMMANDS = _commands(_TABLES["parts"], _TABLES["commands"])
OF_CANDIDATE = ("fed", "fed_again", "resumed", "injected", "injected_again", "routed", "points_of_candidate")
OF_REFERENCE = ("noise", "replayable", "injectable", "points_of_reference")
SIDES = dict.fromkeys(OF_CANDIDATE, Side.CANDIDATE) | dict.fromkeys(OF_REFERENCE, Side.REFERENCE)
"""Command that sets variables to the side that it precedes."""
OF_BOTH = ("first_step", "routable", "norms_and_sketches", "beside_dump")
"""What both sides record beside what they did; each is trained again as it was."""
TRAINING = {Side.CANDIDATE: "command.candidate", Side.REFERENCE: "command.reference"}
"""Shell variable for a training command that is not on record."""
REHEARSED = ("seed", "deterministic", "device")
"""Settings that decide a run's numbers."""
RECORDED = tuple(name for switch in SWITCHES for name in (switch.name, *(option.name for option in switch.options)))
"""Settings that say what is recorded of a run."""
INPUTS = ("replay_batches", "load_weights")
INJECTED = ("inject_gradients", "replay_routing")
"""Settings that give a run another's data, beside batches and weights."""
KEPT = tuple(name for name in RECORDED if name.startswith(("activations", "routing")))
"""What a run recorded beside what every command asks for, so that the next comparison can name a cause from it too."""
NUMBERS = "ALIGN_HOOKS_BATCHES=all ALIGN_HOOKS_LOCAL_NORMS=all "
"""What is recorded of a side without any recording."""
UPDATES_TO_INJECT, MOST_UPDATES = 3, 20
"""The fewest, as Adam's betas cancel in the first update; and the most, of which a run can be expected to keep all gradients."""


def commands_of(
    names: Sequence[str], context: ComparisonContext, stages: Sequence[StageResult], *, without_draws: bool = False
) -> list[Argument]:
    """Return the lines of some commands for a pair, in their order; ``without_draws`` takes dropout and jitter out of trainings."""
    filled = filled_in(context, stages)
    runs = dict(zip(Side, context.pair.runs, strict=True))
    lines: list[Argument] = []
    for name in names:
        command = COMMANDS[name].format(**filled)
        if name in OF_BOTH:
            named = {word.partition("=")[0] for word in command.split()}
            kept = tuple(name for name in (*RECORDED, *INPUTS, *INJECTED) if PREFIX + name.upper() not in named)
            places = zip(Side, (filled["reference_again"], filled["again"]), strict=True)
            lines += [_run(side, runs[side], f"{PREFIX}RUN={place} {variables(runs[side], kept)}{command}") for side, place in places]
        elif name in SIDES:
            lines.append(_run(SIDES[name], runs[SIDES[name]], command, without_draws=without_draws))
        else:
            lines.append(message("command.two_runs", compare=command) if name == "compare" else command)
    return lines


def _run(side: Side, run: Run, command: str, *, without_draws: bool = False) -> Argument:
    """Return the line that trains a side again with these variables."""
    training = training_command(run) or message(TRAINING[side])
    if without_draws and isinstance(training, str):
        training = undrawn(training)
    return message("command.run", variables=variables(run, REHEARSED) + command, training=training)


def trained_again(side: Side, run: Run) -> Argument:
    """Return the line that trains a run as it was trained and recorded, at its own place."""
    names = tuple(name for name in Settings().as_text() if name not in ("run", "run_exists"))
    training = training_command(run, "") or message(TRAINING[side])
    return message("command.run", variables=f"{PREFIX}RUN={shlex.quote(str(run.path))} {variables(run, names)}".rstrip(), training=training)


def training_command(run: Run, here: str | None = None) -> str | None:
    """Return the command that trained a run, from the directory ``here``, by default this one; None where it is not on record or each host
    had its own."""
    command, directory = run.facts.command, run.facts.directory
    if command is None or len({manifest.launch.host for manifest in run.manifests.values()}) > 1:
        return None
    return command if directory in (None, str(Path.cwd()) if here is None else here) else f"env -C {shlex.quote(directory)} {command}"


def can_be_without_draws(run: Run) -> bool:
    """Return whether arguments of the command on record say what draws random numbers."""
    command = training_command(run) if run.facts.side == "torch" and run.facts.arguments else None
    try:
        return command is not None and bool(undrawn(command))
    except ValueError:  # a quotation that was cut
        return False


def undrawn(command: str) -> str:
    """Return a command of Megatron-LM without dropout and the routers' jitter; of an argument that is given twice the last counts."""
    words, kept = shlex.split(command), []
    while words:
        word = words.pop(0)
        if word == JITTER:
            words = words[1:]
        elif not word.startswith(f"{JITTER}="):
            kept.append(word)
    return shlex.join([*kept, *WITHOUT_DROPOUT])


JITTER, WITHOUT_DROPOUT = "--moe-input-jitter-eps", ("--hidden-dropout", "0", "--attention-dropout", "0")


def filled_in(context: ComparisonContext, stages: Sequence[StageResult]) -> dict[str, str]:
    """Return what fills :data:`COMMANDS`: paths as a shell takes them, steps, and variables, each with a trailing blank."""
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
    updates, first_difference = updates_to_inject(pair, stages), first_apart(stages) or first
    span = f"{first}-{updates[-1]}"
    routed = "ALIGN_HOOKS_ROUTING=all " if reference.steps_of("routing") else ""
    quoted = {name: shlex.quote(str(path)) for name, path in paths.items()}
    its_own = f"ALIGN_HOOKS_REPLAY_BATCHES={quoted['reference']}@{span} ALIGN_HOOKS_LOAD_WEIGHTS={quoted['reference']}@{first} "
    replayed = variables(reference, (*INPUTS, *INJECTED))
    return quoted | {
        "first": str(first),
        "its_own": its_own if is_replayable(reference, first) else replayed,
        "as_fed": replayed,
        "routed": routed,
        "kept": variables(candidate, KEPT),
        "kept_of_reference": variables(reference, KEPT),
        "at_step": f" --step {first_difference}" if first_difference > first else "",
        "more": routed + (f"ALIGN_HOOKS_ACTIVATIONS={first} " if first in pair.steps("activations") else ""),
        "recorded": (variables(candidate, RECORDED) or NUMBERS) + variables(candidate, INJECTED),
        "updates": span,
        "states": f"{first}-{updates[-1] + 1}",
    }


def is_replayable(run: Run, step: int) -> bool:
    """Return whether another run can start from a run's recorded batch and weights of a step."""
    return step in run.batch_steps() and step in run.weight_steps()


def updates_to_inject(pair: Pair, stages: Sequence[StageResult]) -> list[int]:
    """Return the steps whose gradients both sides are to use: from the first on, up to the first that differs, but at least three, and no
    more than three where that is far."""
    first, first_difference = pair.first or 0, first_apart(stages)
    wanted = UPDATES_TO_INJECT if first_difference is None else max(UPDATES_TO_INJECT, first_difference - first)
    wanted = wanted if wanted <= MOST_UPDATES else UPDATES_TO_INJECT
    return [step for step in range(first, first + wanted) if step in pair.reference.steps] or [first]


def first_apart(stages: Sequence[StageResult]) -> int | None:
    """Return the first step that differs in the stage that differs first in training; None where nothing differs, or no step is known."""
    result = first_symptom(stages, None)
    steps = [finding.step for finding in result.beyond if finding.step is not None] if result is not None else []
    return min(steps, default=None)


def variables(run: Run, names: tuple[str, ...]) -> str:
    """Return the variables that set a run's settings as they were, where these are not defaults."""
    defaults = Settings().as_text()
    given = {name: value for name in names if (value := run.facts.settings.get(name)) not in (None, defaults[name])}
    return "".join(f"{PREFIX}{name.upper()}={shlex.quote(str(value))} " for name, value in given.items())


def places_to_record(runs: Sequence[Run]) -> list[str]:
    """Return the path beside which each side is recorded again: its own, or where nothing can be written its name in this directory.

    Equal names are prefixed by their sides."""
    names = [run.path.name if is_remote(run.path) else str(run.path) for run in runs]
    return names if len({*names}) == len(names) else [f"{side.value}_{name}" for side, name in zip(Side, names, strict=True)]
