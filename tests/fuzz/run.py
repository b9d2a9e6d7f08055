"""Feeds mutated records, configurations and logs to the commands: ``python tests/fuzz/run.py --inputs 100000``, or ``make fuzz``.

Input N of a seed is the same wherever it is made: ``--seed S --from N --inputs 1`` makes it again. What an input must not do is in
``watch.py``; one that does is kept below ``build/fuzz`` and can be tried again with ``--corpus FILE``. Ends with 1 where there is one.
"""

import argparse
import contextlib
import io
import json
import multiprocessing
import multiprocessing.connection
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from fuzz.inputs import CORPUS, Input, differences, drawn, kept, saved, swept
from fuzz.seeds import SEEDS, linked
from fuzz.targets import TARGETS, Place, Unnoticed
from fuzz.watch import Outcome, Watch
from scratch import in_memory

FAULTS = Path(__file__).parents[2] / "build" / "fuzz"
RESULTS = Path(__file__).parent / "results.json"
SILENCE = 90
"""Seconds after which a worker that says nothing is ended: it waits for something that never comes, which takes no processor's time."""
AWAITED: dict[str, str] = {}
"""Faults that are known and not mended yet, and what they wait for."""


@dataclass
class Tally:
    """What became of the inputs of one target."""

    inputs: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    awaited: int = 0
    seconds: float = 0.0
    memory: int = 0

    def add(self, done: Outcome) -> bool:
        """Count one; returns whether it is a fault that nobody knew."""
        self.inputs += 1
        self.seconds, self.memory = max(self.seconds, done.seconds), max(self.memory, done.memory)
        if not done.fault:
            self.codes[str(done.code)] += 1
        elif any(re.fullmatch(fault, done.fault) for fault in AWAITED):
            self.awaited += 1
        else:
            self.faults[done.fault] += 1
            return True
        return False

    def facts(self) -> dict[str, object]:
        """The tally as ``results.json`` keeps it."""
        ended = {"codes": dict(sorted(self.codes.items())), "faults": dict(self.faults.most_common()), "awaited": self.awaited}
        return {"inputs": self.inputs, **ended, "slowest": round(self.seconds, 2), "largest": self.memory >> 20}


class Worker:
    """A process that judges inputs, and is started again after one that is a fault."""

    def __init__(self, inputs: Sequence[Input], scratch: Path, seeds: Path) -> None:
        self.inputs, self.at, self._scratch, self._seeds = inputs, 0, scratch, seeds
        self.start()

    def start(self) -> None:
        """Go on with the first input that was not judged."""
        self.ear, mouth = multiprocessing.Pipe(duplex=False)
        self.since, self._done = time.monotonic(), list[str]()
        left = self.inputs[self.at :]
        self.process = multiprocessing.get_context("fork").Process(target=work, args=(left, mouth, self._scratch, self._seeds))
        self.process.start()
        mouth.close()

    def heard(self) -> tuple[Input, Outcome] | None:
        """What became of an input; None where it has only just begun."""
        try:
            message = self.ear.recv()
        except EOFError:
            self.process.join()
            return self._judged(Outcome(fault=f"ended the process with {self.process.exitcode}"))
        self.since = time.monotonic()
        if isinstance(message, Outcome):
            return self._judged(message)
        self._done = message
        return None

    def silent(self) -> tuple[Input, Outcome]:
        """End a process that waits for ever."""
        self.process.kill()
        return self._judged(Outcome(fault="waits for ever"))

    def end(self) -> None:
        """Leave nothing behind."""
        self.process.kill()
        self.process.join()
        if self._scratch.exists():
            swept(self._scratch)

    def _judged(self, done: Outcome) -> tuple[Input, Outcome]:
        sample, self.at = self.inputs[self.at], self.at + 1
        if done.fault:
            self.process.join()
            keep(sample, placed(sample, self._scratch, self._seeds), done, self._done, self._scratch / OUTSIDE)
            if self.at < len(self.inputs):
                self.start()
        return sample, done


OUTSIDE = "outside"


def placed(sample: Input, scratch: Path, seeds: Path) -> Place:
    """Where a worker has an input."""
    return Place(scratch / "scene", seeds / sample.seed, scratch / "out")


def work(inputs: Sequence[Input], mouth: Connection, scratch: Path, seeds: Path) -> None:
    """Judge one input after the other; after a fault the process is not what it was, and ends."""
    sys.dont_write_bytecode = True
    if scratch.exists():
        swept(scratch)
    scratch.mkdir()
    os.chdir(scratch)
    watch = Watch(scratch / OUTSIDE)
    for sample in inputs:
        place = placed(sample, scratch, seeds)
        place.out.mkdir()
        mouth.send(sample.write(place.seed, place.scene, watch.outside))
        done = watch.judge(TARGETS[sample.target].call, place)
        mouth.send(done)
        if done.fault:
            return
        swept(place.scene)
        swept(place.out)


def keep(sample: Input, place: Place, outcome: Outcome, done: list[str], outside: Path) -> None:
    """Write an input with a fault to ``build/fuzz``, as a file of the corpus."""
    FAULTS.mkdir(parents=True, exist_ok=True)
    path = FAULTS / f"{sample.target}_{sample.name}.json"
    path.write_text(saved(sample, outcome.fault, done, differences(place.seed, place.scene, outside)))
    path.with_suffix(".txt").write_text(f"{outcome.fault}\n{sample.target} of {sample.seed}: {done}\n{outcome.message}\n{outcome.trace}")


def judged(inputs: Sequence[Input], workers: int) -> Iterator[tuple[Input, Outcome]]:
    """Every input with what became of it, in no order."""
    with tempfile.TemporaryDirectory(prefix="align_hooks_fuzz_", dir=in_memory()) as folder:
        top = Path(folder)
        for name, seed in SEEDS.items():
            seed.write(top / "seeds" / name)
        warm(top)
        everyone = [Worker(inputs[index::workers], top / f"worker_{index}", top / "seeds") for index in range(workers)]
        try:
            while running := [worker for worker in everyone if worker.at < len(worker.inputs)]:
                ready = multiprocessing.connection.wait([worker.ear for worker in running], timeout=1)
                for worker in running:
                    if worker.ear in ready:
                        if judgement := worker.heard():
                            yield judgement
                    elif time.monotonic() - worker.since > SILENCE:
                        yield worker.silent()
        finally:
            for worker in everyone:
                worker.end()


def warm(top: Path) -> None:
    """Feed every target one seed that nothing was done to, so that workers have loaded all that they need when they begin."""
    for target in TARGETS.values():
        seed = target.seeds[0].name
        place = Place(linked(top / "seeds" / seed, top / "warm" / "scene"), top / "seeds" / seed, top / "warm")
        with (
            contextlib.suppress(SystemExit, Unnoticed),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            target.call(place)
        swept(top / "warm")


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=1_000, help="how many")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the number of the first")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", choices=TARGETS, help="one target alone")
    parser.add_argument("--corpus", nargs="*", type=Path, help="files of the corpus instead, all of them where none is named")
    parser.add_argument("--results", action="store_true", help=f"keep what came of it in {RESULTS.name}")
    given = parser.parse_args(arguments)
    if given.corpus is None:
        inputs = [drawn(given.seed, number, given.only) for number in range(given.first, given.first + given.inputs)]
    else:
        inputs = [kept(path) for path in given.corpus or sorted(CORPUS.glob("*.json"))]
    tallies = {name: Tally() for name in TARGETS}
    for count, (sample, done) in enumerate(judged(inputs, given.workers), 1):
        if tallies[sample.target].add(done):
            print(f"{sample.target} {sample.name}: {done.fault}", flush=True)
        if count % 5_000 == 0:
            print(f"{count} of {len(inputs)}", flush=True)
    facts = {name: tally.facts() for name, tally in tallies.items() if tally.inputs}
    if given.results:
        RESULTS.write_text(json.dumps({"seed": given.seed, "targets": facts}, indent=1) + "\n")
    print(json.dumps(facts, indent=1))
    return any(tally.faults for tally in tallies.values())


if __name__ == "__main__":
    sys.exit(main())
