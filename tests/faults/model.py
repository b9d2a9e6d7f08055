"""What a record may be at a moment of a job, said without a word about files.

A record is a table: from a step to the job that made it, and the same of states. A job changes it in two ways. When its model is built the
record that it replaces is no more, or ends where it goes on. When it has completed a step, on every rank, the step is there.
"""

import itertools
from collections import defaultdict
from dataclasses import dataclass, field

from faults.jobs import BEGUN, COMMITTED, COMMITTING, DESCRIBED, DESCRIBING, FINISHED, KINDS, Job


@dataclass(frozen=True)
class Table:
    """Step to the number of the job that made it; the same of states, by kind."""

    steps: dict[int, int] = field(default_factory=dict)
    states: dict[tuple[str, int], int] = field(default_factory=dict)


STATES = ("weights", "sketches", "optimizer_state")


@dataclass
class Progress:
    """How far each rank of a job has come: ``reached`` has the ranks that came to a mark."""

    job: Job
    before: Table
    reached: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))

    def mark(self, rank: int, number: int) -> bool:
        """A rank has come to a mark; False where it waits for the others there."""
        self.reached[number].add(rank)
        return number != BEGUN

    @property
    def finished(self) -> bool:
        """Whether all ranks have."""
        return self.reached[FINISHED] == self.all

    @property
    def all(self) -> set[int]:
        """The job's ranks."""
        return set(range(self.job.ranks))

    @property
    def continues(self) -> bool:
        """Whether steps of the earlier record stay: where a user asks for it, and where a job that was started again resumes."""
        steps = self.before.steps
        own = bool(self.job.own) and {*steps.values()} <= {*(self.job.own or ())}
        return self.job.exists == "continue" or (own and min(steps, default=self.job.steps.start) < self.job.steps.start)

    @property
    def untouched(self) -> bool:
        """Whether the earlier record must be exactly as it was."""
        return not self.reached[DESCRIBING]

    @property
    def may_be_refused(self) -> bool:
        """Whether the directory may be no record at all: nothing was there yet, or it is replaced on some ranks and not on others, now or
        by the job before."""
        stays = self.before.steps and (self.untouched or self.continues)
        return self.reached[DESCRIBED] != self.all and not stays

    def wrong(self, record: Table) -> str:
        """What of a record that was read may not be; empty where all of it may."""
        if self.untouched:
            return "" if record == self.before else f"it was {self.before} and nothing has touched it"
        for table in ("step", *STATES):
            now, before = of(record, table), of(self.before, table)
            for number in sorted({*now, *before, *self.job.steps, self.job.steps.stop}):
                may = set(self.may_hold(table, number, before.get(number)))
                if now.get(number) not in may:
                    return f"{table} {number} is of job {now.get(number)}, and may be of {sorted(map(str, may))}"
        return ""

    def may_hold(self, table: str, number: int, before: int | None) -> list[int | None]:
        """The jobs of which a step, or a state, may be; None for that there is none."""
        ours = self.ours(table, number)
        if self.keeps(table, number):
            return [before] if ours == [None] else ours
        return ours if self.reached[DESCRIBED] else [before, *ours]

    def keeps(self, table: str, number: int) -> bool:
        """Whether the earlier record's is still there when this job goes on."""
        first = self.job.steps.start
        return self.continues and (number < first or (table != "step" and number == first and table not in self.job.asked))

    def ours(self, table: str, number: int) -> list[int | None]:
        """Of this job, perhaps or surely; a state is there with the step before it, and the first one with the first step."""
        if table != "step" and table not in self.job.asked:
            return [None]
        first = self.job.steps.start
        if number not in (self.job.steps if table == "step" else range(first, self.job.steps.stop + 1)):
            return [None]
        step = number if table == "step" else max(number - 1, first)
        if self.reached[COMMITTED + KINDS * step] == self.all:
            return [self.job.number]
        return [None, self.job.number] if self.reached[COMMITTING + KINDS * step] == self.all else [None]

    @property
    def after(self) -> Table:
        """The record once the job has finished."""
        done = Progress(self.job, self.before)
        done.reached |= dict.fromkeys((DESCRIBING, DESCRIBED, *(COMMITTED + KINDS * step for step in self.job.steps)), self.all)
        numbers = range(min([0, *self.before.steps]), max([*self.before.steps, self.job.steps.stop]) + 2)
        held: dict[str, dict[int, int]] = {table: {} for table in ("step", *STATES)}
        for table, number in itertools.product(held, numbers):
            (job,) = done.may_hold(table, number, of(self.before, table).get(number))
            if job is not None:
                held[table][number] = job
        return Table(held.pop("step"), {(kind, number): job for kind, jobs in held.items() for number, job in jobs.items()})


def of(table: Table, kind: str) -> dict[int, int]:
    """The steps, or the states of one kind."""
    return table.steps if kind == "step" else {number: job for (name, number), job in table.states.items() if name == kind}
