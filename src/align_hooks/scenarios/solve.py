"""From two launch commands to the cause: record, replay, compare, and carry out what *next* says until nothing is left to try.

The reference is recorded with what a replay needs, and the candidate from it. Where these agree, the candidate is recorded once more by
itself: what then differs is what it was fed. Else each comparison names the next trial (:class:`.verdict.Trial`).
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from align_hooks.comparison.stage_result import FaultLocation
from align_hooks.comparison.verdict import ComparisonResult, Trial, Verdict
from align_hooks.errors import AlignHooksError, RecordError
from align_hooks.messages import Message, Side, message
from align_hooks.record.write import output
from align_hooks.scenarios.trial import BY_ITSELF, Budget, Halt, Resumed, Solved, SolveStep, Spent, Trainings, carry_out, first_step
from align_hooks.settings import PREFIX

STATE = "solve.json"
"""The file in the folder with every step that was made."""
RECORD = f"{PREFIX}BATCHES=all {PREFIX}LOCAL_NORMS=all {PREFIX}SKETCHES=all"
"""What is recorded of both at first: everything that is small."""
FED = (FaultLocation.DATA, FaultLocation.WEIGHTS)
"""Where two frameworks differ by themselves without a fault: each has its own data set, and draws its own weights."""


class SolveState(msgspec.Struct):
    """The file of a folder."""

    reference: str
    candidate: str
    steps: list[SolveStep] = []
    format: int = 1


class Conclusion(Struct, frozen=True):
    """How it ended."""

    result: Solved
    words: Message
    comparison: ComparisonResult | None = None
    """The last one; None where nothing was compared."""
    lines: tuple[str, ...] = ()
    """What a person runs now."""


class Solving(Struct):
    """Two commands on their way to the cause."""

    trainings: Trainings
    budget: Budget
    steps: list[SolveStep] = field(default_factory=list)
    conclusion: Conclusion | None = None
    """None until it ended."""

    def solve(self) -> Iterator[Trial | str | Spent | SolveStep]:
        """Yield every trial before it is made, each line before it is run, what it took, and what the trial showed."""
        began = time.monotonic() - sum(sum(step.seconds) for step in self.steps)
        made, fed, trial = list[Trial](), None, self.first_trial()
        while self.conclusion is None:
            comparison = self.trainings.comparison
            if len(made) == self.budget.trials:
                self.conclusion = Conclusion(Solved.STOPPED, message("solve.enough", count=len(made)), comparison)
                return
            yield trial
            known = self.steps[len(made)] if len(made) < len(self.steps) else None
            try:
                step = yield from carry_out(self.trainings, trial, self.budget, began, known)
            except Resumed:
                trial = self.first_trial()
                continue
            except Halt as halt:
                ended = halt.result, halt.words
                if fed is not None and halt.result is not Solved.WAITS:  # what was shown before it holds
                    ended = Solved.OPEN if halt.result is Solved.FAILED else halt.result, message("solve.only_fed", why=halt.words)
                self.conclusion = Conclusion(*ended, fed or comparison, halt.lines)
                return
            made.append(trial)
            if known is None:
                self.steps.append(step)
                self.write()
            yield step
            result = self.trainings.comparison
            assert result is not None
            if fed is not None:
                self.conclusion = by_itself(result)
            elif result.verdict is Verdict.ALIGNED and trial.decides is not None:
                self.conclusion = Conclusion(Solved.NAMED, message("solve.decided", what=trial.decides), result)
            elif result.verdict is Verdict.ALIGNED:
                fed, trial = result, self.own_trial()
            elif result.trial is None or any(result.trial.words == earlier.words for earlier in made):
                self.conclusion = concluded(result)
            else:
                trial = result.trial

    def first_trial(self) -> Trial:
        """Return the trial that everything begins with."""
        runs, first = [shlex.quote(str(self.trainings.folder / side.value)) for side in Side], self.trainings.first
        feed = f"{PREFIX}REPLAY_BATCHES={runs[0]} {PREFIX}LOAD_WEIGHTS={runs[0]}@{first}"
        lines = (
            f"{PREFIX}RUN={runs[0]} {RECORD} {PREFIX}WEIGHTS={first} {attached(self.trainings.commands[Side.REFERENCE])}",
            f"{PREFIX}RUN={runs[1]} {RECORD} {feed} {attached(self.trainings.commands[Side.CANDIDATE])}",
            f"align-hooks compare {runs[0]} {runs[1]}",
        )
        return Trial(message("solve.first"), lines)

    def own_trial(self) -> Trial:
        """Return the trial of the candidate by itself."""
        reference, own = (shlex.quote(str(self.trainings.folder / name)) for name in (Side.REFERENCE.value, BY_ITSELF))
        command = attached(self.trainings.commands[Side.CANDIDATE])
        return Trial(message("solve.by_itself"), (f"{PREFIX}RUN={own} {RECORD} {command}", f"align-hooks compare {reference} {own}"))

    def write(self) -> None:
        """Write the steps that were made."""
        commands = self.trainings.commands
        state = SolveState(commands[Side.REFERENCE], commands[Side.CANDIDATE], self.steps)
        output.write(self.trainings.folder / STATE, msgspec.json.format(msgspec.json.encode(state), indent=1))

    def go_on(self) -> None:
        """Read the steps of an earlier start; raises AlignHooksError where the folder holds anything else."""
        folder, commands = self.trainings.folder, self.trainings.commands
        file = folder / STATE
        if not file.exists():
            if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
                raise AlignHooksError(f"{folder} holds something else than the steps of solve; name another --folder")
            self.write()
            return
        try:
            state = msgspec.json.decode(file.read_bytes(), type=SolveState)
        except (OSError, msgspec.MsgspecError, ValueError) as error:
            raise RecordError(f"{file} cannot be read: {error}; name another --folder") from None
        if (state.reference, state.candidate) != (commands[Side.REFERENCE], commands[Side.CANDIDATE]):
            raise AlignHooksError(f"{folder} holds the steps of other commands; name another --folder")
        self.steps, self.trainings.first = state.steps, first_step(folder / Side.REFERENCE.value)


def attached(command: str) -> str:
    """Return the line that starts a shell command with the hooks attached."""
    try:
        words = shlex.split(command)
        is_plain = shlex.join(words) == command and "=" not in "".join(words[:1])
    except ValueError:  # an open quotation, of which bash says more
        is_plain = False
    return f"align-hooks run -- {command if is_plain else f'bash -c {shlex.quote(command)}'}"


def by_itself(result: ComparisonResult) -> Conclusion:
    """Return what a candidate by itself says that agreed when it was fed."""
    if result.verdict is Verdict.ALIGNED:
        return Conclusion(Solved.AGREES, message("solve.agrees"), result)
    frameworks = {side.facts.framework for side in result.sides}
    is_usual = len(frameworks) > 1 and (result.blame is None or result.blame.place in FED)
    if result.verdict is not Verdict.DIVERGED or is_usual:
        ended = Solved.AGREES if is_usual else Solved.OPEN
        return Conclusion(ended, message("solve.only_fed", why=result.headline), result)
    if result.trial is not None and result.trial.decides is not None:  # it was made already, and agreed
        return Conclusion(Solved.NAMED, message("solve.decided", what=result.trial.decides), replace(result, next=None))
    return Conclusion(Solved.NAMED, message("solve.only_by_itself"), result)


def concluded(result: ComparisonResult) -> Conclusion:
    """Return what a comparison says behind which nothing is left to try."""
    if result.verdict is Verdict.DIVERGED and result.blame is not None and (result.blame.causes or result.blame.suspects):
        return Conclusion(Solved.NAMED, message("solve.named"), result)
    return Conclusion(Solved.OPEN, message("solve.no_more"), result)
