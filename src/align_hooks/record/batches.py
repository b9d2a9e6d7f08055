"""The batch of a step from what its ranks recorded, or from what the guide's snippet left of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from align_hooks.errors import RecordError
from align_hooks.record import layout
from align_hooks.record.batch import Batch, BatchFacts, Part, Source, described, in_sequence, join, merged, read_part, read_part_by_hand
from align_hooks.record.folder import inside
from align_hooks.record.pieces import id_range
from align_hooks.record.schema import Description

if TYPE_CHECKING:
    from align_hooks.record.reader import Run

Files: TypeAlias = dict[int, dict[int, dict[Source, Description]]]
"""Data-parallel index to context-parallel index to what was recorded there."""


def whole(run: Run, step: int, names: Sequence[str]) -> Batch:
    """The batch that ``step`` consumed on all data-parallel ranks, with the arrays of ``names``."""
    return join(step, _parts(run, step, names))


def facts(run: Run, step: int) -> BatchFacts:
    """What a batch is, after checking that its files are whole; of a recorded batch only headers are read."""
    sizes: list[tuple[int, int]] = []
    ranges: list[Sequence[int] | None] = []
    if run.made_by_hand:
        arrays = whole(run, step, layout.BATCH_ARRAYS).arrays()
        rows, sequence = arrays["tokens"].shape
        sizes, ranges = [(rows, sequence)], [id_range(arrays)]
    else:
        for places in _files(run, step).values():
            fed = [one for sources in places.values() for one in sources.items()]
            shapes = [[one.arrays["tokens"].shape for one in sources.values() if "tokens" in one.arrays][:1] for sources in places.values()]
            tokens = [shape for (shape,) in filter(None, shapes)]
            cut = any(one.slices for _, one in fed)
            sizes += [(tokens[0][0], sum(shape[1] for shape in tokens) if cut else tokens[0][1])] if tokens else []
            ranges += [one.ids for _, one in fed]
            for source, name in ((source, name) for source, one in fed for name in one.arrays):
                source.array(name, headers_only=True)
            if any(one.joined_first and one.joined_first.whole for _, one in fed):
                break  # the others were fed the same
    found = [one for one in ranges if one]
    if not sizes or not found:
        raise RecordError(f"{run.path}: the batch of step {step} has no tokens")
    lowest, highest = min(low for low, _ in found), max(high for _, high in found)
    return BatchFacts(sequence=sizes[0][1], rows=sum(size[0] for size in sizes), lowest=lowest, highest=highest)


def _files(run: Run, step: int) -> Files:
    """The fewest ranks of each place that saw all of the batch there. Tensor-parallel ranks are fed the same, so one of each stage is
    looked at."""
    files: Files = {}
    stages: dict[tuple[int, ...], int] = {}
    for rank, manifest in sorted(run.manifests.items()):
        stages.setdefault(tuple(manifest.place.get(axis, 0) for axis in ("dp", "cp", "pp")), rank)
    for (dp, cp, _), rank in stages.items():
        source = run.source(step, rank)
        description = described(source)
        seen = files.setdefault(dp, {}).setdefault(cp, {})
        if not seen or description.arrays.keys() - {name for one in seen.values() for name in one.arrays}:
            seen[source] = description
    return files


def _parts(run: Run, step: int, names: Sequence[str]) -> list[Part]:
    if run.made_by_hand:
        ranks = range(len(list(inside(run.path, run.path / f"step_{step}").glob("rank_*"))))
        return [read_part_by_hand(Source(run.path, layout.step(run.path, step, rank))) for rank in ranks]
    return [
        in_sequence(
            [merged([read_part(source, names) for source in places[index]]) for index in sorted(places)], f"{run.path}: step {step}"
        )
        for _, places in sorted(_files(run, step).items())
    ]
