"""The end of a session: how the run ended, which requests never happened, and the exit code."""

from collections.abc import Container

from align_hooks.errors import AlignHooksError, NothingRecorded, in_a_line
from align_hooks.process.script import place_of, report
from align_hooks.quantities.registry import KINDS, SWITCHES
from align_hooks.quantities.scalars import SCALARS
from align_hooks.record.format.ending import HowEnded
from align_hooks.session.session import Session
from align_hooks.settings import PREFIX


def failure(session: Session, code: int, error: BaseException | None) -> HowEnded | None:
    """Return how the script failed, by its uncaught exception or its exit code; None where it succeeded."""
    if isinstance(error, AlignHooksError):
        return HowEnded("refused", error="; ".join(str(error).splitlines()))
    if code == 0:
        return None
    if isinstance(error, KeyboardInterrupt):
        next_step = (session.planned.start if session.planned else 0) + session.made
        return HowEnded("interrupted", step=next_step if session.step is None else session.step)
    if error is None:
        return HowEnded("failed_with_code", code=code)
    text, inner = in_a_line(error), error
    while inner.__cause__ is not None:  # a framework's loop hides under its own words what failed in a step
        inner = inner.__cause__
    text, where = f"{text} ({in_a_line(inner)})" if inner is not error else text, place_of(inner)
    return HowEnded("failed_at", error=text, where=where) if where else HowEnded("failed_with_error", error=text)


def ended(session: Session, failed: HowEnded | None) -> HowEnded:
    """Return how the run ended: "finished" only after all planned steps."""
    stopped, planned = session.recording.stopped, session.planned
    if failed is not None and (stopped is None or failed.form == "refused"):
        return failed
    if stopped is not None:
        return stopped
    if planned is None:
        return HowEnded("early_of_unknown", made=session.made)
    is_early = session.made < len(planned) and not session.is_endless
    return HowEnded("early", made=session.made, planned=len(planned)) if is_early else HowEnded("finished")


def finish(session: Session, failed: HowEnded | None = None) -> list[str]:
    """Close the record, and return a sentence for each request that did not happen."""
    recording, rank = session.recording, session.launch.rank
    recording.writing.drain()
    kept = recording.writer.kept if recording.writer is not None else set()
    made_before = bool(kept) and session.planned is not None and not session.planned  # a restart after the last checkpoint makes no step
    problems = [] if failed is not None or made_before else [*session.patch_log.unfired(), *_unreached(session, kept)]
    if recording.stopped is not None:
        problems.append(f"rank {rank} {recording.stopped}")
    if recording.writer is not None:
        how = ended(session, failed)
        try:
            recording.writer.finish(how, hooks=session.patch_log.facts())
            if session.made:
                session.say(f"recorded {recording.writer.written[SCALARS.name]} steps in {recording.writer.run}: {how}")
            if recording.crash_stack is not None:
                recording.crash_stack.withdraw()
        except Exception as error:  # training is over, and its exit code is the script's
            problems.append(f"rank {rank} could not close the record in {recording.writer.run}: {in_a_line(error)}")
    return problems


def exit_code(code: int, problems: list[str]) -> int:
    """Report the problems, and return the launcher's exit code: the script's own, or 3 where that is 0 and there are problems."""
    for problem in problems:
        report(NothingRecorded(problem))
    return NothingRecorded.exit_code if problems and code == 0 else code


def _unreached(session: Session, kept: Container[str]) -> list[str]:
    """Return a sentence for each recording or replay that the run did not reach; ``kept`` names what earlier starts recorded."""
    settings, recording = session.settings, session.recording
    asked = [switch for switch in SWITCHES if settings.steps(switch) and (settings.run is not None or switch.printed)]
    before = {kind.switch for kind in KINDS if (kind.whole or kind.name) in kept}
    never = [
        f"{PREFIX}{switch.name.upper()}={settings.steps(switch).text}: no such step was reached, nothing was recorded"
        for switch in asked
        if switch not in recording.captured | before and recording.stopped is None
    ]
    if settings.replay_batches is not None and session.planned is not None and session.made < len(session.planned):
        never.append(f"{PREFIX}REPLAY_BATCHES: {session.made} of {len(session.planned)} steps were trained on recorded batches")
    for name, source in (("INJECT_GRADIENTS", session.injection), ("REPLAY_ROUTING", session.routing), ("TEACHER", session.teacher)):
        if source is not None and (left := sorted(set(source.steps) - source.made)):
            steps = f"{len(left)} of {len(source.steps)} steps"
            happened = f"experts of {steps} were not given" if source is session.routing else f"{steps} were not reached"
            never.append(f"{PREFIX}{name}: {happened}, first {left[0]}")
    return never
