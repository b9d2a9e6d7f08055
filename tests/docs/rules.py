"""The rules of a record, a row a file: when it is written, where its digest stands, what a reader concludes where the file is missing.

``docs/record.md`` is made from these rules, and a test holds every file of a run against them.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of file. ``path`` is a pattern in the run, with N for a step and M for a rank; ``digest`` names the place of its digest."""

    path: str
    when: str
    holds: str
    digest: str
    absent: str

    def is_of(self, path: str) -> bool:
        """Whether a path in a run is one of these files."""
        return fnmatchcase(path, self.path.replace("_N", "_[0-9]*").replace("_M", "_[0-9]*"))


TABLE = """
manifest/rank_M.claim
    first of all, in place; written again when a start is accepted | who records here: process, host, job; locked as long as that process
    lives | none: it is no part of the record | nothing: a record that was copied needs none

manifest/rank_M.json
    by rank 0 when it has claimed the directory, by every rank when the model is built (the moment in which an earlier record is replaced
    or continued), and at the end | the launch, the rank's place and parameter table, the segments that the record is made of, how it
    ended | its own last member | the rank is missing: every command names it. Where no rank has one the record is refused, unless it was
    made by hand

run.json
    by rank 0, when the model is built, after its manifest | what ran, how it was started, with which settings and versions; the run's id |
    its own last member | a problem is named: what ran is not known

step_N/rank_M/*.npy
    in the step, before its `batch.json` | one array of the batch, as the guide's appendix has it | `batch.json` | the batch of the step
    is refused

step_N/rank_M/batch.json
    after the arrays | shapes, types and digests of the arrays, rows of each micro-batch, the
    tokens of each expert | the step's row of scalars | lost where the row
    lists it, not asked for where it does not

step_N/rank_M/routing.safetensors
    in the step | the experts that each token was given to, layer by layer, and which rows and positions these are; each tensor's digest in
    the header's metadata | the step's row of scalars, that of the header | lost where the row lists it, not asked for where it does not

step_N/rank_M/activations/tensors.safetensors
    in the step, before the sums | whole values and gradients of the points that are kept whole; each tensor's digest in the header's
    metadata | the step's row of scalars, that of the header | lost where the row lists it, not asked for where it does not

step_N/rank_M/activations/sums.safetensors
    in the step | sums of each point's values and gradients, a row a micro-batch, and which rows, positions and columns these are; each
    tensor's digest in the header's metadata | the step's row of scalars, that of the header | lost where the row lists it, not asked for
    where it does not

step_N/rank_M/gradients.safetensors
    in the step | gradients; each tensor's digest in the header's metadata | the step's row of scalars, that of the header | lost where
    the row lists it, not asked for where it does not

step_N/rank_M/weights/*.safetensors
    after the update that makes them; the first ones before the first step | weights after N updates, padded rows apart; each tensor's
    digest in the header's metadata | the row of step N-1, of the first ones that of the first step; that of the header | lost where the
    row lists it, not asked for where it does not

step_N/rank_M/weights/*.json
    before the weights beside them | the model's configuration, squared sums of all that the rank holds | the same row as the weights |
    lost where the row lists it

step_N/rank_M/optimizer_state/*.safetensors
    after the update that makes them | Adam's moments after N updates; each tensor's digest in the header's metadata | the row of step
    N-1; that of the header | lost where the row lists it

step_N/rank_M/optimizer_state/state.json
    after the moments | the count of updates, the moments' types | the row of step N-1 | lost where the row lists it, not asked for where
    it does not

local_norms/rank_M.jsonl
    a line in each step, appended | the rank's squared sums | the step's row of scalars, that of the line | lost where rows list lines,
    not asked for where they do not; a line that no row lists does not count

sketches/*/rank_M.jsonl
    a line in each step, appended | the rank's signed sums | the step's row of scalars, that of the line | as of local norms

scalars/rank_M.jsonl
    a line in each step, appended last: it makes the step whole | the step's numbers, its segment, and everything that the step wrote,
    with digests | its own last member, line by line | no step is whole; fewer lines than the manifest says are named

causal_attention_mask.npy
    with the first batch whose mask is the causal one, by rank 0 | that mask, for readers other than ours | none: it is compared with what
    a causal mask is | nothing: it is made from the sequence's length

last_words/rank_M.*
    empty, when the directory has been claimed; by the signal that ends the process; removed when it ends by itself | where the process
    was when SIGTERM or SIGHUP, as the file is called, ended it | none: it is written as the process dies | nothing: the manifest says how
    the process ended, or that it never did

*.tmp
    while the file is written that is named in it | a part of that file | none | nothing: one that is there was left by a process that was
    killed, and is deleted with its step
"""
"""A rule a paragraph: the path, then when it is written, what it holds, where its digest stands, what its absence means."""
SELF = "its own last member"
"""The place of the digest of a file that holds it itself."""
RULES = tuple(
    Rule(path, *(" ".join(field.split()) for field in fields.split("|")))
    for path, fields in (rule.split("\n", 1) for rule in TABLE.strip().split("\n\n"))
)
