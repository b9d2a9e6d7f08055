"""Two recorded runs before the same model in fp64: which side is right."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence

from align_hooks.comparison.arbitration import SIDES, Arbitration, JudgedPoint, PointKind, TruthDistance
from align_hooks.comparison.curves import side as summary
from align_hooks.comparison.finding import Words
from align_hooks.comparison.settings.recorded import argument_settings, model_settings
from align_hooks.errors import AlignHooksError, RecordError
from align_hooks.messages import Side, message
from align_hooks.messages.progress import Progress, silent
from align_hooks.names.blocks import PADDING
from align_hooks.oracle.inputs import Inputs, alike, inputs, size, steps_of
from align_hooks.oracle.measure import measured
from align_hooks.oracle.points import Recorded
from align_hooks.quantities.activations import ACTIVATIONS
from align_hooks.quantities.routing import ROUTING
from align_hooks.record.format.schema import Facts
from align_hooks.record.reader import Run
from align_hooks.settings import PREFIX

FP64, FP32 = 8, 4
"""Bytes of an element in the truth, and at most in the honest pass."""
GRAPH = 3
"""Copies of each tensor of a layer's graph in memory: itself, its gradient and intermediate results."""


def arbitrate(reference: Run, candidate: Run, step: int | None = None, *, progress: Progress = silent) -> Arbitration:
    """Compare both runs at ``step``, by default the first that both recorded, with the model of the reference's ``config.json`` in fp64."""
    runs = dict(zip(SIDES, (reference, candidate), strict=True))
    step = first_step(reference, candidate) if step is None else step
    given = {side: inputs(run, step, reference.facts) for side, run in runs.items()}
    unknown = given[Side.REFERENCE].objective.unknown
    recorded = {side: Recorded(run, step, given[side].batch, gradients=unknown is None) for side, run in runs.items()}
    progress(message("arbitrate.inputs"))
    same = alike(given[Side.REFERENCE], given[Side.CANDIDATE])
    needs = refuse_too_large(given[Side.REFERENCE], reference.facts.model)
    progress(message("arbitrate.memory", gigabytes=needs / 1e9))
    points = tuple(judged(reference.facts, given, recorded, same, progress))
    return Arbitration(
        step=step,
        points=points,
        alike=same,
        compute_types={side: each.compute_type for side, each in given.items()},
        settings=(*model_settings(reference.facts.model, candidate.facts.model), *argument_settings(reference.facts, candidate.facts)),
        doubts=tuple(doubts(points, recorded)),
        notes=tuple(notes(recorded, same, unknown)),
        sides=tuple(map(summary, runs.values())),
    )


def first_step(reference: Run, candidate: Run) -> int:
    """Return the first step whose weights and batch both runs recorded; raise RecordError where there is none."""
    for run in (reference, candidate):
        if not steps_of(run):
            variables = f"{PREFIX}WEIGHTS=0 {PREFIX}BATCHES=0 {PREFIX}GRADIENTS=0"
            raise RecordError(f"{run.path} has no step with both weights and batch; record it with {variables}")
    common = sorted(set(steps_of(reference)) & set(steps_of(candidate)))
    if not common:
        raise RecordError(f"no step has weights and batch in both {reference.path} and {candidate.path}; record one step of both")
    return common[0]


def judged(
    facts: Facts, given: Mapping[Side, Inputs], recorded: Mapping[Side, Recorded], same: bool, progress: Progress
) -> Iterator[JudgedPoint]:
    """Yield every point: both sides by one truth where their inputs are the same, else each side by the truth of its own inputs."""
    if same:
        yield from measured(facts.model, given[Side.REFERENCE], recorded, progress)
        return
    distances: dict[tuple[str, PointKind], dict[Side, TruthDistance]] = {}
    for side in SIDES:
        for each in measured(facts.model, given[side], {side: recorded[side]}, progress):
            distances.setdefault((each.point, each.kind), {}).update(each.distances)
    yield from (JudgedPoint(*key, of_point) for key, of_point in distances.items())


def doubts(points: Sequence[JudgedPoint], recorded: Mapping[Side, Recorded]) -> Iterator[Words]:
    """Say of which side that seems wrong the tokens went to other experts than the truth's, when no record says which."""
    for side, each in recorded.items():
        first = next((index for index, point in enumerate(points) if not point.right(side)), len(points))
        moved = [point for point in points[:first] if point.kind is PointKind.CHOICE and side in point.distances]
        if first < len(points) and not each.choices and any(point.distances[side].error for point in moved):
            yield message("arbitrate.may_follow_from_choices", side=side, variable=f"{PREFIX}{ROUTING.name.upper()}")


def notes(recorded: Mapping[Side, Recorded], same: bool, unknown: Words | None) -> Iterator[Words]:
    """Say what was not judged, and why."""
    if not same:
        yield message("arbitrate.other_inputs")
    if unknown is not None:
        yield unknown
    for side, each in recorded.items():
        if not each.holds_gradients and unknown is None:
            yield message("arbitrate.no_gradients", side=side)
        if each.activations is None:
            yield message("arbitrate.no_activations", side=side, variable=f"{PREFIX}{ACTIVATIONS.name.upper()}")
        if not each.holds_token_losses:
            yield message("arbitrate.no_token_losses", side=side)


def needed(inputs: Inputs, configuration: Mapping[str, object]) -> int:
    """Return the bytes that the truth and the honest pass take at most; a Llama of 133 M elements took two thirds of them.

    Counted are the hidden states between layers, the largest part of the model with gradients, one row's graph, and the gradients of
    embedding and output where several parts use these."""
    rows, sequence = inputs.shape
    sizes: dict[str, int] = {}
    for name in inputs.weights:
        part = ".".join(name.split(".")[:3]) if name.startswith("model.layers.") else name.removesuffix(PADDING)
        sizes[part] = sizes.get(part, 0) + math.prod(inputs.weights.shape(name))
    hidden, heads = size(configuration, "hidden_size"), size(configuration, "num_attention_heads")
    wide = max(size(configuration, "vocab_size"), size(configuration, "intermediate_size"), hidden)
    between = rows * sequence * hidden * (size(configuration, "num_hidden_layers") + 4)
    graph = GRAPH * (heads * sequence * sequence + sequence * (4 * wide + 12 * hidden))
    several = configuration.get("tie_word_embeddings") is True or size(configuration, "num_nextn_predict_layers") > 0
    kept = sum(elements for part, elements in sizes.items() if not part.startswith("model.layers.")) if several else 0
    return (FP64 + FP32) * (between + 2 * max(sizes.values(), default=0) + 2 * kept + graph)


def refuse_too_large(inputs: Inputs, configuration: Mapping[str, object]) -> int:
    """Return the bytes that the passes need; raise AlignHooksError where this machine has fewer free."""
    needs, free = needed(inputs, configuration), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    if needs > free and needs > available(free):
        raise AlignHooksError(
            f"the truth in fp64 takes {needs / 1e9:.3g} GB of memory, and {available(free) / 1e9:.3g} GB are free;"
            " run it on a larger machine, or record a step of a smaller batch"
        )
    return needs


def available(free: int) -> int:
    """Return the bytes available without swapping, caches included; ``free`` where the system does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:  # noqa: PTH123
            return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), free)
    except (OSError, ValueError):
        return free
