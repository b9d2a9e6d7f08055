"""A witness script in whose steps calls that our code makes fail, each once: ``planted_calls.py WITNESS_SCRIPT [ARGUMENT ...]``.

A *site* is a line in the source of align_hooks that calls something, ours or not: the line fails, for an error that is raised where
Python 3.12.1 tells of a call crashes it. In the first steps nothing fails: the sites that they reach become known. Then one site fails in
each step, or with PLANTED_TOGETHER every site that was not tried before, in the order in which a step reaches them, as if recording went
on behind each. PLANTED names a file for what was tried, as JSON.
"""

import functools
import gc
import json
import os
import runpy
import sys
from pathlib import Path

import align_hooks
from align_hooks.errors import RefusedRun
from align_hooks.session.recording import Recording
from align_hooks.session.writing import AsyncWriter

OURS = str(Path(align_hooks.__file__).parent) + os.sep
SURVIVES = (
    "hooking/guard.py",  # what survives
    "hooking/patch_log.py",
    "session/recording.py",
    "session/writing.py",  # its lock and its thread, of which tests/session/test_writing.py has the failures
    "process/streams.py",
    "replay/",  # what feeds training, which goes on without none of it
    "torch_side/rehearsal",  # what stands for an accelerator
    "torch_side/hooks/data.py",
    "ms_side/rehearsal",
    "ms_side/hooks/dataloader.py",
)
"""Files of ours whose calls never fail here."""
STANDS_FOR = ("Session.survive", "_around", "listened.<locals>.listening", "forward_step.<locals>.listening")
"""Functions that call a framework's own function and nothing else outside of what is survived."""
GUARDS = (Recording.isolate_failures, Recording.must_succeed, Recording.best_effort)
ONLY = tuple(os.environ.get("PLANTED_ONLY", "").split(","))
"""Beginnings of the files whose calls fail, of all unless some are named."""
KNOWN = int(os.environ.get("PLANTED_FROM", "2"))
"""Steps in which sites only become known."""
TOGETHER = bool(os.environ.get("PLANTED_TOGETHER"))
REFUSED = bool(os.environ.get("PLANTED_REFUSED"))
"""Whether every failure is a refusal, which ends a job before its first step and never in one; otherwise every second is."""
monitoring = sys.monitoring
events = monitoring.events


Site = tuple[str, str, int]
"""File, function and line."""


class Planted(Exception):
    """Not an error of any kind that somebody expects."""


class Planter:
    def __init__(self) -> None:
        self.steps = self.last = -1
        self.is_in_step = False
        self.known: dict[Site, str] = {}
        self.tried: list[Site] = []
        self.target: Site | None = None
        self.recording: Recording | None = None
        self.lines: dict[tuple[object, int], Site | None] = {}
        monitoring.use_tool_id(monitoring.DEBUGGER_ID, "planted calls")
        monitoring.register_callback(monitoring.DEBUGGER_ID, events.CALL, self.call)
        monitoring.register_callback(monitoring.DEBUGGER_ID, events.LINE, self.line)
        monitoring.set_events(monitoring.DEBUGGER_ID, events.CALL)

    def begin(self) -> None:
        """Open a step: recording is on again, and one more call is going to fail."""
        self.steps += 1
        self.recording = self.recording or next(item for item in gc.get_objects() if isinstance(item, Recording))
        if TOGETHER and self.steps == 0:
            self.recording._stop = lambda what, step, error: None
        self.recording.writing.drain()
        self.recording.stopped = self.recording.fatal = None
        self.recording.given_up.clear()
        self.recording.writing = AsyncWriter(self.recording._stop, self.recording._slow)
        left = [site for site in self.known if site not in self.tried]
        self.target = left[0] if left and self.steps >= KNOWN else None
        self.is_in_step = True

    def end(self) -> None:
        """Close a step. What it did not reach is not tried again."""
        self.is_in_step = False
        if self.target is not None and self.target not in self.tried:
            self.tried.append(self.target)

    def call(self, code, offset, callee, _):
        """Get to know a site."""
        name = code.co_filename
        file, function, line = name.removeprefix(OURS), code.co_qualname, line_of(code, offset)
        if not name.startswith(OURS) or file.startswith(SURVIVES) or function in STANDS_FOR or not file.startswith(ONLY):
            return monitoring.DISABLE
        called = getattr(callee, "__func__", callee)
        if any(called is guard for guard in GUARDS):
            self.lines[code, line] = None
        elif self.is_in_step and (code, line) not in self.lines:
            self.lines[code, line] = site = (file, function, line)
            self.known.setdefault(site, getattr(callee, "__qualname__", type(callee).__name__))
            monitoring.set_local_events(monitoring.DEBUGGER_ID, code, events.LINE)
        return None

    def line(self, code, number):
        """Raise at a site whose turn has come."""
        site = self.lines.get((code, number))
        if site is None or not self.is_in_step or self.steps < KNOWN or site in self.tried or not (TOGETHER or site == self.target):
            return
        self.tried.append(site)
        self.last = self.steps
        raise (RefusedRun if REFUSED or len(self.tried) % 2 else Planted)(f"planted at {':'.join(map(str, site))}: {self.known[site]}")

    def report(self) -> None:
        left = [[*site, self.known[site]] for site in self.known if site not in self.tried]
        Path(os.environ["PLANTED"]).write_text(json.dumps({"tried": len(self.tried), "left": left, "steps": self.last + 1}))


@functools.cache
def line_of(code, offset: int) -> int:
    return next(line for start, stop, line in code.co_lines() if line is not None and start <= offset < stop)


def plant_megatron(planter: Planter) -> None:
    from megatron.training import training

    inner = training.train_step

    def train_step(*args, **kwargs):
        planter.begin()
        try:
            return inner(*args, **kwargs)
        finally:
            planter.end()

    training.train_step = train_step


def plant_own_loop(planter: Planter) -> None:
    from megatron.core.optimizer import optimizer
    from megatron.core.pipeline_parallel import schedules

    inner, update = schedules.forward_backward_no_pipelining, optimizer.FP32Optimizer.step

    def forward_backward(**kwargs):
        if not kwargs["forward_only"]:
            planter.begin()
        return inner(**kwargs)

    def step(self):
        try:
            return update(self)
        finally:
            planter.end()

    schedules.forward_backward_no_pipelining, optimizer.FP32Optimizer.step = forward_backward, step


def plant_mindformers(planter: Planter) -> None:
    import mindformers  # noqa: F401  (whole, before ours is imported)

    from align_hooks.ms_side.hooks.training import Recorder

    begin, end = Recorder.on_train_step_begin, Recorder.on_train_step_end

    def on_train_step_begin(recorder, run_context):
        planter.begin()
        begin(recorder, run_context)

    def on_train_step_end(recorder, run_context):
        end(recorder, run_context)
        planter.end()

    Recorder.on_train_step_begin, Recorder.on_train_step_end = on_train_step_begin, on_train_step_end


if __name__ == "__main__":
    script = sys.argv[1]
    sys.argv = sys.argv[1:]
    sys.path.insert(0, str(Path(script).parent))
    planter = Planter()
    plants = {"megatron": plant_megatron, "own_loop": plant_own_loop, "mindformers": plant_mindformers}
    next(plant for name, plant in plants.items() if name in Path(script).name)(planter)
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        planter.is_in_step = False
        planter.report()
