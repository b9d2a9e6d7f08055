"""The manifests of a run's ranks, refused where they are not of one job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from align_hooks.errors import RecordError
from align_hooks.process.storage import exists
from align_hooks.quantities.registry import ROWS
from align_hooks.record.format import layout
from align_hooks.record.format.files import QUOTED, read_json, read_sealed
from align_hooks.record.format.folder import inside
from align_hooks.record.format.layout import JsonObject
from align_hooks.record.format.schema import Facts, Manifest, MuonMatrix, ParameterGroup
from align_hooks.record.format.shard import Shard
from align_hooks.record.format.structured import structured

MIXED = (
    "one was replaced and the other not yet, or they were copied together; start the job again with ALIGN_HOOKS_RUN_EXISTS=replace, or "
    "copy all files of one run"
)


def read_manifests(run: Path, ranks: Sequence[int]) -> tuple[dict[int, Manifest], tuple[ParameterGroup, ...]]:
    """Return every rank's manifest, without parameter groups, and the groups of all ranks.

    Raises RecordError for another format, an unreadable manifest, and ranks of different jobs.
    """
    manifests: dict[int, Manifest] = {}
    groups = _Groups()
    known: dict[Shard, Shard] = {}  # data-parallel ranks have equal tables, most of a manifest: equal shards are kept once
    for rank in ranks:
        path = layout.manifest(run, rank)
        manifest = read_manifest(inside(run, path))
        if manifest.rank not in (None, rank):
            raise RecordError(f"{path} is of rank {str(manifest.rank)[:20]}; copy it again, or record the run again")
        _refuse_strangers(run, rank, manifest, ranks[0], manifests.get(ranks[0], manifest))
        groups.add(manifest.groups)
        table = tuple(known.setdefault(shard, shard) for shard in manifest.parameters)
        manifests[rank] = replace(manifest, parameters=table, groups=())
    return manifests, groups.merged()


def read_manifest(path: Path) -> Manifest:
    """Return one rank's manifest; raises RecordError where it cannot be read."""
    content = read_sealed(path)
    _refuse_format(content, path)
    manifest = structured(Manifest, content, path, numbers=("groups",))
    if len({shard.name for shard in manifest.parameters}) < len(manifest.parameters):
        raise RecordError(f"{path}: parameters: it lists a name twice; copy it again, or record the run again")
    return manifest


def read_facts(run: Path, manifests: Mapping[int, Manifest], groups: Iterable[ParameterGroup]) -> Facts:
    """Return ``run.json`` with the parameter ``groups`` of all ranks, since rank 0 knows only those of its own stage.

    Raises RecordError where ``run.json`` and the ``manifests`` are of different runs.
    """
    path = layout.run_file(run)
    if not exists(path):
        return Facts()
    content = read_sealed(inside(run, path))
    _refuse_format(content, path)
    facts = structured(Facts, content, path, numbers=("optimizer",))
    strangers = {manifest.run_id for manifest in manifests.values() if manifest.run_id} - {facts.run_id}
    if strangers:
        raise RecordError(f"{path} is of run {facts.run_id} and the manifests of run {min(strangers)}: {MIXED}")
    if facts.optimizer is None:
        return facts
    of_all_ranks = _Groups()
    of_all_ranks.add(facts.optimizer.groups)
    of_all_ranks.add(groups)
    return replace(facts, optimizer=replace(facts.optimizer, groups=of_all_ranks.merged()))


def _refuse_format(content: JsonObject, path: Path) -> None:
    if content.get("format") != layout.FORMAT:
        raise RecordError(
            f"{path} has format {str(content.get('format'))[:20]!r}, this version reads {layout.FORMAT}; use the version that wrote it"
        )


def _refuse_strangers(run: Path, rank: int, manifest: Manifest, first: int, reference: Manifest) -> None:
    """Raise RecordError where a rank's manifest is of another run, or job, than the first rank's."""
    ids = [manifest.run_id, reference.run_id]
    launch, expected = (replace(launched, rank=0, host="", launchers={}) for launched in (manifest.launch, reference.launch))
    if None not in ids and ids[0] != ids[1]:
        raise RecordError(f"{run}: rank {rank} holds run {ids[0]} and rank {first} run {ids[1]}: {MIXED}")
    if (None in ids and launch != expected) or launch.world_size != expected.world_size:
        raise RecordError(
            f"{run}: rank {rank} belongs to another job than rank {first} ({str(launch)[:QUOTED]} against {str(expected)[:QUOTED]}); "
            "record into an empty directory"
        )


class _Groups:
    """Parameter groups of several ranks; the n-th group of equal hyper-parameters is the same group on every rank.

    Two groups of one rank stay two, although they may begin with equal values: warm-ups start from a rate of 0.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], tuple[ParameterGroup, dict[str, None], dict[MuonMatrix, None]]] = {}

    def add(self, groups: Iterable[ParameterGroup]) -> None:
        """Add the groups of one more rank."""
        seen: Counter[str] = Counter()
        for group in groups:
            alike = repr(replace(group, parameters=(), matrices=None))  # not the group itself: NaN is equal to nothing
            seen[alike] += 1
            _, names, matrices = self._known.setdefault((alike, seen[alike]), (group, {}, {}))
            names.update(dict.fromkeys(group.parameters))
            matrices.update(dict.fromkeys(group.matrices or ()))

    def merged(self) -> tuple[ParameterGroup, ...]:
        """Return all groups in the order of addition, each with the parameters of all ranks."""
        known = self._known.values()
        return tuple(
            replace(group, parameters=tuple(names), matrices=tuple(matrices) or group.matrices) for group, names, matrices in known
        )


def refuse_lost_manifests(run: Path) -> None:
    """Raise RecordError for a record of ours without manifests; a directory of copied batches is made by hand."""
    ours = [layout.run_file(run), *(run / kind.name for kind in ROWS)]
    ours += [path / layout.BATCH for path in layout.step_folders(run, 0) if _was_recorded(run, path / layout.BATCH)][:1]
    if left := [path for path in ours if exists(path)]:
        raise RecordError(
            f"{run} has lost its manifests: {left[0].relative_to(run)} is there and manifest/rank_0.json is not; copy it again"
        )


def _was_recorded(run: Path, path: Path) -> bool:
    """Whether a batch's description names a segment, as the guide's snippet never does, beside more than a batch."""
    try:
        folder = inside(run, path.parent)
        more = any(beside.is_dir() or beside.suffix == ".safetensors" for beside in folder.iterdir())
        return more and "segment" in read_json(inside(run, path))
    except (OSError, RecordError):
        return False
