"""A ladder that narrows a late difference down: the pair again with one feature less at a time (the guide, stage 3).

The candidate's rungs leave out one parallel dimension, then all. Both sides' rungs have fewer layers, or shorter
sequences. The file has a place for each side's command, as a recorded command has no place for changes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from msgspec import Struct

from align_hooks.comparison.pair import Pair
from align_hooks.record.reader import Run
from align_hooks.scenarios.plan import BLANK, NOTHING


class Knob(Struct, frozen=True):
    """A setting that makes a model or its layout smaller: arguments of Megatron-LM, with ``{}`` for the value, and MindFormers' keys."""

    name: str
    torch: str
    ms: tuple[str, ...]


AXES = {
    "tp": Knob("tensor parallelism", "--tensor-model-parallel-size {}", ("parallel_config.model_parallel",)),
    "pp": Knob("pipeline parallelism", "--pipeline-model-parallel-size {}", ("parallel_config.pipeline_stage",)),
    "cp": Knob("context parallelism", "--context-parallel-size {}", ("parallel_config.context_parallel",)),
    "ep": Knob("expert parallelism", "--expert-model-parallel-size {}", ("parallel_config.expert_parallel",)),
    "dp": Knob("data parallelism", "", ("parallel_config.data_parallel",)),
}
"""Dimensions of a layout. Megatron-LM's data parallelism follows from the number of ranks."""
LAYERS = Knob("half of the layers", "--num-layers {}", ("model.model_config.num_hidden_layers", "model.model_config.num_layers"))
LENGTH = Knob("half of the sequence", "--seq-length {} --max-position-embeddings {}", ("model.model_config.seq_length",))
PLACES = {
    "torch": f"torchrun --nproc-per-node {{ranks}} {BLANK} {{changes}}",
    "ms": f"msrun --worker_num={{ranks}} {BLANK} --config {{config}}",
}
"""The text in the file where a side's command is to be put."""


def plan_text(pair: Pair) -> str:
    """Return the file of the ladder, as YAML."""
    reference, candidate = pair.runs
    rungs = [rung("again", candidate.world_size, "", side="candidate", against=str(reference.path))]
    rungs += [*layouts(reference, candidate), *smaller(pair)]
    head = [
        "# Narrows down where two runs part. Put in both commands, then: align-hooks ladder FILE",
        "# {ranks} is the number of ranks, {changes} the changed arguments, {config} the changed copy of the YAML file.",
        f"folder: {json.dumps(f'{candidate.path}_bisect')}",
        f"reference: {json.dumps(str(reference.path))}",
        "to_the_end: true",
        "sides:",
        *side("reference", reference),
        *side("candidate", candidate),
        "rungs:",
    ]
    return "\n".join([*head, *(line for lines in rungs for line in lines), ""])


def side(name: str, run: Run) -> list[str]:
    """Return the lines of a side, with a place for its command."""
    config = ["    config: YOUR.yaml"] if run.facts.side == "ms" else []
    place = json.dumps(PLACES.get(str(run.facts.side), f"{BLANK} {{changes}}"), ensure_ascii=False)
    started = [f"    # it was started by {json.dumps(run.facts.command)}"] if run.facts.command else []
    return [f"  {name}:", *started, f"    command: {place}", *config]


def layouts(reference: Run, candidate: Run) -> Iterator[list[str]]:
    """Yield rungs of the candidate without each dimension, then on one card."""
    sizes = {axis: max((manifest.size(axis) for manifest in candidate.manifests.values()), default=1) for axis in AXES}
    wide = {axis: size for axis, size in sizes.items() if size > 1}
    same = {"side": "candidate", "against": str(reference.path)}
    for axis, size in wide.items():
        ranks = candidate.world_size // (size if axis != "ep" else 1)
        yield rung(f"without-{axis}", ranks, setting(candidate, [AXES[axis]], 1), without=AXES[axis].name, **same)
    if len(wide) > 1:
        yield rung("one-card", 1, setting(candidate, [AXES[axis] for axis in wide], 1), without="any parallelism", **same)


def smaller(pair: Pair) -> Iterator[list[str]]:
    """Yield rungs of both sides with half of the layers, and of the sequence; the reference, which comes first, has its own data."""
    length = pair.reference.facts.training.sequence_length
    stages = max((manifest.size("pp") for run in pair.runs for manifest in run.manifests.values()), default=1)
    halves = pair.layers // 2 // stages * stages, length // 2 if isinstance(length, int) else 0
    for name, knob, half in zip(("layers", "length"), (LAYERS, LENGTH), halves, strict=True):
        if half:  # one layer a stage has no half
            own, other = f"reference-half-{name}", f"candidate-half-{name}"
            ours, theirs = (setting(run, [knob], half) for run in pair.runs)
            yield rung(own, pair.reference.world_size, ours, side="reference", against=NOTHING, fed_by=NOTHING)
            yield rung(other, pair.candidate.world_size, theirs, side="candidate", against=own, fed_by=own, without=knob.name)


def setting(run: Run, knobs: Iterable[Knob], value: int) -> str | dict[str, int]:
    """Return the changes that set knobs on a run's side: arguments, or keys with values."""
    if run.facts.side != "ms":
        return " ".join(knob.torch.replace("{}", str(value)) for knob in knobs if knob.torch)
    known = run.facts.arguments or {}
    return {key: value for knob in knobs for key in [key for key in knob.ms if key in known] or knob.ms[:1]}


def rung(name: str, ranks: int, changes: str | dict[str, int], **others: str) -> list[str]:
    """Return one rung, as lines of YAML."""
    entries: dict[str, object] = {"ranks": max(ranks, 1), "changes": changes, **others}
    return [f"  - name: {name}", *(f"    {key}: {json.dumps(value)}" for key, value in entries.items() if value != "")]
